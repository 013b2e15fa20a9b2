// SPDX-License-Identifier: BSD-3-Clause
// Encoding and decoding joined with folds, sums, stores and residuals: the bits of the steps taken
// one by one.
#include <catch2/catch.hpp>

#include "format_checks.h"
#include "support/seed.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

constexpr std::size_t kJoinedCounts[] = {0, 1, 31, 255, 256, 257, 1279, 1280, 1281, 2600};

/// fp32 arithmetic as fp64's, rounded once.
float sum_of(float a, float b) {
  return static_cast<float>(static_cast<double>(a) + static_cast<double>(b));
}

/// Hard numbers; in half of the cases sums stay finite, so that more than NaN is seen.
Floats draw_member(std::size_t count, bool tame, std::mt19937_64& random) {
  if (!tame) return draw_values(count, random);
  Floats values(count);
  for (float& value : values) value = draw_value(Draw::kNear, 120 + random() % 20, random);
  return values;
}

std::vector<BytesIn> spans_of(const std::vector<Placed>& arrays) {
  std::vector<BytesIn> spans;
  for (const Placed& array : arrays) spans.push_back(array.bytes());
  return spans;
}

struct PartCase {
  WireFormat format;
  DataType type;
  std::size_t count;
  std::size_t members;
  bool takes_residual;
  bool in_place;
};

void check_part(const FormatCodec& codec, const PartCase& c, std::mt19937_64& random) {
  const bool tame = random() % 2 == 0;
  std::vector<Placed> members;
  Floats x;
  for (std::size_t m = 0; m < c.members; ++m) {
    const Bytes bytes = stored_as(c.type, draw_member(c.count, tame, random));
    members.emplace_back(bytes, random() % 32);
    const Floats wide = loaded_from(c.type, bytes);
    if (m == 0) x = wide;
    for (std::size_t i = 0; m > 0 && i < c.count; ++i) x[i] = sum_of(x[i], wide[i]);
  }
  const Floats before = draw_member(c.count, tame, random);
  const Placed residual_in(stored_as(DataType::kFloat32, before), random() % 32);
  for (std::size_t i = 0; c.takes_residual && i < c.count; ++i) x[i] = sum_of(x[i], before[i]);
  const Bytes wire = test::encode(c.format, x);
  const Floats decoded = test::decode(c.format, wire, c.count);
  Floats lost(c.count);
  for (std::size_t i = 0; i < c.count; ++i) lost[i] = residual(x[i], decoded[i]);

  Placed out(wire.size(), random() % 32);
  Placed stored(c.count * element_bytes(c.type), random() % 32);
  Placed residual_out(c.count * 4, random() % 32);
  Placed& target = c.in_place ? members[0] : stored;
  FormatPart part;
  part.format = c.format;
  part.datatype = c.type;
  const std::vector<BytesIn> spans = spans_of(members);
  part.members = spans;
  part.wire = out.bytes();
  part.stored = target.bytes();
  part.residual_out = residual_out.bytes();
  if (c.takes_residual) part.residual_in = residual_in.bytes();
  INFO(codec.name() << " " << name_of(c.format) << " of " << name_of(c.type) << ", " << c.count
                    << " elements of " << c.members << " members, residual " << c.takes_residual
                    << ", in place " << c.in_place);
  REQUIRE(codec.make_part(part));
  CHECK(difference(out.content(), wire) == "");
  CHECK(difference(target.content(), stored_as(c.type, decoded)) == "");
  CHECK(difference(residual_out.content(), stored_as(DataType::kFloat32, lost)) == "");
  CHECK((out.is_framed() && target.is_framed() && residual_out.is_framed()));
}

TEST_CASE("a part is the members' fold and the residual, encoded, and what that decodes to") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const FormatCodec& codec : codecs()) {
    for (const auto& [format, type] : kTravels) {
      for (const std::size_t count : kJoinedCounts) {
        for (const std::size_t members : {1u, 2u, 3u, 8u}) {
          for (const bool takes_residual : {false, true}) {
            const bool in_place = random() % 2 == 0;
            check_part(codec, {format, type, count, members, takes_residual, in_place}, random);
          }
        }
      }
    }
  }
}

struct ResultCase {
  WireFormat format;
  DataType type;
  std::size_t count;
  std::size_t parts;
  std::uint32_t divisor;
  bool begins_with_sum;
  bool travels;
  bool in_place;
};

void check_result(const FormatCodec& codec, const ResultCase& c, std::mt19937_64& random) {
  const bool tame = random() % 2 == 0;
  std::vector<Placed> parts;
  Floats x;
  Placed sum(stored_as(DataType::kFloat32, draw_member(c.count, tame, random)), random() % 32);
  if (c.begins_with_sum) x = loaded_from(DataType::kFloat32, sum.content());
  for (std::size_t p = 0; p < c.parts; ++p) {
    const Bytes wire = test::encode(c.format, draw_member(c.count, tame, random));
    parts.emplace_back(wire, random() % 32);
    const Floats decoded = test::decode(c.format, wire, c.count);
    if (x.empty())
      x = decoded;
    else
      for (std::size_t i = 0; i < c.count; ++i) x[i] = sum_of(x[i], decoded[i]);
  }
  for (float& value : x) {
    if (c.divisor != 1) {
      value = static_cast<float>(static_cast<double>(value) / static_cast<double>(c.divisor));
    }
    value = canonical(value);
  }
  const Bytes wire = test::encode(c.format, x);
  const Floats decoded = test::decode(c.format, wire, c.count);

  Placed out(wire.size(), random() % 32);
  Placed stored(c.count * element_bytes(c.type), random() % 32);
  Placed& target = c.in_place ? sum : stored;
  FormatResult result;
  result.format = c.format;
  result.datatype = c.type;
  result.count = c.count;
  result.divisor = c.divisor;
  if (c.begins_with_sum) result.sum = sum.bytes();
  const std::vector<BytesIn> spans = spans_of(parts);
  result.parts = spans;
  if (c.travels) result.wire = out.bytes();
  result.stored = target.bytes();
  INFO(codec.name() << " " << name_of(c.format) << " of " << name_of(c.type) << ", " << c.count
                    << " elements of " << c.parts << " parts over " << c.divisor << ", sum "
                    << c.begins_with_sum << ", travels " << c.travels << ", in place "
                    << c.in_place);
  REQUIRE(codec.make_result(result));
  if (c.travels) CHECK(difference(out.content(), wire) == "");
  CHECK(difference(target.content(), stored_as(c.type, c.travels ? decoded : x)) == "");
  CHECK((out.is_framed() && target.is_framed()));
}

TEST_CASE("a result is the parts' sum, divided once, and what its encoding decodes to") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const FormatCodec& codec : codecs()) {
    for (const auto& [format, type] : kTravels) {
      for (const std::size_t count : kJoinedCounts) {
        for (const std::size_t parts : {0u, 1u, 2u, 7u}) {
          for (const bool travels : {false, true}) {
            const bool begins_with_sum = parts == 0 || random() % 2 == 0;
            const bool in_place =
                begins_with_sum && type == DataType::kFloat32 && random() % 2 == 0;
            const auto divisor =
                random() % 2 == 0 ? 1 : static_cast<std::uint32_t>(random() % 65535 + 1);
            check_result(codec,
                         {format, type, count, parts, divisor, begins_with_sum, travels, in_place},
                         random);
          }
        }
      }
    }
  }
}

TEST_CASE("parts added one by one come to the bits of all at once") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const FormatCodec& codec : codecs()) {
    for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
      for (const std::size_t count : kCounts) {
        Floats x = draw_member(count, count % 2 == 0, random);
        Placed sum(stored_as(DataType::kFloat32, x), random() % 32);
        for (int p = 0; p < 3; ++p) {
          const Bytes bytes = test::encode(format, draw_member(count, count % 2 == 0, random));
          const Placed wire(bytes, random() % 32);
          const Floats decoded = test::decode(format, bytes, count);
          for (std::size_t i = 0; i < count; ++i) x[i] = canonical(sum_of(x[i], decoded[i]));
          REQUIRE(codec.add_decoded(format, wire.bytes(), sum.bytes()));
        }
        INFO(codec.name() << " " << name_of(format) << " " << count);
        CHECK(difference(sum.content(), stored_as(DataType::kFloat32, x)) == "");
        CHECK(sum.is_framed());
      }
    }
  }
}

TEST_CASE("an infinity leaves no residual, and the next part is as if it had not been") {
  for (const FormatCodec& codec : codecs()) {
    for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
      Floats values(40, 1.5f);
      values[3] = float_of(0x7f800000);
      values[4] = float_of(0x7f7fffff);
      const Bytes bytes = stored_as(DataType::kFloat32, values);
      const BytesIn member = bytes;
      Bytes wire(wire_bytes(format, DataType::kFloat32, values.size()));
      Bytes lost(bytes.size(), std::byte{1});
      FormatPart part;
      part.format = format;
      part.members = {&member, 1};
      part.wire = wire;
      part.residual_out = lost;
      REQUIRE(codec.make_part(part));
      CHECK(difference(lost, Bytes(lost.size())) == "");
    }
  }
}

TEST_CASE("parts and results whose lengths do not fit are refused, and nothing is written") {
  const FormatCodec codec;
  Bytes array(300 * 4);
  Bytes wire(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 300), std::byte{9});
  Bytes other(array.size(), std::byte{9});
  const Bytes untouched_wire = wire;
  const Bytes untouched = other;
  const std::array<BytesIn, 2> members = {array, array};
  FormatPart part;
  part.format = WireFormat::kInt8;
  part.members = members;
  part.wire = wire;
  const auto refuses = [&](auto change) {
    FormatPart wrong = part;
    change(wrong);
    return !codec.make_part(wrong) && wire == untouched_wire && other == untouched;
  };
  const std::array<BytesIn, 2> shorter = {array, BytesIn(array).first(299 * 4)};
  CHECK(refuses([](FormatPart& p) { p.members = {}; }));
  CHECK(refuses([&](FormatPart& p) { p.members = shorter; }));
  CHECK(refuses([](FormatPart& p) { p.format = WireFormat::kSame; }));
  CHECK(refuses([](FormatPart& p) { p.datatype = DataType::kFloat16; }));
  CHECK(refuses([&](FormatPart& p) { p.wire = p.wire.first(wire.size() - 1); }));
  CHECK(refuses([&](FormatPart& p) { p.stored = BytesOut(other).first(299 * 4); }));
  CHECK(refuses([&](FormatPart& p) { p.residual_in = BytesIn(other).first(300 * 2); }));
  CHECK(refuses([&](FormatPart& p) { p.residual_out = BytesOut(other).first(299 * 4); }));
  CHECK(codec.make_part(part));

  const std::array<BytesIn, 2> parts = {wire, wire};
  Bytes target(wire.size(), std::byte{9});
  FormatResult result;
  result.format = WireFormat::kInt8;
  result.count = 300;
  result.parts = parts;
  result.stored = other;
  const auto refuses_result = [&](auto change) {
    FormatResult wrong = result;
    change(wrong);
    return !codec.make_result(wrong) && other == untouched &&
           target == Bytes(target.size(), std::byte{9});
  };
  const std::array<BytesIn, 2> odd = {wire, BytesIn(wire).first(wire.size() - 1)};
  CHECK(refuses_result([](FormatResult& r) { r.parts = {}; }));
  CHECK(refuses_result([&](FormatResult& r) { r.parts = odd; }));
  CHECK(refuses_result([](FormatResult& r) { r.divisor = 0; }));
  CHECK(refuses_result([](FormatResult& r) { r.divisor = kMaxProcesses + 1; }));
  CHECK(refuses_result([](FormatResult& r) { r.count = 299; }));
  CHECK(refuses_result([](FormatResult& r) { r.count = ~std::size_t{0}; }));
  CHECK(refuses_result([&](FormatResult& r) { r.sum = BytesIn(array).first(299 * 4); }));
  CHECK(
      refuses_result([&](FormatResult& r) { r.wire = BytesOut(target).first(target.size() - 1); }));
  CHECK(codec.make_result(result));
}

}  // namespace
