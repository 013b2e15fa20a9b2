// SPDX-License-Identifier: BSD-3-Clause
// Encoding and decoding joined with folds, sums, stores and residuals: the bits of the steps taken
// one by one.
#include <catch2/catch.hpp>

#include "joined_cases.h"
#include "support/seed.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

class CodecRunner final : public FormatRunner {
 public:
  explicit CodecRunner(const FormatCodec& codec) : codec_(codec) {}
  [[nodiscard]] const char* name() const override { return codec_.name(); }
  [[nodiscard]] bool part(const FormatPart& part) override { return codec_.make_part(part); }
  [[nodiscard]] bool result(const FormatResult& result) override {
    return codec_.make_result(result);
  }
  [[nodiscard]] bool decode(WireFormat format, DataType type, BytesIn wire,
                            BytesOut values) override {
    return codec_.decode(format, type, wire, values);
  }

 private:
  const FormatCodec codec_;
};

TEST_CASE("a part is the members' fold and the residual, encoded, and what that decodes to") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const FormatCodec& codec : codecs()) {
    CodecRunner runner(codec);
    check_parts(runner, 1, random);
  }
}

TEST_CASE("a result is the parts' sum, divided once, and what its encoding decodes to") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const FormatCodec& codec : codecs()) {
    CodecRunner runner(codec);
    check_results(runner, 1, random);
    check_decodings(runner, random);
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
