// SPDX-License-Identifier: BSD-3-Clause
// Several paths between ranks that are no neighbors on the ring: each cut that is made here lasts.
#include <catch2/catch.hpp>
#include <cstddef>

#include "many_paths.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using paths::kMs;
using paths::kSilence;
using paths::Ops;
using paths::Transfer;
using sim::OpCase;

namespace {

RingOptions rails_of(std::uint16_t nranks) {
  RingOptions options;
  options.nranks = nranks;
  options.rails = 2;
  options.shard.timeouts.silence_ns = kSilence;
  options.shard.timeouts.ping_interval_ns = kSilence / 40;
  return options;
}

}  // namespace

TEST_CASE(
    "direct ops go by another path to a rank off the ring, and by the first when it is back") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = rails_of(kRanks);
  options.shard.direct.op_bytes = 64u << 10;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  const auto away = [&](std::uint16_t rank) {
    return ring.shard(rank).status(ring.now()).peers_on_other_path;
  };
  REQUIRE(ops.run() < kNever);
  ring.cut_rail(0, 2, 0, true);
  REQUIRE(ops.run() < kNever);
  CHECK(away(0) == 1);
  CHECK(away(2) == 1);
  CHECK(away(1) == 0);
  CHECK(ring.counter(&collective::ShardCounters::peer_path_moves) == 2);
  CHECK(ring.counter(&collective::ShardCounters::path_moves) == 0);
  // Now that the path is known to be silent, nothing waits for it.
  CHECK(ops.run() < kMs);
  ring.cut_rail(0, 2, 0, false);
  for (int i = 0; i < 4; ++i) {
    ring.run_for(kSilence / 2);
    REQUIRE(ops.run() < kNever);
  }
  CHECK(away(0) == 0);
  CHECK(away(2) == 0);
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a transfer whose path is cut in its middle goes on by another") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = rails_of(kRanks);
  options.shard.transfers.pairs_max = 16;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Transfer transfer(ring, {0, 2}, 4000 * 256);
  transfer.send();
  transfer.receive();
  const auto came = [&] { return ring.shard(2).counters().pieces_received; };
  REQUIRE(ring.run_until([&] { return came() > 1000; }));
  REQUIRE(ring.transfers_done() == 0);
  ring.cut_rail(0, 2, 0, true);
  REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2; }, 2 * kSilence));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
  CHECK(transfer.is_whole());
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a rank that waits for another one leaves a path that is silent") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = rails_of(kRanks);
  options.shard.timeouts.formation_ns = 20 * kSilence;
  RingHarness ring(options);
  ring.freeze(0);
  REQUIRE_FALSE(ring.form(10 * kMs));
  REQUIRE_FALSE(ring.formed(1));
  REQUIRE(ring.formed(2));
  // Rank 2 listens for rank 1 from now on, which waits for rank 0.
  ring.cut_rail(1, 2, 0, true);
  ring.run_for(5 * kSilence);
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
  ring.freeze(0, false);
  REQUIRE(
      ring.run_until([&] { return ring.formed(0) && ring.formed(1) && ring.formed(3); }, kSilence));
  CHECK(ring.shard(1).counters().path_moves == 1);
  CHECK(ring.leaked_mbufs() == 0);
}

// Off the ring: by the first path it takes longer until an answer comes than until the other path
// is tried, and by that one none comes.
TEST_CASE("a rank off the ring that answers late by one path, and by no other, is not silent") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = rails_of(kRanks);
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.transfers.pairs_max = 16;
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.delay_rail(0, 2, 0, kSilence / 6);
  ring.cut_one_way(2, 0, 1, true);
  const auto aborted = [&] { return ring.aborted(0) || ring.aborted(2); };
  SECTION("a direct op") {
    OpCase op(kRanks, 1, {.count = 100, .seed = 1});
    for (const std::uint16_t rank : {0, 1, 3}) ring.post(rank, op.spec(rank, 1));
    ring.run_until(aborted, 5 * kSilence);
    REQUIRE_FALSE(aborted());
    ring.post(2, op.spec(2, 1));
    REQUIRE(ring.run_until([&] { return ring.done(0, 1) || aborted(); }, 5 * kSilence));
    REQUIRE_FALSE(aborted());
    CHECK(op.wrong(0) == "");
  }
  SECTION("a transfer") {
    Transfer transfer(ring, {0, 2}, 20 * 256);
    transfer.send();
    ring.run_until(aborted, 5 * kSilence);
    REQUIRE_FALSE(aborted());
    transfer.receive();
    REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2 || aborted(); }, 5 * kSilence));
    REQUIRE_FALSE(aborted());
  }
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("what was pulled is not pulled again and again before it can come") {
  RingOptions options = rails_of(2);
  options.rails = 1;
  options.shard.transfers.pairs_max = 4;
  options.shard.sender.max_pto_ns = kSilence / 10;
  options.delay_ns = kSilence / 5;
  RingHarness ring(options);
  REQUIRE(ring.form());
  constexpr std::uint64_t kChunks = 400;
  Transfer transfer(ring, {0, 1}, kChunks * 256);
  transfer.send();
  transfer.receive();
  REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2; }, 50 * kSilence));
  CHECK(transfer.is_whole());
  CHECK(ring.shard(1).counters().pieces_pulled_again < 3 * kChunks / 2);
  CHECK(ring.leaked_mbufs() == 0);
}
