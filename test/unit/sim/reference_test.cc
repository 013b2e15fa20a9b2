// SPDX-License-Identifier: BSD-3-Clause
#include "sim/reference/reference.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>

using namespace gradwire;
using namespace gradwire::sim;

namespace {

std::int32_t value_at(const std::byte* bytes, std::uint64_t i) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes + 4 * i, 4);
  return value;
}

/// Sums into the outputs of every rank what the reference should have summed.
void sum_all(AllReduceCase& op, std::uint16_t nranks, std::uint16_t members, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (std::uint16_t r = 0; r < nranks; ++r) {
      const collective::OpSpec spec = op.spec(r, 1);
      for (std::uint16_t m = 0; m < members; ++m) {
        sum += static_cast<std::uint32_t>(value_at(spec.inputs[m], i));
      }
    }
    for (std::uint16_t r = 0; r < nranks; ++r) {
      const collective::OpSpec spec = op.spec(r, 1);
      for (std::uint16_t m = 0; m < members; ++m) std::memcpy(spec.outputs[m] + 4 * i, &sum, 4);
    }
  }
}

}  // namespace

TEST_CASE("the reference knows right from wrong to the bit") {
  AllReduceCase op(3, 2, {.count = 100, .datatype = DataType::kInt32, .seed = 4});
  CHECK(op.wrong(0) != "");
  sum_all(op, 3, 2, 100);
  for (const std::uint16_t r : {0, 1, 2}) CHECK(op.wrong(r) == "");
  *(op.spec(1, 1).outputs[1] + 77) ^= std::byte{4};
  CHECK(op.wrong(0) == "");
  CHECK(op.wrong(1).find("rank 1 member 1: byte 77 of 400") == 0);
}

TEST_CASE("a write beside an output is seen") {
  AllReduceCase op(2, 1, {.count = 10, .datatype = DataType::kInt32, .seed = 4});
  sum_all(op, 2, 1, 10);
  *(op.spec(0, 1).outputs[0] + 40) = std::byte{1};
  CHECK(op.wrong(0).find("wrote outside") != std::string::npos);
}

TEST_CASE("memory is watched once its op has ended") {
  AllReduceCase op(2, 1, {.count = 10, .datatype = DataType::kInt32, .seed = 4});
  const collective::OpSpec spec = op.spec(0, 1);
  op.retire(0);
  CHECK(op.touched(0) == "");
  *(spec.outputs[0] + 3) = std::byte{1};
  CHECK(op.touched(0).find("rank 0 member 0") == 0);
}

TEST_CASE("in place, an input is its output") {
  AllReduceCase op(2, 1, {.count = 10, .datatype = DataType::kInt8, .in_place = true, .seed = 4});
  const collective::OpSpec spec = op.spec(1, 7);
  CHECK(spec.inputs[0] == spec.outputs[0]);
  CHECK(spec.op_seq == 7);
}
