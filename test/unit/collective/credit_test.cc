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

TEST_CASE("beside an unfinished reduce-scatter a chunk ahead of its grant is spilled") {
  RingOptions options;
  options.nranks = 3;
  RingHarness ring(options);
  REQUIRE(ring.form());
  OpCase scatter(3, 1, {.count = 4 * 64, .collective = Collective::kReduceScatter});
  OpCase sum(3, 1, {.count = 3 * 64});
  for (std::uint16_t rank = 0; rank < 3; ++rank) ring.post(rank, scatter.spec(rank, 1));
  REQUIRE(ring.run_until([&] {
    return ring.shard(0).status(ring.now()).posted_op_seq == 1 &&
           !ring.shard(0).status(ring.now()).waits_for_posts;
  }));
  ring.freeze(2);
  for (const std::uint16_t rank : {0, 1}) ring.post(rank, sum.spec(rank, 2));
  ring.run_for(5'000'000);
  REQUIRE_FALSE(ring.done(1, 1));
  // Rank 1 has the chunk that starts at rank 0, and rank 2 has not posted its op.
  CHECK(ring.shard(1).counters().spills == 1);
  ring.freeze(2, false);
  ring.post(2, sum.spec(2, 2));
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 2); }));
    CHECK(scatter.wrong(rank) == "");
    CHECK(sum.wrong(rank) == "");
  }
}

TEST_CASE("an op ends with the next rank's word if a late hello-ack brings it") {
  // Rank 0 is done but for the word that rank 1 has posted: its chunk went ahead of that.
  RingOptions options;
  options.nranks = 3;
  OpCase op(3, 1, {.count = 16, .collective = Collective::kBroadcast, .root = 0});
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.post(0, op.spec(0, 1));
  ring.run_for(1'000'000);
  REQUIRE_FALSE(ring.done(0, 1));
  ring.freeze(1);
  collective::Shard& shard = ring.shard(0);
  const collective::ShardConfig& config = shard.config();
  wire::Packet packet;
  packet.common.type = wire::PacketType::kHelloAck;
  packet.common.lane = config.lane;
  packet.common.group_tag = wire::group_tag(config.key);
  packet.common.packet_number = 1;
  packet.common.from_rank = 1;
  packet.common.token = config.downstream.tokens.from;
  packet.hello.key = config.key;
  packet.hello.incarnation = config.downstream.incarnation;
  packet.hello.table_digest = config.table_digest;
  packet.hello.payload_bytes = config.payload_bytes;
  packet.hello.from_rank = 1;
  packet.hello.to_rank = 0;
  packet.hello.nranks = 3;
  packet.hello.lanes = config.lanes;
  packet.hello.posted_op_seq = 1;
  rte_mbuf* frame = rte_pktmbuf_alloc(config.packet_pool);
  REQUIRE(frame != nullptr);
  shard.on_packet(frame, packet, shard.source_of(packet.common, config.downstream.ip), false,
                  ring.now());
  CHECK(shard.status(ring.now()).done_op_seq == 1);
}
