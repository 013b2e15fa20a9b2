// SPDX-License-Identifier: BSD-3-Clause
// What CUDA's kernel of wire formats is made of, run as a warp's threads one after the other.
#include <catch2/catch.hpp>

#include "../formats/joined_cases.h"
#include "reduce/gpu/format_append.h"
#include "reduce/gpu/format_body.h"
#include "support/seed.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

/// Each as a batch of its own, behind one that must not disturb it.
class BodyRunner final : public FormatRunner {
 public:
  [[nodiscard]] const char* name() const override { return "kernel's body"; }
  [[nodiscard]] bool part(const FormatPart& part) override { return run(part); }
  [[nodiscard]] bool result(const FormatResult& result) override { return run(result); }
  [[nodiscard]] bool decode(WireFormat format, DataType type, BytesIn wire,
                            BytesOut values) override {
    FormatBatch batch;
    if (!append_decoding(batch, format, type, wire, values)) return false;
    run_batch(batch);
    return true;
  }

 private:
  bool run(const auto& work) {
    Bytes array(1500 * 4);
    const BytesIn member = array;
    Bytes wire(wire_bytes(WireFormat::kInt8, DataType::kFloat32, 1500));
    FormatPart other;
    other.format = WireFormat::kInt8;
    other.members = {&member, 1};
    other.wire = wire;
    FormatBatch batch;
    if (!append(batch, other) || !append(batch, work) || !append(batch, other)) return false;
    run_batch(batch);
    return true;
  }
  static void run_batch(const FormatBatch& batch) {
    for (std::uint32_t tile = 0; tile < batch.tile_count; ++tile) format_tile(batch, tile);
  }
};

TEST_CASE("the kernel of wire formats gives the codec's bits") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  BodyRunner runner;
  check_parts(runner, 1, random);
  check_results(runner, 1, random);
  check_decodings(runner, random);
}

TEST_CASE("a batch of wire formats takes what it has room for, and lengths that fit") {
  Bytes array(4);
  Bytes wire(5);
  std::vector<BytesIn> members(kMaxMembers, array);
  FormatPart part;
  part.format = WireFormat::kInt8;
  part.members = members;
  part.wire = wire;
  FormatBatch batch;
  for (std::size_t i = 0; i < FormatBatch::kAddresses / (kMaxMembers + kFormatAddresses); ++i) {
    REQUIRE(append(batch, part));
  }
  CHECK_FALSE(append(batch, part));
  part.members = std::span(members).first(1);
  CHECK(append(batch, part));
  part.wire = part.wire.first(4);
  CHECK_FALSE(append(batch, part));
  CHECK_FALSE(
      append_decoding(batch, WireFormat::kInt8, DataType::kFloat32, BytesIn(wire).first(4), array));
  FormatResult result;
  CHECK_FALSE(append(batch, result));
  FormatBatch full;
  part.wire = wire;
  for (std::size_t i = 0; i < FormatBatch::kItems; ++i) REQUIRE(append(full, part));
  CHECK_FALSE(append(full, part));
  CHECK(full.tile_count == FormatBatch::kItems);
}

}  // namespace
