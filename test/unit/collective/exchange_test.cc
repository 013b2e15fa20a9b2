// SPDX-License-Identifier: BSD-3-Clause
// Two ranks that swap whole inputs: one hop where the ring has two, the same bits.
#include <catch2/catch.hpp>
#include <vector>

#include "collective/shapes/partition.h"
#include "collective/shard.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

void post_all(RingHarness& ring, std::uint16_t rank, std::vector<AllReduceCase>& cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) ring.post(rank, cases[i].spec(rank, i + 1));
}

void check_all(RingHarness& ring, std::vector<AllReduceCase>& cases) {
  for (std::uint16_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO("rank " << r << " op " << i + 1);
      REQUIRE(ring.run_until([&] { return ring.done(r, i + 1) || ring.aborted(r); }));
      REQUIRE_FALSE(ring.aborted(r));
    }
  }
  for (std::uint16_t r = 0; r < 2; ++r) {
    for (auto& each : cases) REQUIRE(each.wrong(r) == "");
  }
}

/// Awkward counts, in place and not, by turns.
std::vector<AllReduceCase> some_cases(DataType datatype, RedOp redop) {
  std::vector<AllReduceCase> cases;
  std::uint64_t seed = 1;
  for (const std::uint64_t count : {0, 1, 15, 63, 64, 65, 127, 129, 1000, 5003}) {
    cases.emplace_back(2, 1, count, datatype, redop, ++seed, count % 2 == 0);
    cases.emplace_back(2, 1, count, datatype, redop, ++seed, count % 2 != 0);
  }
  return cases;
}

/// @return virtual time from the post to the end on both ranks.
TimeNs time_of(std::uint64_t count, std::uint16_t members, std::uint64_t exchange_bytes) {
  RingOptions options;
  options.members = members;
  options.delay_ns = 1'000'000;  // beside which nothing else counts
  options.shard.exchange_bytes = exchange_bytes;
  RingHarness ring(options);
  REQUIRE(ring.form());
  std::vector<AllReduceCase> cases;
  cases.emplace_back(2, members, count, DataType::kInt64, RedOp::kSum, 1, false);
  const TimeNs start = ring.now();
  for (std::uint16_t r = 0; r < 2; ++r) post_all(ring, r, cases);
  check_all(ring, cases);
  return ring.now() - start;
}

}  // namespace

TEST_CASE("an exchange gives the reference's bits, of every datatype and redop") {
  // Those that the simulator's reference has; all of them are in the stories of test/system.
  for (const DataType datatype : {DataType::kFloat32, DataType::kFloat64, DataType::kInt8,
                                  DataType::kInt32, DataType::kInt64}) {
    for (const RedOp redop : {RedOp::kSum, RedOp::kAvg, RedOp::kMin, RedOp::kMax}) {
      INFO(name_of(datatype) << " " << name_of(redop));
      RingOptions options;
      options.lanes = redop == RedOp::kSum ? 1 : 3;
      RingHarness ring(options);
      REQUIRE(ring.form());
      auto cases = some_cases(datatype, redop);
      for (std::uint16_t r = 0; r < 2; ++r) post_all(ring, r, cases);
      check_all(ring, cases);
      CHECK(ring.counter(&collective::ShardCounters::spills) == 0);
      // Three lanes' windows are more than a simulated host's receive descriptors.
      if (options.lanes == 1) CHECK(ring.counter(&collective::ShardCounters::retransmissions) == 0);
      CHECK(ring.leaked_mbufs() == 0);
    }
  }
}

TEST_CASE("an exchange takes one hop, an op above the bound or of two members takes two") {
  CHECK(time_of(128, 1, 1024) < 1'500'000);
  CHECK(time_of(129, 1, 1024) >= 2'000'000);
  CHECK(time_of(128, 1, 0) >= 2'000'000);
  CHECK(time_of(128, 2, 1024) >= 2'000'000);
}

TEST_CASE("what comes in place before its own part has gone waits, and nothing is lost") {
  for (const double slow : {0.0, 0.2}) {
    for (const std::uint8_t lanes : {1, 2}) {
      INFO("backend " << slow << ", lanes " << static_cast<int>(lanes));
      RingOptions options;
      options.slow_backend = slow;
      options.lanes = lanes;
      options.shard.eager_packets = 4;
      RingHarness ring(options);
      REQUIRE(ring.form());
      std::vector<AllReduceCase> cases;
      for (const std::uint64_t count : {5'000, 64, 7, 20'000}) {
        cases.emplace_back(2, 1, count, DataType::kFloat32, RedOp::kSum, count, true);
      }
      post_all(ring, 0, cases);
      ring.run_for(50'000'000);
      CHECK_FALSE(ring.done(0, 1));
      CHECK(ring.counter(&collective::ShardCounters::early_packets) > 0);
      post_all(ring, 1, cases);
      check_all(ring, cases);
      CHECK(ring.leaked_mbufs() == 0);
    }
  }
}

TEST_CASE("in place the packets of a rank that is ahead are kept, not sent again and again") {
  RingOptions options;
  options.payload_bytes = 1408;
  options.delay_ns = 20'000;
  options.shard.window_packets = options.shard.transit_packets = 128;
  options.shard.congestion = transport::CongestionKind::kDctcp;
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::uint64_t op_seq = 1; op_seq <= 8; ++op_seq) {
    AllReduceCase one(2, 1, 131'072, DataType::kFloat32, RedOp::kSum, op_seq, true);
    ring.post(0, one.spec(0, op_seq));
    ring.run_for(300'000);
    ring.post(1, one.spec(1, op_seq));
    REQUIRE(ring.run_until([&] { return ring.done(0, op_seq) && ring.done(1, op_seq); }));
    CHECK(one.wrong(0) == "");
    CHECK(one.wrong(1) == "");
  }
  CHECK(ring.drops(wire::Drop::kEagerOverflow) < 150);
}

TEST_CASE("an exchange through loss, duplicates, corruption and a slow backend keeps its bits") {
  std::uint64_t waited = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    RingOptions options;
    options.seed = seed;
    options.loss = seed % 3 == 0 ? 0.2 : 0.02;
    options.duplication = 0.2;
    options.corruption = 0.02;
    options.jitter_ns = 30'000;
    options.driver_holds_ns = seed % 2 == 0 ? 50'000 : 0;
    options.slow_backend = seed % 4 == 0 ? 0.1 : 0;
    options.lanes = static_cast<std::uint8_t>(1 + seed % 3);
    options.shard.window_packets = seed % 5 == 0 ? 2 : 16;
    options.shard.eager_packets = seed % 7 == 0 ? 1 : 8;
    RingHarness ring(options);
    REQUIRE(ring.form());
    auto cases = some_cases(DataType::kFloat32, RedOp::kAvg);
    post_all(ring, 0, cases);
    ring.run_for(static_cast<TimeNs>(seed % 4) * 1'000'000);
    post_all(ring, 1, cases);
    check_all(ring, cases);
    waited += ring.counter(&collective::ShardCounters::early_packets);
    CHECK(ring.leaked_mbufs() == 0);
  }
  CHECK(waited > 0);
}

TEST_CASE("ranks that exchange at different sizes are not alike") {
  collective::ShardConfig config;
  const std::uint32_t features = collective::features_of(config);
  config.exchange_bytes = 0;
  CHECK(collective::features_of(config) != features);
  CHECK(collective::features_of(config) == (config.eager_packets | collective::kTokenFeature));
}
