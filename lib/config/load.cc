// SPDX-License-Identifier: BSD-3-Clause
#include "config/load.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "base/defaults.h"
#include "config/check.h"
#include "config/keys.h"
#include "config/nearest.h"
#include "config/value.h"

namespace gradwire::config {
namespace {

std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& typed) { out << typed; });
  return out.str();
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : fmt::format(": did you mean \"{}\"?", near);
}

std::vector<std::string> section_names() {
  std::vector<std::string> out;
  for (const Key& key : keys()) {
    if (out.empty() || out.back() != key.section) out.emplace_back(key.section);
  }
  return out;
}

std::vector<std::string> key_names(std::string_view section) {
  std::vector<std::string> out;
  for (const Key& key : keys()) {
    if (section == key.section) out.emplace_back(key.name);
  }
  return out;
}

/// "section.key" or, in an array section, "section.N.key".
std::string path_of(std::string_view section, std::size_t index, std::string_view name) {
  return is_array_section(section) ? fmt::format("{}.{}.{}", section, index, name)
                                   : fmt::format("{}.{}", section, name);
}

/// Whether a file with this value can be read. A flag need not be UTF-8, but a printed
/// configuration must be readable again.
bool can_be_written(const std::string& toml_value) {
  try {
    return !toml::parse("value = " + toml_value).empty();
  } catch (const toml::parse_error&) {
    return false;
  }
}

class Loader {
 public:
  explicit Loader(std::string_view file_name) : file_name_(file_name) {}

  void take_file(std::string_view toml_text);
  void take_flag(const Override& flag);
  [[nodiscard]] Result<DaemonConfig> finish();

 private:
  struct Mistake {
    std::uint32_t line;
    std::string message;
  };
  /// Where a value came from, and how it was written there.
  struct Origin {
    std::uint32_t line = 0;  ///< 0: a flag
    std::string place;
    std::string text;
  };

  void take_section(std::string_view section, const toml::node& node);
  void take_element(std::string_view section, std::size_t index, const toml::table& table);
  void take_key(std::string_view section, std::size_t index, std::string_view name,
                const toml::node& node);
  void store(const Key& key, std::size_t index, const Value& value, Origin origin);
  void check_required();
  [[nodiscard]] std::size_t elements(std::string_view section) const {
    return elements_in(config_, section);
  }
  [[nodiscard]] std::string place_of_line(std::uint32_t line) const {
    return fmt::format("{}:{}", file_name_, line);
  }
  void mistake(std::uint32_t line, std::string message) {
    mistakes_.push_back({line, std::move(message)});
  }

  std::string file_name_;
  DaemonConfig config_;
  std::map<std::string, Origin> origins_;  ///< by path
  std::map<std::string, std::uint32_t> element_lines_;
  std::vector<Mistake> mistakes_;
};

void Loader::take_file(std::string_view toml_text) {
  toml::table root;
  try {
    root = toml::parse(toml_text, file_name_);
  } catch (const toml::parse_error& error) {
    const std::uint32_t line = error.source().begin.line;
    mistake(line, fmt::format("{}: not TOML: {}", place_of_line(line), error.description()));
    return;
  }
  for (const auto& [name, node] : root) take_section(name.str(), node);
}

void Loader::take_section(std::string_view section, const toml::node& node) {
  const std::uint32_t line = node.source().begin.line;
  if (!is_section(section)) {
    mistake(line, fmt::format("{}: unknown section \"{}\"{}", place_of_line(line), section,
                              did_you_mean(section, section_names())));
    return;
  }
  if (!is_array_section(section)) {
    if (const auto* table = node.as_table()) {
      take_element(section, 0, *table);
    } else {
      mistake(line,
              fmt::format("{}: {} = {}: {} is a section, not a key: write [{}] above its keys",
                          place_of_line(line), section, text_of(node), section, section));
    }
    return;
  }
  const auto* const array = node.as_array();
  if (array == nullptr || !array->is_array_of_tables()) {
    mistake(line, fmt::format("{}: there can be several sections {}: write [[{}]] above its keys",
                              place_of_line(line), section, section));
    return;
  }
  if (array->size() > max_elements(section)) {
    mistake(line, fmt::format("{}: there are {} [[{}]] sections: at most {} are allowed",
                              place_of_line(line), array->size(), section, max_elements(section)));
    return;
  }
  for (std::size_t i = 0; i < array->size(); ++i) {
    take_element(section, i, *array->get(i)->as_table());
  }
}

void Loader::take_element(std::string_view section, std::size_t index, const toml::table& table) {
  resize_at_least(config_, section, index + 1);
  element_lines_[path_of(section, index, "")] = table.source().begin.line;
  for (const auto& [name, node] : table) take_key(section, index, name.str(), node);
}

void Loader::take_key(std::string_view section, std::size_t index, std::string_view name,
                      const toml::node& node) {
  const std::uint32_t line = node.source().begin.line;
  const Key* const key = find_key(section, name);
  if (key == nullptr) {
    mistake(line, fmt::format("{}: unknown key \"{}\" in [{}]{}", place_of_line(line), name,
                              section, did_you_mean(name, key_names(section))));
    return;
  }
  const Origin origin{line, place_of_line(line), text_of(node)};
  if (const auto* text = node.as_string()) {
    store(*key, index, text->get(), origin);
  } else if (const auto* whole = node.as_integer()) {
    store(*key, index, whole->get(), origin);
  } else if (const auto* real = node.as_floating_point()) {
    store(*key, index, real->get(), origin);
  } else if (const auto* boolean = node.as_boolean()) {
    store(*key, index, boolean->get(), origin);
  } else {
    mistake(line, fmt::format("{}: {} = {}: must be {}", origin.place,
                              path_of(section, index, name), origin.text, describe_bounds(*key)));
  }
}

void Loader::take_flag(const Override& flag) {
  const std::string place = "--" + flag.name;
  const std::size_t first = flag.name.find('.');
  const std::size_t last = flag.name.rfind('.');
  const std::string section = flag.name.substr(0, first);
  if (first == std::string::npos || !is_section(section)) {
    mistake(0, fmt::format("{}: unknown section \"{}\"{}", place, section,
                           did_you_mean(section, section_names())));
    return;
  }
  const std::string name = flag.name.substr(last + 1);
  const Key* const key = find_key(section, name);
  if (key == nullptr) {
    mistake(0, fmt::format("{}: unknown key \"{}\" in [{}]{}", place, name, section,
                           did_you_mean(name, key_names(section))));
    return;
  }
  std::size_t index = 0;
  if (first != last) {
    const std::string digits = flag.name.substr(first + 1, last - first - 1);
    const char* const end = digits.data() + digits.size();
    const auto [parsed, error] = std::from_chars(digits.data(), end, index);
    // Only the element after the last one may be added, so that there are no gaps.
    if (!is_array_section(section) || error != std::errc{} || parsed != end ||
        index > elements(section) || index >= max_elements(section)) {
      mistake(
          0,
          fmt::format(
              "{}: \"{}\" is not the number of a [[{}]] section: there are {}, and the first is 0",
              place, digits, section, elements(section)));
      return;
    }
  }
  resize_at_least(config_, section, index + 1);
  store(*key, index, value_of_flag(*key, flag.value), Origin{0, place, flag.value});
}

void Loader::store(const Key& key, std::size_t index, const Value& value, Origin origin) {
  const std::string path = path_of(key.section, index, key.name);
  if (const auto wrong = assign(key, key.field(config_, index), value)) {
    // A flag's name says the key already, but the message should not depend on how it was given.
    mistake(origin.line, fmt::format("{}: {} = {}: {}", origin.place, path, origin.text, *wrong));
  } else if (key.kind == Kind::kText &&
             !can_be_written(to_toml_value(key, key.field(config_, index)))) {
    mistake(origin.line, fmt::format("{}: {}: must be text in UTF-8, as a file would hold it",
                                     origin.place, path));
  }
  origins_[path] = std::move(origin);
}

void Loader::check_required() {
  if (config_.ports.empty()) {
    mistake(0, fmt::format("{}: there is no [[port]] section: the daemon needs a port with "
                           "\"device\" and \"ip\" (flags: --port.device, --port.ip)",
                           file_name_));
  }
  for (const Key& key : keys()) {
    if (!key.required) continue;
    for (std::size_t i = 0; i < elements(key.section); ++i) {
      if (origins_.contains(path_of(key.section, i, key.name))) continue;
      const auto element = element_lines_.find(path_of(key.section, i, ""));
      const std::uint32_t line = element == element_lines_.end() ? 0 : element->second;
      mistake(line, fmt::format("{}: {} is missing: must be {}",
                                line == 0 ? file_name_ : place_of_line(line),
                                path_of(key.section, i, key.name), describe_bounds(key)));
    }
  }
}

Result<DaemonConfig> Loader::finish() {
  // Otherwise a value that could not be read would be reported as missing.
  if (mistakes_.empty()) check_required();
  const bool own_cores = config_.lanes.polling == "busy" && config_.daemon.require_isolated;
  config_.timeouts.silence_ms = config_.timeouts.silence(own_cores);
  config_.limits.user_clients = config_.limits.clients_of_user();
  config_.limits.user_groups = config_.limits.groups_of_user();
  config_.limits.user_transfer_groups = config_.limits.transfer_groups_of_user();
  if (mistakes_.empty()) {
    for (const Conflict& conflict : find_conflicts(config_)) {
      const auto found = origins_.find(conflict.key);
      const Origin origin = found != origins_.end() ? found->second : Origin{0, file_name_, ""};
      mistake(origin.line,
              fmt::format("{}: {}{}: {}", origin.place, conflict.key,
                          origin.text.empty() ? "" : " = " + origin.text, conflict.message));
    }
  }
  if (mistakes_.empty()) return config_;
  std::stable_sort(mistakes_.begin(), mistakes_.end(),
                   [](const Mistake& a, const Mistake& b) { return a.line < b.line; });
  std::string all;
  for (const Mistake& m : mistakes_) all += (all.empty() ? "" : "\n") + m.message;
  return fail(ErrorCode::kInvalidArgument, all);
}

}  // namespace

Result<DaemonConfig> load(std::string_view toml_text, std::string_view file_name,
                          std::span<const Override> overrides) {
  Loader loader(file_name);
  loader.take_file(toml_text);
  for (const Override& flag : overrides) loader.take_flag(flag);
  return loader.finish();
}

Result<DaemonConfig> load_file(const std::string& path, std::span<const Override> overrides) {
  if (path.empty()) return load("", "command line", overrides);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  // An ifstream opens directories; only reading from one fails.
  if (!in || !(text << in.rdbuf())) {
    if (in && in.peek() == std::ifstream::traits_type::eof() && !in.bad()) {
      return load("", path, overrides);  // an empty file: nothing was inserted, nothing failed
    }
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  return load(text.str(), path, overrides);
}

std::string to_toml(const DaemonConfig& config) {
  DaemonConfig copy = config;  // Field points to what may be changed
  std::string out;
  for (const std::string& section : section_names()) {
    const bool is_array = is_array_section(section);
    const std::size_t count = elements_in(copy, section);
    for (std::size_t i = 0; i < count; ++i) {
      if (!out.empty()) out += "\n";
      out += is_array ? fmt::format("[[{}]]\n", section) : fmt::format("[{}]\n", section);
      for (const Key& key : keys()) {
        if (section != key.section) continue;
        out += fmt::format("{} = {}\n", key.name, to_toml_value(key, key.field(copy, i)));
      }
    }
  }
  return out;
}

}  // namespace gradwire::config
