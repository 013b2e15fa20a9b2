// SPDX-License-Identifier: BSD-3-Clause
// gw_round_trip(): what a rank's encoding makes of its input, without a daemon.
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/float_environment.h"
#include "client/gradwire.h"
#include "reduce/formats/codec.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;

std::vector<float> drawn(std::size_t count) {
  std::mt19937 random(7);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t exponent = 100 + static_cast<std::uint32_t>(i / 300 % 60);
    values[i] =
        std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x807fffffu) | exponent << 23);
  }
  return values;
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST_CASE("a round trip is what the codec makes of all values at once, in pieces of any number") {
  for (const std::size_t count : {0u, 1u, 256u, 257u, 4096u, 4097u, 12'345u}) {
    std::vector<float> input = drawn(count);
    for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
      INFO(name_of(format) << " " << count);
      std::vector<std::byte> wire(wire_bytes(format, DataType::kFloat32, count));
      std::vector<float> expected(count);
      std::vector<float> lost(count);
      const FormatCodec codec;
      const BytesIn member = bytes_of(input);
      FormatPart part;
      part.format = format;
      part.members = {&member, 1};
      part.wire = wire;
      part.stored = bytes_of(expected);
      part.residual_out = bytes_of(lost);
      REQUIRE(codec.make_part(part));
      std::vector<float> output(count + 1, 7.0f);
      std::vector<float> residual(count + 1, 7.0f);
      const auto as = static_cast<gw_wire>(format);
      REQUIRE(gw_round_trip(as, GW_FLOAT32, count, input.data(), output.data(), residual.data()) ==
              GW_OK);
      CHECK((output.back() == 7.0f && residual.back() == 7.0f));
      CHECK(std::equal(expected.begin(), expected.end(), output.begin()));
      CHECK(std::equal(lost.begin(), lost.end(), residual.begin()));
      std::vector<float> in_place = input;
      REQUIRE(gw_round_trip(as, GW_FLOAT32, count, in_place.data(), in_place.data(), nullptr) ==
              GW_OK);
      CHECK(in_place == expected);
      std::fill(residual.begin(), residual.end(), 7.0f);
      REQUIRE(gw_round_trip(as, GW_FLOAT32, count, input.data(), nullptr, residual.data()) ==
              GW_OK);
      CHECK(std::equal(lost.begin(), lost.end(), residual.begin()));
    }
  }
}

TEST_CASE("a round trip does not depend on the thread's floating-point control") {
#if defined(__x86_64__)
  std::vector<float> input(300, 0x1.8p-140f);
  input[7] = -0x1p-127f;
  std::vector<float> expected(300);
  REQUIRE(gw_round_trip(GW_WIRE_BF16, GW_FLOAT32, 300, input.data(), expected.data(), nullptr) ==
          GW_OK);
  CHECK(expected[7] == -0x1p-127f);
  std::vector<float> output(300);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(0xffc0);  // FTZ, DAZ, toward zero
  const gw_status status =
      gw_round_trip(GW_WIRE_BF16, GW_FLOAT32, 300, input.data(), output.data(), nullptr);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  CHECK(status == GW_OK);
  CHECK(after == 0xffc0);
  CHECK(std::memcmp(output.data(), expected.data(), 1200) == 0);
#endif
}

TEST_CASE("values that travel as they are lose nothing") {
  std::vector<float> input = drawn(1000);
  std::vector<float> output(1000);
  std::vector<float> residual(1000, 1.0f);
  REQUIRE(gw_round_trip(GW_WIRE_SAME, GW_FLOAT32, 1000, input.data(), output.data(),
                        residual.data()) == GW_OK);
  CHECK(output == input);
  CHECK(residual == std::vector<float>(1000));
}

TEST_CASE("a round trip that cannot be is refused, and the text says why") {
  float values[4] = {};
  const auto refuses = [&](gw_wire wire, gw_datatype type, std::uint64_t count, const void* input,
                           void* output, const std::string& why) {
    const gw_status status = gw_round_trip(wire, type, count, input, output, nullptr);
    CHECK_THAT(gw_last_error(), Catch::Contains(why));
    return status;
  };
  CHECK(refuses(3, GW_FLOAT32, 4, values, values, "wire format 3 is unknown") ==
        GW_INVALID_ARGUMENT);
  CHECK(refuses(-1, GW_FLOAT32, 4, values, values, "wire format -1") == GW_INVALID_ARGUMENT);
  CHECK(refuses(GW_WIRE_INT8, 8, 4, values, values, "datatype 8") == GW_INVALID_ARGUMENT);
  CHECK(refuses(GW_WIRE_BF16, GW_BFLOAT16, 4, values, values,
                "elements of bf16 cannot travel as bf16") == GW_UNSUPPORTED);
  CHECK(refuses(GW_WIRE_INT8, GW_INT32, 4, values, values, "int32 cannot travel as int8") ==
        GW_UNSUPPORTED);
  CHECK(refuses(GW_WIRE_INT8, GW_FLOAT32, 4, nullptr, values, "input is NULL") ==
        GW_INVALID_ARGUMENT);
  CHECK(refuses(GW_WIRE_INT8, GW_FLOAT32, 4, values, nullptr, "output") == GW_INVALID_ARGUMENT);
  CHECK(refuses(GW_WIRE_INT8, GW_FLOAT32, UINT64_MAX / 4, values, values, "count is") ==
        GW_INVALID_ARGUMENT);
}

}  // namespace
