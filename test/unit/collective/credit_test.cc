// SPDX-License-Identifier: BSD-3-Clause
// Who has what of a rank's places, at the limits of the configuration.
#include <catch2/catch.hpp>
#include <deque>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

TEST_CASE("a reduce-scatter of two ranks keeps its early places until the other has posted it") {
  // Lane 1 has the block of rank 1 alone: nothing comes to rank 0 there.
  RingOptions options;
  options.lanes = 2;
  options.shard.eager_packets = 4;
  options.shard.transit_packets = 4;
  constexpr std::size_t kOps = 60;
  std::deque<OpCase> ops;
  for (std::size_t op = 0; op < kOps; ++op) {
    ops.emplace_back(2, 1,
                     sim::OpPlan{.count = 3, .seed = op, .collective = Collective::kReduceScatter});
  }
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::size_t op = 0; op < kOps; ++op) ring.post(0, ops[op].spec(0, op + 1));
  ring.run_for(100'000'000);
  CHECK(ring.drops(wire::Drop::kEagerOverflow) == 0);
  for (std::size_t op = 0; op < kOps; ++op) ring.post(1, ops[op].spec(1, op + 1));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    for (std::size_t op = 0; op < kOps; ++op) {
      REQUIRE(ring.run_until([&] { return ring.done(rank, op + 1) || ring.aborted(rank); }));
      REQUIRE_FALSE(ring.aborted(rank));
      CHECK(ops[op].wrong(rank) == "");
    }
  }
  CHECK(ring.drops(wire::Drop::kEagerOverflow) == 0);
}

TEST_CASE("reduce-scatters that fill all places of the ring wait for no probe") {
  for (const std::uint16_t nranks : {3, 5, 8}) {
    RingOptions options;
    options.nranks = nranks;
    options.shard.window_packets = 64;
    options.shard.transit_packets = 1;
    options.shard.eager_packets = 32;
    OpCase op(nranks, 1, {.count = 64 * 600, .collective = Collective::kReduceScatter});
    RingHarness ring(options);
    REQUIRE(ring.form());
    const TimeNs posted_at = ring.now();
    for (std::uint16_t rank = 0; rank < nranks; ++rank) ring.post(rank, op.spec(rank, 1));
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      REQUIRE(ring.run_until([&] { return ring.done(rank, 1); }));
      CHECK(op.wrong(rank) == "");
    }
    INFO(nranks << " ranks");
    CHECK(ring.counter(&collective::ShardCounters::probes) == 0);
    CHECK(ring.now() - posted_at < 30'000'000);
  }
}
