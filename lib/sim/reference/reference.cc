// SPDX-License-Identifier: BSD-3-Clause
#include "sim/reference/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "sim/random.h"
#include "sim/reference/format_reference.h"
#include "sim/reference/guards.h"

namespace gradwire::sim {
namespace {

void fill(std::vector<std::byte>& bytes, DataType type, Random& random) {
  const std::size_t width = type == DataType::kBytes ? 1 : element_bytes(type);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    if (type == DataType::kFloat32) {
      const auto value = static_cast<float>(random.unit() * 2000 - 1000);
      std::memcpy(&bytes[at], &value, sizeof value);
    } else if (type == DataType::kFloat64) {
      const double value = random.unit() * 2000 - 1000;
      std::memcpy(&bytes[at], &value, sizeof value);
    } else {
      const std::uint64_t value = random.next();
      std::memcpy(&bytes[at], &value, width);
    }
  }
}

/// Of an op with a format: numbers of either datatype that bits of any kind would rarely be, since
/// one infinity or NaN makes a block of `int8` NaN. Some blocks have those, and denormals.
void fill_to_travel(std::vector<std::byte>& bytes, DataType type, Random& random) {
  const std::size_t width = element_bytes(type);
  constexpr std::size_t kAlike = 100;  // elements of about the same size
  double most = 1000;
  for (std::size_t i = 0; i < bytes.size() / width; ++i) {
    if (i % kAlike == 0) most = random.pick({1000.0, 1000.0, 1.0, 1e-3, 1e30, 1e-39});
    auto value = static_cast<float>((random.unit() * 2 - 1) * most);
    if (random.chance(0.0001)) {
      value =
          random.pick({std::numeric_limits<float>::infinity(), -0.0f,
                       std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()});
    }
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t stored = width == sizeof value ? bits : bits >> 16;
    std::memcpy(&bytes[i * width], &stored, width);
  }
}

/// Of a residual that nobody has written, and beside it.
constexpr float kUnwritten = -12345.678f;

std::uint64_t hash_of(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

std::string first_other(const std::vector<std::byte>& bytes, std::byte wanted) {
  const auto other =
      std::find_if(bytes.begin(), bytes.end(), [&](std::byte b) { return b != wanted; });
  if (other == bytes.end()) return {};
  return fmt::format("byte {} of {} is {:#x}", other - bytes.begin(), bytes.size(),
                     static_cast<unsigned>(*other));
}

/// What each process's input is multiplied by, if the op is a premul-sum.
std::vector<double> factors_of(const OpPlan& plan, std::size_t processes) {
  std::vector<double> factors;
  for (std::size_t p = 0; plan.redop == RedOp::kPremulSum && p < processes; ++p) {
    factors.push_back((p % 2 == 0 ? 1.0 : -1.0) / (3.0 + static_cast<double>(p)));
  }
  return factors;
}

std::vector<std::uint16_t> rank_by_rank(std::uint16_t nranks, std::uint16_t members) {
  std::vector<std::uint16_t> ranks;
  for (std::uint16_t rank = 0; rank < nranks; ++rank) ranks.insert(ranks.end(), members, rank);
  return ranks;
}

}  // namespace

OpCase::OpCase(std::uint16_t nranks, std::uint16_t members, const OpPlan& plan)
    : OpCase(nranks, rank_by_rank(nranks, members), plan) {}

OpCase::OpCase(std::uint16_t nranks, std::span<const std::uint16_t> ranks, const OpPlan& plan)
    : ranks_(ranks.begin(), ranks.end()),
      processes_(nranks),
      plan_(plan),
      factors_(factors_of(plan, ranks.size())),
      rank_factors_(nranks),
      call_{.collective = plan.collective,
            .datatype = plan.datatype,
            .redop = plan.redop,
            .count = plan.count,
            .root = plan.root,
            .width = plan.width(),
            .nranks = nranks,
            .ranks = ranks_,
            .factors = factors_,
            .wire = plan.wire},
      buffers_(ranks.size()) {
  for (std::uint32_t process = 0; process < ranks.size(); ++process) {
    processes_[ranks[process]].push_back(process);
    if (!factors_.empty()) rank_factors_[ranks[process]].push_back(factors_[process]);
  }
  Random random(plan.seed);
  std::vector<const std::byte*> inputs;
  for (std::uint32_t process = 0; process < buffers_.size(); ++process) {
    Buffers& each = buffers_[process];
    each.input.resize(input_bytes(call_, process));
    // A call with a format that is not for its datatype is refused, whatever it gives.
    if (plan.wire == WireFormat::kSame || !gradwire::fits(plan.wire, plan.datatype)) {
      fill(each.input, plan.datatype, random);
    } else {
      fill_to_travel(each.input, plan.datatype, random);
    }
    each.input_hash = hash_of(each.input);
    inputs.push_back(each.input.data());
    lay_out(each, process);
  }
  const bool travels = plan.wire != WireFormat::kSame && nranks > 1 && plan.count != 0 &&
                       gradwire::fits(plan.wire, plan.collective, plan.redop, plan.datatype);
  if (plan.feeds_back && travels) lay_out_residuals(inputs);
  expected_ = collective_results(call_, inputs);
}

void OpCase::lay_out_residuals(std::span<const std::byte* const> inputs) {
  Random random(plan_.seed + 1);
  const std::size_t elements = buffers_[0].input.size() / plan_.width();
  added_.resize(processes_.size());
  for (std::vector<float>& values : added_) {
    for (std::size_t i = 0; i < elements; ++i) {
      values.push_back(static_cast<float>((random.unit() * 2 - 1) * 3));
    }
  }
  given_ = added_;
  call_.residuals = added_;
  residuals_.resize(processes_.size());
  auto losses = format_losses(call_, inputs);
  for (std::size_t rank = 0; rank < residuals_.size(); ++rank) {
    residuals_[rank].right = std::move(losses[rank]);
    residuals_[rank].out.assign(elements + 2, kUnwritten);
  }
}

std::string OpCase::wrong_residuals(std::uint16_t rank) const {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  const auto& [out, right] = residuals_[rank];
  if (!std::ranges::equal(given_[rank], added_[rank], {}, bits, bits)) {
    return fmt::format("rank {}: wrote into the residual that is added", rank);
  }
  if (bits(out.front()) != bits(kUnwritten) || bits(out.back()) != bits(kUnwritten)) {
    return fmt::format("rank {}: wrote beside the residual that is left", rank);
  }
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (bits(out[i + 1]) == bits(right[i])) continue;
    return fmt::format("rank {}: residual {} of {} is {:#x}, expected {:#x}", rank, i, right.size(),
                       bits(out[i + 1]), bits(right[i]));
  }
  return {};
}

void OpCase::lay_out(Buffers& each, std::uint32_t process) const {
  const std::size_t out = output_bytes(call_, process);
  const std::size_t bytes = plan_.in_place ? std::max(each.input.size(), out) : out;
  each.memory.assign(bytes + 2 * kGuard, kGuardByte);
  each.input_at = each.output_at = kGuard;
  if (!plan_.in_place) return;
  if (out > each.input.size()) each.input_at += process * each.input.size();
  if (out < each.input.size()) each.output_at += process * out;
  std::copy(each.input.begin(), each.input.end(),
            each.memory.begin() + static_cast<std::ptrdiff_t>(each.input_at));
}

collective::OpSpec OpCase::spec(std::uint16_t rank, std::uint64_t op_seq) {
  collective::OpSpec spec;
  spec.op_seq = op_seq;
  spec.count = plan_.count;
  spec.tag = plan_.tag;
  spec.collective = plan_.collective;
  spec.datatype = plan_.datatype;
  spec.redop = plan_.redop;
  spec.wire = plan_.wire;
  spec.root = plan_.root;
  spec.element_bytes = plan_.element_bytes;
  if (!factors_.empty()) spec.factors = rank_factors_[rank].data();
  if (has_residuals()) {
    spec.residual_in = reinterpret_cast<const std::byte*>(given_[rank].data());
    spec.residual_out = reinterpret_cast<std::byte*>(residuals_[rank].out.data() + 1);
  }
  for (std::size_t member = 0; member < processes_[rank].size(); ++member) {
    const std::uint32_t process = processes_[rank][member];
    Buffers& buffers = buffers_[process];
    if (output_bytes(call_, process) != 0 || plan_.count == 0) {
      spec.outputs[member] = buffers.memory.data() + buffers.output_at;
    }
    if (buffers.input.empty() && plan_.count != 0) continue;
    spec.inputs[member] =
        plan_.in_place ? buffers.memory.data() + buffers.input_at : buffers.input.data();
  }
  return spec;
}

/// Where memory that no output is has changed.
std::string OpCase::changed(const Buffers& each, std::uint32_t process) const {
  if (!plan_.in_place && hash_of(each.input) != each.input_hash) return "wrote into its input";
  const std::size_t out = output_bytes(call_, process);
  for (std::size_t i = 0; i < each.memory.size(); ++i) {
    if (i >= each.output_at && i < each.output_at + out) continue;
    const bool is_input =
        plan_.in_place && i >= each.input_at && i < each.input_at + each.input.size();
    if (each.memory[i] != (is_input ? each.input[i - each.input_at] : kGuardByte)) {
      return fmt::format(
          "wrote outside its output, {} bytes from where that starts",
          static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(each.output_at));
    }
  }
  return {};
}

std::string OpCase::wrong(std::uint16_t rank) const {
  for (std::size_t member = 0; member < processes_[rank].size(); ++member) {
    const std::uint32_t process = processes_[rank][member];
    const Buffers& each = buffers_[process];
    const auto right = output_of(call_, expected_, process);
    const auto start = each.memory.begin() + static_cast<std::ptrdiff_t>(each.output_at);
    const auto [expected, actual] = std::mismatch(right.begin(), right.end(), start);
    if (expected != right.end()) {
      return fmt::format("rank {} member {}: byte {} of {} is {:#x}, expected {:#x}", rank, member,
                         expected - right.begin(), right.size(), static_cast<unsigned>(*actual),
                         static_cast<unsigned>(*expected));
    }
    const std::string other = changed(each, process);
    if (!other.empty()) return fmt::format("rank {} member {}: {}", rank, member, other);
  }
  return has_residuals() ? wrong_residuals(rank) : std::string();
}

void OpCase::retire(std::uint16_t rank) {
  if (has_residuals()) {
    std::ranges::fill(given_[rank], kUnwritten);
    std::ranges::fill(residuals_[rank].out, kUnwritten);
  }
  for (const std::uint32_t process : processes_[rank]) {
    Buffers& buffers = buffers_[process];
    std::fill(buffers.input.begin(), buffers.input.end(), kRetiredByte);
    std::fill(buffers.memory.begin(), buffers.memory.end(), kRetiredByte);
  }
}

std::string OpCase::touched(std::uint16_t rank) const {
  for (std::size_t member = 0; member < processes_[rank].size(); ++member) {
    const Buffers& each = buffers_[processes_[rank][member]];
    for (const auto* bytes : {&each.input, &each.memory}) {
      const std::string found = first_other(*bytes, kRetiredByte);
      if (!found.empty()) return fmt::format("rank {} member {}: {}", rank, member, found);
    }
  }
  if (!has_residuals()) return {};
  for (const auto* values : {&given_[rank], &residuals_[rank].out}) {
    if (std::ranges::any_of(*values, [](float value) { return value != kUnwritten; })) {
      return fmt::format("rank {}: a residual", rank);
    }
  }
  return {};
}

}  // namespace gradwire::sim
