// SPDX-License-Identifier: BSD-3-Clause
#include <cctype>
#include <charconv>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "module.h"
#include "scanner.h"

namespace gradwire::ptx {
namespace {

constexpr std::uint32_t kParameterBytes = 8;  ///< room for each parameter of a function

std::uint32_t bytes_of_type(std::string_view type) {
  if (type == "pred") return 1;
  std::uint32_t bits = 0;
  std::from_chars(type.data() + 1, type.data() + type.size(), bits);
  return bits / 8;
}

class Parser : private Scanner {
 public:
  using Scanner::Scanner;

  Module module() {
    while (!at_end()) top_level();
    for (const auto& [function, at, callee] : calls_) {
      const auto found = function_numbers_.find(callee);
      if (found == function_numbers_.end()) throw std::runtime_error("no function " + callee);
      module_.functions[function].code[at].target = found->second;
    }
    return std::move(module_);
  }

 private:
  // --- declarations

  void top_level() {
    const std::string_view first = word();
    if (first == ".version" || first == ".target" || first == ".address_size") {
      skip_line();
    } else if (first == ".visible" || first == ".weak") {
      top_level();
    } else if (first == ".shared") {
      shared();
    } else if (first == ".entry" || first == ".func") {
      function(first == ".entry");
    } else {
      fail("unknown directive " + std::string(first));
    }
  }

  /// `.align 8 .b8 name[100];`, or without a length.
  std::pair<std::string, std::uint32_t> array(std::uint32_t& align) {
    std::string_view type = word();
    align = 1;
    if (type == ".align") {
      align = number();
      type = word();
    }
    std::uint32_t bytes = bytes_of_type(type.substr(1));
    std::string name(word());
    if (take('[')) {
      bytes *= number();
      expect(']');
    }
    return {std::move(name), bytes};
  }

  void shared() {
    std::uint32_t align = 1;
    auto [name, bytes] = array(align);
    expect(';');
    module_.shared_bytes = (module_.shared_bytes + align - 1) / align * align;
    shared_[name] = module_.shared_bytes;
    module_.shared_bytes += bytes;
  }

  void function(bool is_entry) {
    Function made;
    made.is_entry = is_entry;
    made.name = word();
    parameters_.clear();
    expect('(');
    while (!take(')')) {
      if (word() != ".param") fail("expected a parameter");
      std::uint32_t align = 1;
      auto [name, bytes] = array(align);
      if (is_entry && made.parameter_bytes != 0) fail("more than one parameter of a kernel");
      if (!is_entry && bytes > kParameterBytes) fail("a parameter that is too large");
      parameters_[name] = made.parameter_bytes;
      made.parameter_bytes += is_entry ? bytes : kParameterBytes;
      take(',');
    }
    if (take(';')) return;   // announced only
    while (peek() == '.') {  // how many threads, and the like
      const std::string_view directive = word();
      if (directive != ".maxntid" && directive != ".noreturn") {
        fail("unknown directive " + std::string(directive));
      }
      skip_line();
    }
    expect('{');
    body(made);
    function_numbers_[made.name] = static_cast<std::uint32_t>(module_.functions.size());
    module_.functions.push_back(std::move(made));
  }

  // --- statements

  void body(Function& made) {
    made_ = &made;
    slots_ = {{"%tid.x", kThreadNumber},
              {"%ctaid.x", kBlockNumber},
              {"%ntid.x", kBlockSize},
              {"%nctaid.x", kGridSize}};
    constants_.clear();
    labels_.clear();
    branches_.clear();
    for (int depth = 1; depth > 0;) {
      if (take('{')) {
        ++depth;
      } else if (take('}')) {
        --depth;
      } else {
        statement();
      }
    }
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) fail("no label " + label);
      made.code[at].target = found->second;
    }
  }

  void statement() {
    Instruction made;
    if (take('@')) {
      made.negated = take('!');
      made.guard = slot(word());
    }
    const std::string_view first = word();
    if (take(':')) {
      labels_[std::string(first)] = static_cast<std::uint32_t>(made_->code.size());
      return;
    }
    if (first == ".reg" || first == ".pragma") {
      skip_past(';');
    } else if (first == ".shared") {
      shared();
    } else if (first == ".param") {
      local();
    } else {
      made.line = line();
      instruction(first, made);
      expect(';');
      made_->code.push_back(made);
    }
  }

  /// `.param .b64 param0;`: what is passed to another function.
  void local() {
    std::uint32_t align = 1;
    auto [name, bytes] = array(align);
    expect(';');
    std::uint32_t index = 0;
    if (!name.starts_with("param") || bytes > kParameterBytes) fail("unknown local " + name);
    std::from_chars(name.data() + 5, name.data() + name.size(), index);
    locals_[name] = index * kParameterBytes;
    made_->local_bytes = std::max(made_->local_bytes, (index + 1) * kParameterBytes);
  }

  void instruction(std::string_view opcode, Instruction& made) {
    std::string name(opcode);
    if (name == "call.uni") {
      call(made);
      return;
    }
    if (name == "bra" || name == "bra.uni") {
      branches_.emplace_back(made_->code.size(), std::string(word()));
      name = "bra";
    } else {
      if (name.starts_with("ld.") || name.starts_with("st.")) name = access(name, made);
      if (name.starts_with("atom.")) made.is_strong = true;
      std::uint32_t place = 0;
      while (peek() != ';') {
        if (peek() == '{') {
          vector(made);
          if (name.starts_with("mov.")) name += place == 0 ? ".unpack" : ".pack";
        } else {
          operand(made);
        }
        ++place;
        if (!take(',') && !take('|')) break;
      }
      if (name == "mov.u64" && made.operands == 2 && clock_) name = "mov.u64.clock";
      clock_ = false;
    }
    const Opcode* const known = find_opcode(name);
    if (known == nullptr) fail("unknown opcode " + std::string(opcode));
    made.run = known->run;
    made.meet = known->meet;
  }

  /// `ld.acquire.sys.global.v4.u32` is ld.u32 of 4 from global memory.
  std::string access(const std::string& name, Instruction& made) {
    std::size_t at = 3;
    while (true) {
      const std::size_t dot = name.find('.', at);
      if (dot == std::string::npos) return name.substr(0, 3) + name.substr(at);
      const std::string_view part = std::string_view(name).substr(at, dot - at);
      if (part == "global") {
        made.space = Space::kGlobal;
      } else if (part == "shared") {
        made.space = Space::kShared;
      } else if (part == "param") {
        made.space = Space::kParameter;
      } else if (part == "v2" || part == "v4") {
        made.width = static_cast<std::uint8_t>(part[1] - '0');
      } else if (part == "acquire" || part == "release" || part == "relaxed") {
        made.is_strong = true;
        made.releases = part == "release";
      } else if (part != "cv" && part != "sys" && part != "gpu") {
        fail("unknown opcode " + name);
      }
      at = dot + 1;
    }
  }

  void call(Instruction& made) {
    calls_.emplace_back(module_.functions.size(), made_->code.size(), std::string(word()));
    expect(',');
    expect('(');
    for (std::uint32_t place = 0; !take(')'); ++place) {
      if (word() != "param" + std::to_string(place)) fail("parameters out of their order");
      take(',');
    }
    made.run = find_opcode("call")->run;
  }

  void vector(Instruction& made) {
    expect('{');
    std::uint8_t width = 0;
    do {
      operand(made);
      ++width;
    } while (take(','));
    expect('}');
    made.width = width;
  }

  void add(Instruction& made, std::int32_t operand) {
    if (made.operands == made.operand.size()) fail("too many operands");
    made.operand[made.operands++] = operand;
  }

  void operand(Instruction& made) {
    if (take('[')) {
      const std::string base(word());
      add(made, value(base, made));
      if (take('+')) {
        const std::string_view text = word();
        std::int64_t offset = 0;
        std::from_chars(text.data(), text.data() + text.size(), offset);
        made.offset += offset;
      }
      expect(']');
      return;
    }
    const std::int64_t before = made.offset;
    const std::string name(word());
    if (name == "%globaltimer") {
      clock_ = true;
      add(made, 0);
      return;
    }
    add(made, value(name, made));
    if (made.offset != before) fail("an address within parameters: " + name);
  }

  std::int32_t value(const std::string& name, Instruction& made) {
    if (const auto found = parameters_.find(name); found != parameters_.end()) {
      made.offset += found->second;
      return kParameters;
    }
    if (const auto found = shared_.find(name); found != shared_.end()) {
      return constant(found->second);
    }
    if (const auto found = locals_.find(name); found != locals_.end()) {
      made.offset += found->second;
      return kLocals;
    }
    const char first = name[0];
    if (first == '-' || std::isdigit(static_cast<unsigned char>(first)) != 0) {
      return constant(literal(name));
    }
    return slot(name);
  }

  std::uint64_t literal(const std::string& name) {
    const bool real = name.size() > 2 && name[0] == '0' &&
                      (name[1] == 'f' || name[1] == 'd' || name[1] == 'F' || name[1] == 'D');
    const bool negative = name[0] == '-';
    const bool hexadecimal = real || name.starts_with("0x");
    std::uint64_t bits = 0;
    const char* const start = name.data() + (hexadecimal ? 2 : negative ? 1 : 0);
    const char* end = name.data() + name.size();
    if (end[-1] == 'U') --end;
    if (std::from_chars(start, end, bits, hexadecimal ? 16 : 10).ptr != end) {
      fail("unknown operand " + name);
    }
    return negative ? 0 - bits : bits;
  }

  std::int32_t constant(std::uint64_t value) {
    const auto [found, is_new] =
        constants_.try_emplace(value, static_cast<std::int32_t>(made_->constants.size()));
    if (is_new) made_->constants.push_back(value);
    return ~found->second;
  }

  /// Registers are numbered as they turn up.
  std::int32_t slot(std::string_view name) {
    const auto [found, is_new] = slots_.try_emplace(std::string(name), made_->slots);
    if (is_new) {
      // Registers, and the names that inline assembly gives to those it throws away.
      const bool numbered = name[0] == '%' && std::isdigit(static_cast<unsigned char>(name.back()));
      if (!numbered && name != "tmp" && name != "%tmp" && name != "_")
        fail("unknown operand " + std::string(name));
      ++made_->slots;
    }
    return static_cast<std::int32_t>(found->second);
  }

  Module module_;
  std::unordered_map<std::string, std::uint32_t> function_numbers_;
  std::unordered_map<std::string, std::uint32_t> shared_;
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> calls_;

  // Of the function that is read.
  Function* made_ = nullptr;
  std::unordered_map<std::string, std::uint32_t> parameters_;
  std::unordered_map<std::string, std::uint32_t> locals_;
  std::unordered_map<std::string, std::uint32_t> slots_;
  std::unordered_map<std::uint64_t, std::int32_t> constants_;
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
  bool clock_ = false;
};

}  // namespace

Module parse(std::string_view text) { return Parser(text).module(); }

const Function& Module::function(std::string_view part) const {
  const Function* found = nullptr;
  for (const Function& each : functions) {
    if (each.name.find(part) == std::string::npos) continue;
    if (found != nullptr) throw std::runtime_error("several functions named " + std::string(part));
    found = &each;
  }
  if (found == nullptr) throw std::runtime_error("no function named " + std::string(part));
  return *found;
}

}  // namespace gradwire::ptx
