// SPDX-License-Identifier: BSD-3-Clause
// Payloads without a CRC (transport.integrity = "link"): the same sums, and nothing else is left
// out. That a flipped bit gets through is what shows that nobody looks.
#include <catch2/catch.hpp>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

/// Sums through the ring of `options`; @return how many of the results are wrong.
int wrong_results(RingHarness& ring, const RingOptions& options) {
  REQUIRE(ring.form());
  std::vector<AllReduceCase> cases;
  std::uint64_t seed = options.seed;
  for (const std::uint64_t count : {0, 1, 63, 64, 129, 1000, 5003, 20'011}) {
    cases.emplace_back(options.nranks, options.members, count, DataType::kFloat16, RedOp::kSum,
                       ++seed, count % 2 == 0);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::uint16_t r = 0; r < options.nranks; ++r) ring.post(r, cases[i].spec(r, i + 1));
  }
  int wrong = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::uint16_t r = 0; r < options.nranks; ++r) {
      REQUIRE(ring.run_until([&] { return ring.done(r, i + 1) || ring.aborted(r); }));
      REQUIRE_FALSE(ring.aborted(r));
    }
  }
  for (std::uint16_t r = 0; r < options.nranks; ++r) {
    for (auto& one : cases) wrong += one.wrong(r).empty() ? 0 : 1;
  }
  return wrong;
}

RingOptions without_crc(std::uint16_t nranks, std::uint64_t seed) {
  RingOptions options;
  options.nranks = nranks;
  options.seed = seed;
  options.shard.payload_crc = false;
  return options;
}

}  // namespace

TEST_CASE("payloads without a CRC give the same sums under loss, duplicates and reordering") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    RingOptions options = without_crc(static_cast<std::uint16_t>(2 + seed % 3), seed);
    options.members = static_cast<std::uint16_t>(1 + seed % 2);
    options.loss = 0.02;
    options.duplication = 0.1;
    options.jitter_ns = 30'000;
    RingHarness ring(options);
    CHECK(wrong_results(ring, options) == 0);
    CHECK(ring.leaked_mbufs() == 0);
  }
}

TEST_CASE("nobody looks at payloads that carry no CRC, and headers are checked all the same") {
  // A wrong header would end the group: a call that differs, or an op that never ends.
  RingOptions options = without_crc(3, 1);
  options.corruption = 0.2;
  RingHarness ring(options);
  CHECK(wrong_results(ring, options) > 0);
  CHECK(ring.drops(wire::Drop::kPayloadCrc) == 0);
  // With a CRC each of these payloads is dropped, and the sums are right.
  options.shard.payload_crc = true;
  RingHarness checked(options);
  CHECK(wrong_results(checked, options) == 0);
  CHECK(checked.drops(wire::Drop::kPayloadCrc) > 0);
}

TEST_CASE("ranks with and without CRCs of payloads are not alike") {
  collective::ShardConfig config;
  const std::uint32_t with = collective::features_of(config);
  config.payload_crc = false;
  CHECK(collective::features_of(config) == (with | collective::kNoPayloadCrcFeature));
}
