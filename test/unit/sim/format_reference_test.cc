// SPDX-License-Identifier: BSD-3-Clause
// The reference that judges ops with a wire format, compared with the vectors of
// doc/protocol/formats.md and with sums by hand.
#include "sim/reference/format_reference.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

using namespace gradwire;
using namespace gradwire::sim;

namespace {

using Bits = std::vector<std::uint32_t>;

Bits after(WireFormat format, const Bits& bits) {
  std::vector<float> values;
  for (const std::uint32_t each : bits) values.push_back(std::bit_cast<float>(each));
  round_trip(format, values);
  Bits decoded;
  for (const float value : values) decoded.push_back(std::bit_cast<std::uint32_t>(value));
  return decoded;
}

}  // namespace

TEST_CASE("the reference of formats decodes what the page's vectors do") {
  struct Vector {
    Bits input;
    Bits bf16;
    Bits int8;
  };
  const std::array vectors = {
      Vector{{0x3f800000, 0xbf800000, 0x3f000000},
             {0x3f800000, 0xbf800000, 0x3f000000},
             {0x3f800000, 0xbf800000, 0x3f010204}},
      Vector{{0x42fe0000, 0x3f000000, 0x3fc00000, 0xc0200000},
             {0x42fe0000, 0x3f000000, 0x3fc00000, 0xc0200000},
             {0x42fe0000, 0x00000000, 0x40000000, 0xc0000000}},
      Vector{{0x7f7fffff, 0xff7fffff, 0x7f000000},
             {0x7f800000, 0xff800000, 0x7f000000},
             {0x7f7ffffe, 0xff7ffffe, 0x7f010203}},
      Vector{{0x00000001, 0x807fffff, 0x00400000},
             {0x00000000, 0x80800000, 0x00400000},
             {0x00000000, 0x80800000, 0x00000000}},
      Vector{{0x047e0000, 0x00c00000}, {0x047e0000, 0x00c00000}, {0x047e0000, 0x01000000}},
      Vector{{0x7f800000, 0x3f800000}, {0x7f800000, 0x3f800000}, {0x7fc00000, 0x7fc00000}},
      Vector{{0xffc12345, 0x3f800000, 0x7f800001},
             {0x7fc00000, 0x3f800000, 0x7fc00000},
             {0x7fc00000, 0x7fc00000, 0x7fc00000}},
      Vector{{0x3f808000, 0x3f818000, 0x3f808001, 0x7f7f8000},
             {0x3f800000, 0x3f820000, 0x3f810000, 0x7f800000},
             {0x00000000, 0x00000000, 0x00000000, 0x7f7f8000}}};
  for (const Vector& each : vectors) {
    CHECK(after(WireFormat::kBf16, each.input) == each.bf16);
    CHECK(after(WireFormat::kInt8, each.input) == each.int8);
  }
}

TEST_CASE("a block of the reference has 256 elements, and a scale of its own") {
  std::vector<float> values(258, 1.0f);
  values[0] = 1000.0f;
  round_trip(WireFormat::kInt8, values);
  CHECK(values[0] == 1000.0f);
  CHECK(values[255] == 0.0f);
  CHECK(values[256] == 1.0f);
  CHECK(values[257] == 1.0f);
}

TEST_CASE("the reference encodes each rank's sum once, and an all-reduce's result again") {
  // Of rank 0 two processes: their sum is 3, not encoded before.
  const std::vector<float> a = {1.0f, 0.0f};
  const std::vector<float> b = {2.0f, 1.0f};
  const std::vector<float> c = {127.0f, 1.4f};
  const std::array inputs = {reinterpret_cast<const std::byte*>(a.data()),
                             reinterpret_cast<const std::byte*>(b.data()),
                             reinterpret_cast<const std::byte*>(c.data())};
  const std::array<std::uint16_t, 3> ranks = {0, 0, 1};
  sim::CollectiveCall call{.count = 2, .nranks = 2, .ranks = ranks, .wire = WireFormat::kInt8};
  const auto values_of = [&] {
    const std::vector<std::byte> bytes = collective_results(call, inputs);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  // Rank 0 gives 3 and 42 of 127 of that, rank 1 127 and 1.
  call.collective = Collective::kReduce;
  call.root = 2;
  const float scale = 3.0f / 127.0f;
  CHECK(values_of() == std::vector<float>{127.0f * scale + 127.0f, 42.0f * scale + 1.0f});
  call.collective = Collective::kAllReduce;
  const float of_result = (127.0f * scale + 127.0f) / 127.0f;
  CHECK(values_of() == std::vector<float>{127.0f * of_result, 2.0f * of_result});
}
