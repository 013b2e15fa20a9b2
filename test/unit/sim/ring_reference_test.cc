// SPDX-License-Identifier: BSD-3-Clause
// The reference that judges the simulator, gradwire-perf and the fake daemon, compared with values
// computed by hand.
#include "sim/reference/ring_reference.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace gradwire;
using namespace gradwire::sim;

namespace {

template <class T>
std::vector<T> reduced(DataType type, RedOp redop, const std::vector<std::vector<T>>& inputs,
                       std::uint32_t nranks, std::uint32_t members) {
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs) {
    pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
  }
  std::vector<T> output(inputs[0].size());
  ring_all_reduce(type, redop, pointers, nranks, members, output.size(),
                  reinterpret_cast<std::byte*>(output.data()));
  return output;
}

}  // namespace

TEST_CASE("a half is its own value, and every float rounds to the nearest half") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      CHECK(float_to_half(value) == 0x7e00);
    } else {
      REQUIRE(float_to_half(value) == half);
    }
  }
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(1.0f + 0x1p-11f) == 0x3c00);            // tie to even, down
  CHECK(float_to_half(1.0f + 3 * 0x1p-11f) == 0x3c02);        // tie to even, up
  CHECK(float_to_half(0x1p-25f) == 0);                        // half of the smallest: to even
  CHECK(float_to_half(std::nextafter(0x1p-25f, 1.0f)) == 1);  // above it
  CHECK(float_to_half(-0.0f) == 0x8000);
}

TEST_CASE("bf16 rounds to nearest even and keeps denormals") {
  CHECK(float_to_bfloat(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  CHECK(float_to_bfloat(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  CHECK(float_to_bfloat(std::bit_cast<float>(0x00010000u)) == 0x0001);
  CHECK(float_to_bfloat(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(float_to_bfloat(std::nanf("1")) == 0x7fc0);
}

TEST_CASE("a segment is summed from the rank of its number on") {
  // Two ranks, 17 floats: segment 0 has 16 elements, segment 1 one. With three ranks and 1, 2^24,
  // -2^24 the order shows: (1 + 2^24) - 2^24 = 0, (2^24 - 2^24) + 1 = 1.
  CHECK(segment_elements(17, DataType::kFloat32, 2) == 16);
  CHECK(segment_elements(1, DataType::kInt8, 64) == 64);
  CHECK(segment_elements(0, DataType::kInt8, 3) == 0);
  const std::vector<std::vector<float>> inputs = {std::vector<float>(48, 1.0f),
                                                  std::vector<float>(48, 0x1p24f),
                                                  std::vector<float>(48, -0x1p24f)};
  const auto sum = reduced<float>(DataType::kFloat32, RedOp::kSum, inputs, 3, 1);
  CHECK(sum[0] == 0.0f);   // 0, 1, 2
  CHECK(sum[16] == 1.0f);  // 1, 2, 0
  CHECK(sum[47] == 1.0f);  // 2, 0, 1: -2^24 + 1 is exact
}

TEST_CASE("16-bit sums round once for each rank, members before that") {
  const std::uint16_t one = 0x3f80;
  const std::uint16_t tiny = 0x3b00;  // 2^-9: half a unit of one's last place is 2^-8
  const std::vector<std::vector<std::uint16_t>> inputs = {{one}, {tiny}, {tiny}, {tiny}};
  // Ranks: 1 + 2^-9 rounds back to 1 each time.
  CHECK(reduced<std::uint16_t>(DataType::kBfloat16, RedOp::kSum, inputs, 4, 1)[0] == one);
  // Members of one rank: 1 + 3 x 2^-9 in fp32 rounds to 1 + 2^-7.
  CHECK(reduced<std::uint16_t>(DataType::kBfloat16, RedOp::kSum, inputs, 1, 4)[0] == 0x3f81);
}

TEST_CASE("integers wrap, their average truncates toward zero") {
  using Bytes = std::vector<std::int8_t>;
  const std::vector<Bytes> inputs = {Bytes{100, -3, -7}, Bytes{100, 0, 0}};
  CHECK(reduced<std::int8_t>(DataType::kInt8, RedOp::kSum, inputs, 2, 1) == Bytes{-56, -3, -7});
  CHECK(reduced<std::int8_t>(DataType::kInt8, RedOp::kAvg, inputs, 2, 1) == Bytes{-28, -1, -3});
}

TEST_CASE("min and max order the zeros and pass NaN on as the canonical one") {
  const float nan = std::bit_cast<float>(0xffc00123u);
  const std::vector<std::vector<float>> inputs = {{0.0f, nan, 2.0f}, {-0.0f, 1.0f, 3.0f}};
  const auto low = reduced<float>(DataType::kFloat32, RedOp::kMin, inputs, 2, 1);
  const auto high = reduced<float>(DataType::kFloat32, RedOp::kMax, inputs, 2, 1);
  CHECK(std::bit_cast<std::uint32_t>(low[0]) == 0x80000000u);
  CHECK(std::bit_cast<std::uint32_t>(high[0]) == 0u);
  CHECK(std::bit_cast<std::uint32_t>(low[1]) == 0x7fc00000u);
  CHECK(low[2] == 2.0f);
  CHECK(high[2] == 3.0f);
}

TEST_CASE("one contribution is copied as it is") {
  const std::vector<std::vector<std::uint16_t>> inputs = {{0xfe01, 0x3c00}};
  CHECK(reduced<std::uint16_t>(DataType::kFloat16, RedOp::kAvg, inputs, 1, 1) == inputs[0]);
}
