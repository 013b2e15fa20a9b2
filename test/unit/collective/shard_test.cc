// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shard.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ring_sums.h"
#include "support/forger.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

TEST_CASE("rings of every size sum right to the bit, at awkward counts") {
  for (const std::uint16_t nranks : {1, 2, 3, 4, 5, 8}) {
    for (const std::uint16_t members : {1, 2}) {
      RingOptions options;
      options.nranks = nranks;
      options.members = members;
      INFO("nranks " << nranks << " members " << members);
      Sums sums(options);
      std::uint64_t seed = 1;
      for (const std::uint64_t count : {0, 1, 2, 15, 63, 64, 65, 127, 128, 129, 1000, 5003}) {
        sums.add(count, ++seed);
        sums.add(count, ++seed, DataType::kInt64, RedOp::kMax, false);
      }
      sums.run();
      CHECK(sums.ring.leaked_mbufs() == 0);
    }
  }
}

TEST_CASE("64 ranks form a ring and sum") {
  RingOptions options;
  options.nranks = 64;
  options.pool_mbufs = 640;
  Sums sums(options);
  sums.add(10'001);
  sums.run();
}

TEST_CASE("several lanes share an op") {
  for (const std::uint8_t lanes : {2, 3, 4}) {
    RingOptions options;
    options.nranks = 3;
    options.lanes = lanes;
    Sums sums(options);
    for (const std::uint64_t count : {1, 64, 10'000}) sums.add(count, count);
    sums.run();
  }
}

TEST_CASE("a rank that posts late gets what came early, and others spill meanwhile") {
  RingOptions options;
  options.nranks = 3;
  options.shard.eager_packets = 4;
  RingHarness ring(options);
  REQUIRE(ring.form());
  AllReduceCase big(3, 1, 20'000, DataType::kFloat32, RedOp::kSum, 3, true);
  AllReduceCase small(3, 1, 10, DataType::kFloat32, RedOp::kSum, 4, false);
  for (const std::uint16_t r : {0, 1}) {
    ring.post(r, big.spec(r, 1));
    ring.post(r, small.spec(r, 2));
  }
  ring.run_for(100'000'000);
  CHECK_FALSE(ring.done(0, 1));
  CHECK(ring.counter(&collective::ShardCounters::early_packets) > 0);
  CHECK(ring.drops(wire::Drop::kEagerOverflow) == 0);
  ring.post(2, big.spec(2, 1));
  ring.post(2, small.spec(2, 2));
  for (std::uint16_t r = 0; r < 3; ++r) {
    REQUIRE(ring.run_until([&] { return ring.done(r, 1) && ring.done(r, 2); }));
    CHECK(big.wrong(r) == "");
    CHECK(small.wrong(r) == "");
  }
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("with no room for transit everything spills, and the bits stay the same") {
  RingOptions options;
  options.nranks = 4;
  options.shard.transit_packets = 1;
  options.shard.window_packets = 4;
  options.members = 2;
  Sums sums(options);
  sums.add(30'000);
  sums.run(60'000'000'000);
  CHECK(sums.ring.counter(&collective::ShardCounters::spills) > 100);
  CHECK(sums.ring.leaked_mbufs() == 0);
}

TEST_CASE("an mbuf that a driver still holds is not changed") {
  RingOptions options;
  options.nranks = 3;
  options.driver_holds_ns = 50'000'000;
  options.loss = 0.05;
  Sums sums(options);
  sums.add(20'000);
  sums.run(100'000'000'000);
  CHECK(sums.ring.counter(&collective::ShardCounters::copies) > 0);
  CHECK(sums.ring.leaked_mbufs() == 0);
}

TEST_CASE("ranks that call different things abort, naming both and their values") {
  RingOptions options;
  options.nranks = 2;
  RingHarness ring(options);
  REQUIRE(ring.form());
  AllReduceCase a(2, 1, 100, DataType::kFloat32, RedOp::kSum, 1, true);
  AllReduceCase b(2, 1, 200, DataType::kFloat32, RedOp::kSum, 1, true);
  ring.post(0, a.spec(0, 1));
  ring.post(1, b.spec(1, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1); }));
  for (const std::uint16_t r : {0, 1}) {
    const std::string text = describe(ring.shard(r).reason());
    CHECK(text.find("op 1") != std::string::npos);
    CHECK(text.find("rank 0 called all-reduce sum of 100 fp32") != std::string::npos);
    CHECK(text.find("rank 1 called all-reduce sum of 200 fp32") != std::string::npos);
  }
}

TEST_CASE("ranks that all call different things at once each name a pair, in rank order") {
  RingOptions options;
  options.nranks = 3;
  RingHarness ring(options);
  REQUIRE(ring.form());
  std::vector<AllReduceCase> cases;
  for (std::uint16_t r = 0; r < 3; ++r) {
    cases.emplace_back(3, 1, 1000 + r, DataType::kFloat32, RedOp::kSum, 1, true);
  }
  for (std::uint16_t r = 0; r < 3; ++r) ring.post(r, cases[r].spec(r, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1) && ring.aborted(2); }));
  const char* const pairs[] = {
      "rank 0 called all-reduce sum of 1000 fp32 with tag 99, rank 1 called all-reduce sum of 1001 "
      "fp32 with tag 99",
      "rank 1 called all-reduce sum of 1001 fp32 with tag 99, rank 2 called all-reduce sum of 1002 "
      "fp32 with tag 99",
      "rank 0 called all-reduce sum of 1000 fp32 with tag 99, rank 2 called all-reduce sum of 1002 "
      "fp32 with tag 99"};
  for (std::uint16_t r = 0; r < 3; ++r) {
    const AbortReason& reason = ring.shard(r).reason();
    CHECK(reason.code == AbortCode::kMismatch);
    const std::string detail = reason.detail;
    CAPTURE(r, detail);
    CHECK(std::count(std::begin(pairs), std::end(pairs), detail) == 1);
  }
}

TEST_CASE("an op of no elements waits for the next rank, and is found to differ") {
  RingOptions options;
  options.nranks = 2;
  RingHarness ring(options);
  REQUIRE(ring.form());
  AllReduceCase none(2, 1, 0, DataType::kFloat32, RedOp::kSum, 1, true);
  AllReduceCase some(2, 1, 200, DataType::kFloat32, RedOp::kSum, 1, true);
  ring.post(1, none.spec(1, 1));
  ring.run_for(10'000'000);
  CHECK_FALSE(ring.done(1, 1));
  ring.post(0, some.spec(0, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1); }));
  CHECK(ring.shard(0).reason().code == AbortCode::kMismatch);
}

TEST_CASE("a rank that falls silent is named on every other rank, with op and time") {
  RingOptions options;
  options.nranks = 4;
  options.shard.timeouts.silence_ns = 200'000'000;
  Sums sums(options);
  RingHarness& ring = sums.ring;
  sums.add(200'000);
  sums.post();
  ring.run_for(1'000'000);
  ring.freeze(2);
  const TimeNs frozen_at = ring.now();
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1) && ring.aborted(3); }));
  CHECK(ring.now() - frozen_at < 300'000'000);
  for (const std::uint16_t r : {0, 1, 3}) {
    const AbortReason& reason = ring.shard(r).reason();
    CHECK(reason.code == AbortCode::kSilence);
    CHECK(reason.culprit_rank == 2);
    CHECK(reason.op_seq == 1);
    CHECK(reason.duration_ns >= 200'000'000);
  }
}

TEST_CASE("a pause shorter than the limit aborts nothing") {
  RingOptions options;
  options.nranks = 3;
  options.shard.timeouts.silence_ns = 200'000'000;
  Sums sums(options);
  sums.add(100'000);
  sums.post();
  sums.ring.run_for(500'000);
  sums.ring.freeze(1);
  sums.ring.run_for(100'000'000);
  sums.ring.freeze(1, false);
  sums.finish();
}

TEST_CASE("a link's acknowledgements and data have numbers of one row, however many are lost") {
  RingOptions options;
  options.loss = 0.2;
  options.duplication = 0.05;
  options.jitter_ns = 8'000;
  Sums sums(options);
  RingHarness& ring = sums.ring;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sums.add(5'000, seed, DataType::kFloat32, RedOp::kSum, seed % 2 == 0);
  }
  sums.run();
  // Nothing was acknowledged that was never sent.
  CHECK(ring.drops(wire::Drop::kMalformed) == 0);
  CHECK(ring.shard(0).status(ring.now()).latest_rtt_ns > 0);
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a backend's batch fits, however small the window") {
  collective::ShardConfig config;
  config.batch_entries = 32;
  config.window_packets = config.transit_packets = 4;
  config.eager_packets = 1;
  CHECK(collective::pending_entries_wanted(config) == 32);
  config.window_packets = config.transit_packets = 64;
  CHECK(collective::pending_entries_wanted(config) == 193);
}

TEST_CASE("a configuration out of bounds is refused with its value") {
  collective::ShardConfig config;
  config.nranks = 0;
  auto shard = collective::Shard::create(config, reduce::make_cpu_backend(8));
  REQUIRE_FALSE(shard.has_value());
  CHECK(shard.error().message.find("nranks is 0") != std::string::npos);
  config.nranks = 1;
  config.payload_bytes = 100;
  shard = collective::Shard::create(config, reduce::make_cpu_backend(8));
  REQUIRE_FALSE(shard.has_value());
  CHECK(shard.error().message.find("100 bytes") != std::string::npos);
}
