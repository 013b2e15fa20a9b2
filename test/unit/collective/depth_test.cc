// SPDX-License-Identifier: BSD-3-Clause
// Ranks that have posted to different depths, and packets that are late: nothing may hang, crash,
// or keep a core busy that has nothing to do.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "collective/shard.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

/// So many ops with different contents. They come before the ring: a slow backend may still refer
/// to them when it goes.
std::vector<std::unique_ptr<AllReduceCase>> make_ops(std::size_t ops, std::uint16_t nranks,
                                                     std::uint64_t elements) {
  std::vector<std::unique_ptr<AllReduceCase>> all;
  for (std::size_t i = 0; i < ops; ++i) {
    all.push_back(std::make_unique<AllReduceCase>(nranks, 1, elements, DataType::kFloat32,
                                                  RedOp::kSum, i + 3, false));
  }
  return all;
}

}  // namespace

TEST_CASE("a chunk goes again though ops of no elements behind it wait for the next rank") {
  constexpr std::size_t kEmpty = 254;
  RingOptions options;
  options.shard.max_active_ops = 256;
  auto first = make_ops(1, 2, 64);
  const auto empty = make_ops(kEmpty, 2, 0);
  RingHarness ring(options);
  REQUIRE(ring.form());
  // What rank 0 sends is lost, so that rank 0 is done and rank 1 is not.
  ring.set_down(0, 1, true);
  ring.post(1, first[0]->spec(1, 1));
  ring.post(0, first[0]->spec(0, 1));
  REQUIRE(ring.run_until([&] { return ring.done(0, 1); }, 1'000'000'000));
  for (std::size_t i = 0; i < kEmpty; ++i) ring.post(0, empty[i]->spec(0, i + 2));
  ring.run_for(100'000);
  CHECK_FALSE(ring.done(0, 2));
  ring.set_down(0, 1, false);
  REQUIRE(ring.run_until([&] { return ring.done(1, 1) || ring.aborted(0) || ring.aborted(1); }));
  CHECK_FALSE(ring.done(0, 2));
  for (std::size_t i = 0; i < kEmpty; ++i) ring.post(1, empty[i]->spec(1, i + 2));
  for (const std::uint16_t rank : {0, 1}) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, kEmpty + 1) || ring.aborted(rank); }));
    CHECK_FALSE(ring.aborted(rank));
    CHECK(first[0]->wrong(rank) == "");
  }
}

TEST_CASE("a chunk goes again after 256 later ops: the most active ops, and a link dead for 3 ms") {
  constexpr std::size_t kOps = 600;
  RingOptions options;
  options.shard.max_active_ops = 256;
  auto ops = make_ops(kOps, 2, 64);
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.set_down(0, 1, true);
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < kOps; ++i) ring.post(rank, ops[i]->spec(rank, i + 1));
  }
  ring.run_for(3'000'000);
  ring.set_down(0, 1, false);
  REQUIRE(ring.run_until([&] { return ring.done(0, kOps) && ring.done(1, kOps); }));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    for (auto& op : ops) REQUIRE(op->wrong(rank) == "");
  }
}

TEST_CASE("a rank sends nothing of an op that the next rank would refuse as too far ahead") {
  // Rank 1 is still at op 1. So rank 0 is through with no later op, and can post no more than 256;
  // rank 2 is through with as many, and posts 301.
  constexpr std::size_t kMost = 256;
  RingOptions options;
  options.nranks = 3;
  options.shard.max_active_ops = kMost;
  options.shard.exchange_bytes = 0;
  auto first = make_ops(1, 3, 64);
  const auto empty = make_ops(300, 3, 0);
  auto last = make_ops(1, 3, 20'000);
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::uint16_t rank = 0; rank < 3; ++rank) ring.post(rank, first[0]->spec(rank, 1));
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 1); }));
  }
  for (std::size_t i = 0; i < kMost; ++i) ring.post(0, empty[i]->spec(0, i + 2));
  for (std::size_t i = 0; i < kMost; ++i) ring.post(2, empty[i]->spec(2, i + 2));
  REQUIRE(ring.run_until([&] { return ring.done(2, kMost + 1); }));
  for (std::size_t i = kMost; i < empty.size(); ++i) ring.post(2, empty[i]->spec(2, i + 2));
  ring.post(2, last[0]->spec(2, 302));
  ring.run_for(50'000'000);
  CHECK_FALSE(ring.done(0, 2));
  CHECK(ring.counter(&collective::ShardCounters::retransmissions) == 0);
  CHECK(ring.drops(wire::Drop::kOpAhead) == 0);
  for (std::size_t i = 0; i < kMost; ++i) ring.post(1, empty[i]->spec(1, i + 2));
  for (const std::uint16_t rank : {0, 1}) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, kMost + 1); }));
    for (std::size_t i = kMost; i < empty.size(); ++i) {
      ring.post(rank, empty[i]->spec(rank, i + 2));
    }
    ring.post(rank, last[0]->spec(rank, 302));
  }
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 302); }));
    CHECK(last[0]->wrong(rank) == "");
  }
  CHECK(ring.drops(wire::Drop::kOpAhead) == 0);
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a rank that waits for op 1 gets it, though the others have op 2 under way") {
  for (const std::uint16_t nranks : {3, 4}) {
    for (const std::uint64_t count : {2'000, 6'000, 20'000, 96'000}) {
      for (const TimeNs late : {0, 100'000, 1'000'000, 10'000'000}) {
        INFO("ranks " << nranks << " count " << count << " late " << late << " ns");
        RingOptions options;
        options.nranks = nranks;
        auto ops = make_ops(2, nranks, count);
        RingHarness ring(options);
        REQUIRE(ring.form());
        // The last rank waits for op 1 before it posts op 2; all others post both.
        const auto waits = static_cast<std::uint16_t>(nranks - 1);
        ring.post(waits, ops[0]->spec(waits, 1));
        for (std::uint16_t rank = 0; rank < waits; ++rank) {
          if (rank == 1) ring.run_for(late);
          ring.post(rank, ops[0]->spec(rank, 1));
          ring.post(rank, ops[1]->spec(rank, 2));
        }
        REQUIRE(ring.run_until([&] { return ring.done(waits, 1); }));
        ring.post(waits, ops[1]->spec(waits, 2));
        for (std::uint16_t rank = 0; rank < nranks; ++rank) {
          REQUIRE(ring.run_until([&] { return ring.done(rank, 2); }));
          CHECK(ops[0]->wrong(rank) == "");
          CHECK(ops[1]->wrong(rank) == "");
        }
        CHECK(ring.leaked_mbufs() == 0);
      }
    }
  }
}

TEST_CASE("credit that a slow backend frees is said, and need not be asked for by probes") {
  RingOptions options;
  options.nranks = 3;
  options.slow_backend = 0.0003;
  options.pool_mbufs = 4096;
  options.shard.exchange_bytes = 0;
  options.shard.window_packets = 16;
  options.shard.transit_packets = 4;
  options.shard.eager_packets = 4;
  options.shard.pending_entries = collective::pending_entries_wanted(options.shard);
  auto ops = make_ops(1, 3, 96'000);
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::uint16_t rank = 0; rank < 3; ++rank) ring.post(rank, ops[0]->spec(rank, 1));
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 1); }, 60'000'000'000));
    CHECK(ops[0]->wrong(rank) == "");
  }
  CHECK(ring.counter(&collective::ShardCounters::probes) <= 3);
  CHECK(ring.counter(&collective::ShardCounters::retransmissions) == 0);
}

TEST_CASE("a shard that waits for a client or for a neighbor wants no rounds") {
  const int posted = GENERATE(0, 1, 2);
  INFO(posted << " of 3 ranks have posted");
  RingOptions options;
  options.nranks = 3;
  auto ops = make_ops(1, 3, 96'000);
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::uint16_t rank = 0; rank < posted; ++rank) ring.post(rank, ops[0]->spec(rank, 1));
  ring.run_for(200'000'000);
  // Pings and acknowledgements come at times; at most times nothing is to be done.
  int busy = 0;
  for (int look = 0; look < 100; ++look) {
    ring.run_for(1'010'101);
    for (std::uint16_t rank = 0; rank < 3; ++rank) busy += ring.until_deadline(rank) <= 0 ? 1 : 0;
  }
  CHECK(busy < 30);
}

TEST_CASE("an aborted shard wants no rounds, whatever it was doing") {
  for (int step = 0; step < 8; ++step) {
    INFO("abort after " << step);
    RingOptions options;
    options.nranks = 3;
    auto ops = make_ops(1, 3, 960'000);
    RingHarness ring(options);
    REQUIRE(ring.form());
    for (std::uint16_t rank = 0; rank < 3; ++rank) ring.post(rank, ops[0]->spec(rank, 1));
    ring.run_for(310'000 + step * 1'700);
    ring.freeze(1);
    ring.run_for(3'000);
    ring.abort(0, {.code = AbortCode::kClientAbort});
    ring.run_for(40'000);
    ring.freeze(1, false);
    ring.run_for(25'000'000'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      INFO("rank " << rank);
      CHECK(ring.aborted(rank));
      CHECK(ring.until_deadline(rank) > 0);
    }
  }
}

TEST_CASE("a group in which nothing moves though every rank has posted says so, and ends") {
  const std::uint16_t nranks = GENERATE(1, 2, 3, 5);
  INFO(nranks << " ranks");
  RingOptions options;
  options.nranks = nranks;
  options.slow_backend = 1e-12;  // reduces nothing before the test ends
  options.shard.timeouts.stuck_ns = 300'000'000;
  auto ops = make_ops(2, nranks, 2'000);
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::uint16_t rank = 0; rank + 1 < nranks; ++rank) {
    for (std::size_t i = 0; i < 2; ++i) ring.post(rank, ops[i]->spec(rank, i + 1));
  }
  // The last rank has not posted: its client is waited for, however long that takes.
  const auto last = static_cast<std::uint16_t>(nranks - 1);
  ring.run_for(900'000'000);
  for (std::uint16_t rank = 0; rank < nranks; ++rank) REQUIRE_FALSE(ring.aborted(rank));
  ring.post(last, ops[0]->spec(last, 1));
  const TimeNs posted_at = ring.now();
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    INFO("rank " << rank);
    // Its clients hear of it when the backend gives their memory back, which here is never.
    REQUIRE(ring.run_until(
        [&] { return ring.shard(rank).status(0).state == collective::ShardState::kAborted; },
        1'000'000'000));
    const AbortReason& reason = ring.shard(rank).reason();
    CHECK(reason.code == AbortCode::kStuck);
    CHECK(reason.op_seq == 1);
    CHECK_THAT(describe(reason), Catch::StartsWith("stuck: every rank has posted it"));
    CHECK_THAT(std::string(reason.detail), Catch::Contains("in backend"));
  }
  CHECK(ring.now() - posted_at >= 300'000'000);
}

TEST_CASE("an outage longer than a stuck group's limit is none, if the silence limit allows it") {
  RingOptions options;
  options.nranks = 3;
  options.shard.timeouts.silence_ns = 10'000'000'000;
  options.shard.timeouts.stuck_ns = 300'000'000;
  auto ops = make_ops(1, 3, 960'000);
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (std::uint16_t rank = 0; rank < 3; ++rank) ring.post(rank, ops[0]->spec(rank, 1));
  ring.run_for(300'000);
  for (const TimeNs outage : {400'000'000, 1'500'000'000}) {
    for (std::uint16_t from = 0; from < 3; ++from) {
      for (std::uint16_t to = 0; to < 3; ++to) ring.set_down(from, to, true);
    }
    ring.run_for(outage);
    for (std::uint16_t from = 0; from < 3; ++from) {
      for (std::uint16_t to = 0; to < 3; ++to) ring.set_down(from, to, false);
    }
    ring.run_for(50'000'000);
  }
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 1) || ring.aborted(rank); }));
    REQUIRE_FALSE(ring.aborted(rank));
    CHECK(ops[0]->wrong(rank) == "");
  }
}

TEST_CASE("a rank whose neighbor left before its op is aborted, and then wants no rounds") {
  RingOptions options;
  options.nranks = 3;
  auto ops = make_ops(1, 3, 2'000);
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.post(0, ops[0]->spec(0, 1));
  ring.run_for(100'000);
  for (std::uint16_t rank = 1; rank < 3; ++rank) ring.leave(rank);
  REQUIRE(ring.run_until([&] { return ring.aborted(0); }));
  ring.run_for(25'000'000'000);
  CHECK(ring.until_deadline(0) > 1'000'000'000);
}

TEST_CASE("a rank that is more than 256 ops behind is not taken for a silent one") {
  RingOptions options;
  options.delay_ns = 1'000'000;
  options.shard.timeouts.silence_ns = 150'000'000;
  const auto empty = make_ops(300, 2, 0);
  auto last = make_ops(1, 2, 640);
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.run_for(149'000'000);
  for (std::size_t i = 0; i < empty.size(); ++i) ring.post(0, empty[i]->spec(0, i + 1));
  ring.post(0, last[0]->spec(0, 301));
  ring.run_for(5'000'000'000);
  CHECK(ring.drops(wire::Drop::kOpAhead) == 0);
  CHECK(ring.drops(wire::Drop::kMalformed) == 0);
  for (std::size_t i = 0; i < empty.size(); ++i) ring.post(1, empty[i]->spec(1, i + 1));
  ring.post(1, last[0]->spec(1, 301));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 301) || ring.aborted(rank); }));
    REQUIRE_FALSE(ring.aborted(rank));
    CHECK(last[0]->wrong(rank) == "");
  }
}
