// SPDX-License-Identifier: BSD-3-Clause
#include "sim/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim/random.h"
#include "sim/ring_reference.h"

namespace gradwire::sim {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};
constexpr std::byte kRetiredByte{0x5c};

void fill(std::vector<std::byte>& bytes, DataType type, Random& random) {
  const std::size_t width = element_bytes(type);
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

std::string first_other(const std::vector<std::byte>& bytes, std::byte wanted) {
  const auto other =
      std::find_if(bytes.begin(), bytes.end(), [&](std::byte b) { return b != wanted; });
  if (other == bytes.end()) return {};
  return fmt::format("byte {} of {} is {:#x}", other - bytes.begin(), bytes.size(),
                     static_cast<unsigned>(*other));
}

}  // namespace

AllReduceCase::AllReduceCase(std::uint16_t nranks, std::uint16_t members, const OpPlan& plan)
    : nranks_(nranks),
      members_(members),
      plan_(plan),
      buffers_(std::size_t{nranks} * members),
      expected_(plan.count * element_bytes(plan.datatype)) {
  Random random(plan.seed);
  for (Buffers& each : buffers_) {
    each.input.resize(expected_.size());
    fill(each.input, plan.datatype, random);
    each.output.assign(expected_.size() + 2 * kGuard, kGuardByte);
    if (plan.in_place)
      std::copy(each.input.begin(), each.input.end(), each.output.begin() + kGuard);
  }
  compute_expected();
}

void AllReduceCase::compute_expected() {
  std::vector<const std::byte*> inputs;
  for (const Buffers& each : buffers_) inputs.push_back(each.input.data());
  ring_all_reduce(plan_.datatype, plan_.redop, inputs, nranks_, members_, plan_.count,
                  expected_.data());
}

collective::OpSpec AllReduceCase::spec(std::uint16_t rank, std::uint64_t op_seq) {
  collective::OpSpec spec;
  spec.op_seq = op_seq;
  spec.count = plan_.count;
  spec.tag = plan_.tag;
  spec.datatype = plan_.datatype;
  spec.redop = plan_.redop;
  for (std::uint16_t member = 0; member < members_; ++member) {
    Buffers& buffers = at(rank, member);
    spec.outputs[member] = buffers.output.data() + kGuard;
    spec.inputs[member] = plan_.in_place ? spec.outputs[member] : buffers.input.data();
  }
  return spec;
}

std::string AllReduceCase::wrong(std::uint16_t rank) const {
  for (std::uint16_t member = 0; member < members_; ++member) {
    const auto& output = at(rank, member).output;
    const auto start = output.begin() + kGuard;
    const auto [expected, actual] = std::mismatch(expected_.begin(), expected_.end(), start);
    if (expected != expected_.end()) {
      return fmt::format("rank {} member {}: byte {} of {} is {:#x}, expected {:#x}", rank, member,
                         expected - expected_.begin(), expected_.size(),
                         static_cast<unsigned>(*actual), static_cast<unsigned>(*expected));
    }
    const auto is_guard = [](std::byte b) { return b == kGuardByte; };
    if (!std::all_of(output.begin(), start, is_guard) ||
        !std::all_of(output.end() - kGuard, output.end(), is_guard)) {
      return fmt::format("rank {} member {}: wrote outside its output", rank, member);
    }
  }
  return {};
}

void AllReduceCase::retire(std::uint16_t rank) {
  for (std::uint16_t member = 0; member < members_; ++member) {
    Buffers& buffers = at(rank, member);
    std::fill(buffers.input.begin(), buffers.input.end(), kRetiredByte);
    std::fill(buffers.output.begin(), buffers.output.end(), kRetiredByte);
  }
}

std::string AllReduceCase::touched(std::uint16_t rank) const {
  for (std::uint16_t member = 0; member < members_; ++member) {
    for (const auto* bytes : {&at(rank, member).input, &at(rank, member).output}) {
      const std::string found = first_other(*bytes, kRetiredByte);
      if (!found.empty()) return fmt::format("rank {} member {}: {}", rank, member, found);
    }
  }
  return {};
}

}  // namespace gradwire::sim
