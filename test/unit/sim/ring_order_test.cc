// SPDX-License-Identifier: BSD-3-Clause
// One order of bits: the hops of a ring as the CPU's backends fold them, the whole op as
// ring_reference.h folds it, and the folds of test/unit/reduce/reference.h, element by element, are
// written apart from each other and agree to the bit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "reduce/backend.h"
#include "reference.h"
#include "sim/reference/ring_reference.h"

using namespace gradwire;
using gradwire::test::awkward_element;
using gradwire::test::expected_fold;
using gradwire::test::load_element;
using gradwire::test::store_element;

namespace {

struct Op {
  DataType type;
  RedOp redop;
  std::uint32_t nranks;
  std::uint32_t members;
  std::uint64_t count;
  std::vector<std::vector<std::byte>> inputs;  ///< by rank and then member

  /// By rank and then member; none if nothing is multiplied.
  [[nodiscard]] std::vector<double> factors(std::size_t first, std::size_t size) const {
    std::vector<double> some;
    for (std::size_t i = first; redop == RedOp::kPremulSum && i < first + size; ++i) {
      some.push_back((i % 2 == 0 ? 1.0 : -1.0) / (static_cast<double>(i) + 3.0));
    }
    return some;
  }
  [[nodiscard]] std::uint32_t width() const { return element_bytes(type); }
  [[nodiscard]] std::size_t bytes() const { return count * width(); }
};

Op random_op(DataType type, RedOp redop, std::uint32_t nranks, std::uint32_t members,
             std::mt19937_64& random) {
  Op op{type, redop, nranks, members, 64 / element_bytes(type) * nranks - 3, {}};
  for (std::uint32_t at = 0; at < nranks * members; ++at) {
    auto& input = op.inputs.emplace_back(op.bytes());
    for (std::uint64_t i = 0; i < op.count; ++i) {
      store_element(input.data(), i, op.width(), awkward_element(type, random));
    }
  }
  return op;
}

/// A rank's members in their order, and then what came from the ranks before it.
std::vector<std::byte> by_elements(const Op& op) {
  std::vector<std::byte> result(op.bytes());
  const std::uint64_t segment = sim::segment_elements(op.count, op.type, op.nranks);
  for (std::uint64_t i = 0; i < op.count; ++i) {
    std::uint64_t packet = 0;
    for (std::uint32_t hop = 0; hop < op.nranks; ++hop) {
      const std::uint64_t rank = (i / segment + hop) % op.nranks;
      std::vector<std::uint64_t> values;
      for (std::uint32_t m = 0; m < op.members; ++m) {
        values.push_back(load_element(op.inputs[rank * op.members + m].data(), i, op.width()));
      }
      if (hop > 0) values.push_back(packet);
      const bool last = hop + 1 == op.nranks;
      const RedOp redop = op.redop == RedOp::kAvg && !last ? RedOp::kSum : op.redop;
      packet = expected_fold(op.type, redop, values, last ? op.nranks * op.members : 1,
                             op.factors(rank * op.members, op.members));
    }
    store_element(result.data(), i, op.width(), packet);
  }
  return result;
}

/// Each segment is a chunk in one packet that goes from rank to rank.
std::vector<std::byte> by_hops(const Op& op, reduce::Backend& backend) {
  std::vector<std::byte> result(op.bytes());
  const std::uint64_t segment = sim::segment_elements(op.count, op.type, op.nranks);
  for (std::uint64_t first = 0; first < op.count; first += segment) {
    const std::uint64_t count = std::min(segment, op.count - first);
    for (std::uint32_t hop = 0; hop < op.nranks; ++hop) {
      const std::uint64_t rank = (first / segment + hop) % op.nranks;
      std::vector<const std::byte*> inputs;
      for (std::uint32_t m = 0; m < op.members; ++m) {
        inputs.push_back(op.inputs[rank * op.members + m].data());
      }
      reduce::Entry entry;
      entry.kind = hop == 0 ? reduce::Kind::kLoad : reduce::Kind::kReduceInPacket;
      entry.datatype = op.type;
      entry.redop = op.redop;
      entry.finalize = hop + 1 == op.nranks;
      entry.member_count = static_cast<std::uint16_t>(op.members);
      entry.count = static_cast<std::uint32_t>(count);
      entry.divisor = op.nranks * op.members;
      entry.packet = result.data() + first * op.width();
      entry.inputs = inputs.data();
      const std::vector<double> factors = op.factors(rank * op.members, op.members);
      entry.factors = factors.data();
      entry.offset_bytes = first * op.width();
      REQUIRE(backend.run(entry));
    }
  }
  return result;
}

std::vector<std::byte> by_reference(const Op& op) {
  std::vector<std::byte> result(op.bytes());
  std::vector<const std::byte*> inputs;
  for (const auto& input : op.inputs) inputs.push_back(input.data());
  sim::ring_all_reduce(op.type, op.redop, inputs, op.nranks, op.members, op.count, result.data(),
                       op.factors(0, inputs.size()));
  return result;
}

}  // namespace

TEST_CASE("members are folded first and other ranks' sum last, by every backend and reference") {
  std::vector<std::unique_ptr<reduce::Backend>> backends;
  for (const auto isa : {reduce::Isa::kScalar, reduce::Isa::kAvx2}) {
    auto backend = reduce::make_cpu_backend(1, isa);
    if (backend != nullptr) backends.push_back(std::move(backend));
  }
  std::mt19937_64 random(16);
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      if (!fits(static_cast<RedOp>(redop), static_cast<DataType>(type))) continue;
      for (const std::uint32_t nranks : {1u, 2u, 3u, 5u}) {
        for (const std::uint32_t members : {1u, 2u, 3u, 4u, 8u}) {
          const Op op = random_op(static_cast<DataType>(type), static_cast<RedOp>(redop), nranks,
                                  members, random);
          INFO(name_of(op.type) << " " << name_of(op.redop) << ", " << nranks << " ranks of "
                                << members);
          const auto expected = by_elements(op);
          REQUIRE(by_reference(op) == expected);
          for (const auto& backend : backends) {
            INFO(backend->name());
            REQUIRE(by_hops(op, *backend) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("two small members of one rank are not lost beside a large sum") {
  // (1 + 1) + 2^24, not (2^24 + 1) + 1: fp32 holds 2^24 + 2, and rounds 2^24 + 1 to 2^24.
  const auto filled = [](float value) {
    std::vector<std::byte> bytes(16 * sizeof value);
    for (std::size_t i = 0; i < 16; ++i) std::memcpy(&bytes[4 * i], &value, sizeof value);
    return bytes;
  };
  const Op op{DataType::kFloat32,
              RedOp::kSum,
              2,
              2,
              16,
              {filled(0x1p24f), filled(0.0f), filled(1.0f), filled(1.0f)}};
  CHECK(by_reference(op) == filled(0x1p24f + 2));
  CHECK(by_elements(op) == filled(0x1p24f + 2));
  CHECK(by_hops(op, *reduce::make_cpu_backend(1)) == filled(0x1p24f + 2));
}
