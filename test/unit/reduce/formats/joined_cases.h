// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Parts and results of any members, parts, residuals and addresses, and the bits that they must
/// come to, for whatever runs them: a codec, the host's run of the GPU's kernel, its PTX.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "format_checks.h"

namespace gradwire::test {

/// What makes parts, results and decodings.
class FormatRunner {
 public:
  FormatRunner() = default;
  virtual ~FormatRunner() = default;
  FormatRunner(const FormatRunner&) = delete;
  FormatRunner& operator=(const FormatRunner&) = delete;
  [[nodiscard]] virtual const char* name() const = 0;
  [[nodiscard]] virtual bool part(const reduce::FormatPart& part) = 0;
  [[nodiscard]] virtual bool result(const reduce::FormatResult& result) = 0;
  [[nodiscard]] virtual bool decode(WireFormat format, DataType type, reduce::BytesIn wire,
                                    reduce::BytesOut values) = 0;
};

inline constexpr std::size_t kJoinedCounts[] = {0, 1, 31, 255, 256, 257, 1279, 1280, 1281, 2600};

/// fp32 arithmetic as fp64's, rounded once.
inline float sum_of(float a, float b) {
  return static_cast<float>(static_cast<double>(a) + static_cast<double>(b));
}

/// Hard numbers; in half of the cases sums stay finite, so that more than NaN is seen.
inline Floats draw_member(std::size_t count, bool tame, std::mt19937_64& random) {
  if (!tame) return draw_values(count, random);
  Floats values(count);
  for (float& value : values) value = draw_value(Draw::kNear, 120 + random() % 20, random);
  return values;
}

inline std::vector<reduce::BytesIn> spans_of(const std::vector<Placed>& arrays) {
  std::vector<reduce::BytesIn> spans;
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

inline void check_part(FormatRunner& runner, const PartCase& c, std::mt19937_64& random) {
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
  reduce::FormatPart part;
  part.format = c.format;
  part.datatype = c.type;
  const std::vector<reduce::BytesIn> spans = spans_of(members);
  part.members = spans;
  part.wire = out.bytes();
  part.stored = target.bytes();
  part.residual_out = residual_out.bytes();
  if (c.takes_residual) part.residual_in = residual_in.bytes();
  INFO(runner.name() << " " << name_of(c.format) << " of " << name_of(c.type) << ", " << c.count
                     << " elements of " << c.members << " members, residual " << c.takes_residual
                     << ", in place " << c.in_place);
  REQUIRE(runner.part(part));
  CHECK(difference(out.content(), wire) == "");
  CHECK(difference(target.content(), stored_as(c.type, decoded)) == "");
  CHECK(difference(residual_out.content(), stored_as(DataType::kFloat32, lost)) == "");
  CHECK((out.is_framed() && target.is_framed() && residual_out.is_framed()));
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

inline void check_result(FormatRunner& runner, const ResultCase& c, std::mt19937_64& random) {
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
  reduce::FormatResult result;
  result.format = c.format;
  result.datatype = c.type;
  result.count = c.count;
  result.divisor = c.divisor;
  if (c.begins_with_sum) result.sum = sum.bytes();
  const std::vector<reduce::BytesIn> spans = spans_of(parts);
  result.parts = spans;
  if (c.travels) result.wire = out.bytes();
  result.stored = target.bytes();
  INFO(runner.name() << " " << name_of(c.format) << " of " << name_of(c.type) << ", " << c.count
                     << " elements of " << c.parts << " parts over " << c.divisor << ", sum "
                     << c.begins_with_sum << ", travels " << c.travels << ", in place "
                     << c.in_place);
  REQUIRE(runner.result(result));
  if (c.travels) CHECK(difference(out.content(), wire) == "");
  CHECK(difference(target.content(), stored_as(c.type, c.travels ? decoded : x)) == "");
  CHECK((out.is_framed() && target.is_framed()));
}

/// Every format, datatype and number of members, with and without a residual, in and out of place.
inline void check_parts(FormatRunner& runner, std::size_t one_in, std::mt19937_64& random) {
  std::size_t index = 0;
  for (const auto& [format, type] : kTravels) {
    for (const std::size_t count : kJoinedCounts) {
      for (const std::size_t members : {1u, 2u, 3u, 8u}) {
        for (const bool takes_residual : {false, true}) {
          const bool in_place = random() % 2 == 0;
          if (++index % one_in != 0) continue;
          check_part(runner, {format, type, count, members, takes_residual, in_place}, random);
        }
      }
    }
  }
}

/// Every format, datatype and number of parts, that travels and that does not.
inline void check_results(FormatRunner& runner, std::size_t one_in, std::mt19937_64& random) {
  constexpr std::uint32_t kDivisors[] = {1, 1, 2, 3, 64, 65535};
  std::size_t index = 0;
  for (const auto& [format, type] : kTravels) {
    for (const std::size_t count : kJoinedCounts) {
      for (const std::size_t parts : {0u, 1u, 2u, 7u}) {
        for (const bool travels : {false, true}) {
          const bool begins_with_sum = parts == 0 || random() % 2 == 0;
          const bool in_place = begins_with_sum && type == DataType::kFloat32 && random() % 2 == 0;
          const std::uint32_t divisor = kDivisors[random() % std::size(kDivisors)];
          if (++index % one_in != 0) continue;
          check_result(runner,
                       {format, type, count, parts, divisor, begins_with_sum, travels, in_place},
                       random);
        }
      }
    }
  }
}

/// Chunks of any bytes.
inline void check_decodings(FormatRunner& runner, std::mt19937_64& random) {
  constexpr std::uint32_t kScales[] = {0x7f800000, 0xff800000, 0x7fc12345, 0x00000001, 0x80000000};
  for (const auto& [format, type] : kTravels) {
    for (const std::size_t count : kJoinedCounts) {
      Bytes bytes(wire_bytes(format, type, count));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      const std::size_t blocks = (count + kFormatBlock - 1) / kFormatBlock;
      for (std::size_t b = 0; format == WireFormat::kInt8 && b < blocks; ++b) {
        if (b % 2 == 0) store_element(bytes.data(), b, 4, kScales[random() % std::size(kScales)]);
      }
      const Placed wire(bytes, random() % 32);
      Placed values(count * element_bytes(type), random() % 32);
      INFO(runner.name() << " " << name_of(format) << " of " << name_of(type) << " " << count);
      REQUIRE(runner.decode(format, type, wire.bytes(), values.bytes()));
      CHECK(difference(values.content(), stored_as(type, test::decode(format, bytes, count))) ==
            "");
      CHECK(values.is_framed());
    }
  }
}

}  // namespace gradwire::test
