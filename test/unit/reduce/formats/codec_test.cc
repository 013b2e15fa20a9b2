// SPDX-License-Identifier: BSD-3-Clause
// Encoding and decoding alone: bits, lengths, control of floating point, bounds.
#include "reduce/formats/codec.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/float_environment.h"
#include "format_checks.h"
#include "support/seed.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

/// How many blocks of how many elements differ between a codec and the reference, forth and back.
void check_round_trip(const FormatCodec& codec, WireFormat format, DataType type,
                      const Bytes& values, std::size_t misalignment) {
  const Floats wide = loaded_from(type, values);
  const Placed in(values, misalignment);
  Placed wire(wire_bytes(format, type, wide.size()), misalignment);
  REQUIRE(codec.encode(format, type, in.bytes(), wire.bytes()));
  const Bytes expected = test::encode(format, wide);
  REQUIRE(difference(wire.content(), expected) == "");
  Placed out(values.size(), misalignment);
  REQUIRE(codec.decode(format, type, wire.bytes(), out.bytes()));
  REQUIRE(difference(out.content(), stored_as(type, test::decode(format, expected, wide.size()))) ==
          "");
  REQUIRE((wire.is_framed() && out.is_framed()));
}

TEST_CASE("every instruction set gives the reference's bits, at awkward counts and addresses") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const FormatCodec& codec : codecs()) {
    for (const auto& [format, type] : kTravels) {
      INFO(codec.name() << " " << name_of(format) << " of " << name_of(type));
      for (const std::size_t count : kCounts) {
        INFO("count " << count);
        for (const std::size_t misalignment : {0u, 1u, 2u, 31u}) {
          const Bytes values = stored_as(type, draw_values(count, random));
          check_round_trip(codec, format, type, values, misalignment);
        }
      }
    }
  }
}

TEST_CASE("every instruction set gives the reference's bits on half a million hard numbers") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  for (const FormatCodec& codec : codecs()) {
    std::mt19937_64 random(seed);
    for (const auto& [format, type] : kTravels) {
      INFO(codec.name() << " " << name_of(format) << " of " << name_of(type));
      check_round_trip(codec, format, type, stored_as(type, draw_values(512 * 1024 + 77, random)),
                       3);
    }
  }
}

TEST_CASE("every exponent, with mantissas about every tie of bf16, rounds as the reference says") {
  std::mt19937_64 random(1);
  Floats values;
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu,
                                    static_cast<std::uint32_t>(random() & 0xffff)}) {
      values.push_back(float_of(high << 16 | low));
    }
  }
  for (const FormatCodec& codec : codecs()) {
    INFO(codec.name());
    check_round_trip(codec, WireFormat::kBf16, DataType::kFloat32,
                     stored_as(DataType::kFloat32, values), 0);
  }
}

TEST_CASE("every bf16 value decodes to itself, and alone in its block survives int8") {
  Bytes all(65536 * 2);
  for (std::size_t i = 0; i < 65536; ++i) store_element(all.data(), i, 2, i);
  for (const FormatCodec& codec : codecs()) {
    INFO(codec.name());
    Bytes values(65536 * 4);
    REQUIRE(codec.decode(WireFormat::kBf16, DataType::kFloat32, all, values));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 65536; ++i) wrong += load_element(values.data(), i, 4) != i << 16;
    CHECK(wrong == 0);
    for (std::size_t i = 0; i < 65536; ++i) {
      const Bytes one(all.begin() + static_cast<std::ptrdiff_t>(2 * i),
                      all.begin() + static_cast<std::ptrdiff_t>(2 * i + 2));
      const Floats wide = loaded_from(DataType::kBfloat16, one);
      Bytes wire(5);
      static_cast<void>(codec.encode(WireFormat::kInt8, DataType::kBfloat16, one, wire));
      wrong += wire != test::encode(WireFormat::kInt8, wide);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("any bytes decode by the rule: every element at scales that no encoder makes") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> scales = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x7f800000,
                                       0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x7f7fffff,
                                       0xff7fffff, 0x7c010203, 0x7c010204, 0x00800000, 0xbf800000};
  for (int i = 0; i < 2000; ++i) scales.push_back(static_cast<std::uint32_t>(random()));
  const std::size_t count = scales.size() * kFormatBlock - 3;
  Bytes wire(wire_bytes(WireFormat::kInt8, DataType::kFloat32, count));
  for (std::size_t b = 0; b < scales.size(); ++b) store_element(wire.data(), b, 4, scales[b]);
  for (std::size_t i = 0; i < count; ++i) wire[4 * scales.size() + i] = static_cast<std::byte>(i);
  const Floats expected = test::decode(WireFormat::kInt8, wire, count);
  for (const FormatCodec& codec : codecs()) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      INFO(codec.name() << " " << name_of(type));
      Bytes out(count * element_bytes(type));
      REQUIRE(codec.decode(WireFormat::kInt8, type, wire, out));
      CHECK(difference(out, stored_as(type, expected)) == "");
    }
  }
}

TEST_CASE("lengths that do not fit are refused, and nothing is written") {
  for (const FormatCodec& codec : codecs()) {
    const Bytes values(257 * 4, std::byte{7});
    for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
      const std::size_t right = wire_bytes(format, DataType::kFloat32, 257);
      for (std::size_t bytes = 0; bytes < right + 300; ++bytes) {
        Bytes wire(bytes, std::byte{9});
        CHECK(codec.encode(format, DataType::kFloat32, values, wire) == (bytes == right));
        if (bytes != right) CHECK(difference(wire, Bytes(bytes, std::byte{9})) == "");
        // So many bytes hold at most one number of elements.
        Bytes out(values.size(), std::byte{9});
        CHECK(codec.decode(format, DataType::kFloat32, wire, out) == (bytes == right));
        CHECK(codec.add_decoded(format, wire, out) == (bytes == right));
        if (bytes != right) CHECK(difference(out, Bytes(out.size(), std::byte{9})) == "");
      }
    }
    Bytes wire(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 257));
    CHECK_FALSE(codec.encode(WireFormat::kInt8, DataType::kFloat32,
                             BytesIn(values).first(257 * 4 - 1), wire));
    Bytes bf16(257 * 2);
    CHECK_FALSE(codec.encode(WireFormat::kBf16, DataType::kBfloat16, bf16, bf16));
    CHECK_FALSE(codec.encode(WireFormat::kInt8, DataType::kFloat64, values, wire));
    CHECK_FALSE(codec.encode(WireFormat::kInt8, DataType::kBytes, values, wire));
    Bytes same(values.size());
    CHECK_FALSE(codec.encode(WireFormat::kSame, DataType::kFloat32, values, same));
    CHECK_FALSE(codec.decode(static_cast<WireFormat>(3), DataType::kFloat32, values, same));
    CHECK_FALSE(codec.add_decoded(WireFormat::kSame, values, same));
  }
}

TEST_CASE("bits do not depend on the caller's floating-point control, which comes back") {
#if defined(__x86_64__)
  std::mt19937_64 random(3);
  for (const FormatCodec& codec : codecs()) {
    for (const auto& [format, type] : kTravels) {
      const Bytes values = stored_as(type, draw_values(64 * kFormatBlock + 5, random));
      const std::size_t count = values.size() / element_bytes(type);
      const Bytes expected = test::encode(format, loaded_from(type, values));
      const Floats decoded = test::decode(format, expected, count);
      Floats twice = decoded;
      for (float& value : twice) value = canonical(value + value);
      // FTZ, DAZ; each other rounding; exceptions that are not masked, which would be signals.
      for (const unsigned control : {0x9fc0u, 0x3f80u, 0x5f80u, 0x7f80u, 0x1f80u & ~0x0a80u}) {
        Bytes wire(expected.size());
        Bytes out(values.size());
        Bytes sum = stored_as(DataType::kFloat32, decoded);
        const unsigned saved = _mm_getcsr();
        _mm_setcsr(control);
        const bool ok = codec.encode(format, type, values, wire) &&
                        codec.decode(format, type, wire, out) &&
                        codec.add_decoded(format, wire, sum);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(saved);
        INFO(codec.name() << " " << name_of(format) << " control " << control);
        CHECK(ok);
        CHECK(after == control);
        CHECK(difference(wire, expected) == "");
        CHECK(difference(out, stored_as(type, decoded)) == "");
        CHECK(difference(sum, stored_as(DataType::kFloat32, twice)) == "");
      }
    }
  }
#endif
}

TEST_CASE("an element loses at most half its scale, or half a unit of bf16") {
  std::mt19937_64 random(test_seed());
  const FormatCodec codec;
  std::size_t blocks = 0;
  for (int round = 0; round < 4000; ++round) {
    const Floats values = draw_values(kFormatBlock, random);
    const Bytes bytes = stored_as(DataType::kFloat32, values);
    Bytes wire(260);
    Bytes out(bytes.size());
    REQUIRE(codec.encode(WireFormat::kInt8, DataType::kFloat32, bytes, wire));
    REQUIRE(codec.decode(WireFormat::kInt8, DataType::kFloat32, wire, out));
    const Floats results = loaded_from(DataType::kFloat32, out);
    const auto scale =
        static_cast<double>(float_of(static_cast<std::uint32_t>(load_element(wire.data(), 0, 4))));
    const bool finite =
        std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
    REQUIRE(std::isnan(scale) != finite);
    if (!finite) {
      CHECK(std::all_of(results.begin(), results.end(),
                        [](float value) { return bits_of(value) == kNan; }));
      continue;
    }
    ++blocks;
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(values[i]) - results[i]));
    }
    CHECK(worst <= scale / 2 * (1 + 0x1p-13));
    REQUIRE(codec.encode(WireFormat::kBf16, DataType::kFloat32, bytes, BytesOut(out).first(512)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float result =
          float_of(static_cast<std::uint32_t>(load_element(out.data(), i, 2)) << 16);
      const double size = std::abs(static_cast<double>(values[i]));
      if (size < 0x1p-126 || bits_of(std::abs(values[i])) >= 0x7f7f8000) continue;
      CHECK(std::abs(static_cast<double>(values[i]) - result) <= size * 0x1p-8);
    }
  }
  CHECK(blocks > 1500);
}

}  // namespace
