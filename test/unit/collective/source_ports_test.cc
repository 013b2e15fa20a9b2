// SPDX-License-Identifier: BSD-3-Clause
// Paths of equal cost between ranks, chosen by the source port: each cut that is made here lasts.
#include <catch2/catch.hpp>
#include <cstddef>

#include "many_paths.h"
#include "support/ring_harness.h"

namespace gradwire::test::paths {

using collective::ShardCounters;
using sim::OpCase;

TEST_CASE("the ring's data takes another source port where the first leads into a hole") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  Ops ops{ring, kRanks, 5'000};
  REQUIRE(ops.run() < kNever);
  SECTION("the way of the data") {
    cut_first(ring, 0, 1);
    REQUIRE(ops.run() < kSilence / 2);
    CHECK(ring.shard(0).counters().source_port_moves == 1);
    CHECK(ring.shard(1).counters().source_port_moves == 0);
    const std::uint16_t port = ring.shard(0).status(ring.now()).downstream_source_port;
    CHECK(port >= wire::kSourcePortFirst);
    CHECK(ring.spine_of(0, 1, port) != first_spine(ring, 0, 1));
  }
  SECTION("the way of the acknowledgements") {
    cut_first(ring, 1, 0);
    REQUIRE(ops.run() < kSilence / 2);
    CHECK(ring.shard(1).counters().source_port_moves == 1);
    CHECK(ring.shard(0).counters().source_port_moves == 0);
    CHECK(ring.shard(1).status(ring.now()).upstream_source_port >= wire::kSourcePortFirst);
  }
  SECTION("both") {
    cut_first(ring, 0, 1);
    cut_first(ring, 1, 0);
    REQUIRE(ops.run() < kSilence / 2);
  }
  SECTION("full packets alone are lost") {
    ring.shorten_spine(0, 1, first_spine(ring, 0, 1), 300);
    REQUIRE(ops.run() < kSilence / 2);
    CHECK(ring.shard(0).counters().source_port_moves == 1);
  }
  // Now that it is left, nothing waits for it.
  CHECK(ops.run() < 20 * kMs);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.leave(rank);
  CHECK(ring.run_until([&] { return ring.closed(0) && ring.closed(1) && ring.closed(2); },
                       10 * kSilence));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE(
    "a rank whose port is slow sends few answers, aborts and byes, from several ports in turn") {
  constexpr std::uint16_t kRanks = 3;
  RingOptions options = options_of(kRanks);
  options.payload_bytes = 64;
  options.shard.timeouts.hello_interval_ns = 2 * kMs;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks, 400};
  REQUIRE(ops.run() < kNever);
  ring.host(1).driver_holds_ns = 4 * kMs;
  ring.host(1).tx_descriptors = 24;
  int answers = 0;
  int last_words = 0;
  bool lost = true;
  ring.lose([&](sim::HostId from, sim::HostId, wire::PacketType type) {
    if (from != 1) return false;
    answers += type == wire::PacketType::kHelloAck ? 1 : 0;
    last_words += type == wire::PacketType::kBye ? 1 : 0;
    return lost && (type == wire::PacketType::kAck || type == wire::PacketType::kBye);
  });
  SECTION("what it acknowledges does not arrive, whatever port it comes from") {
    OpCase op(kRanks, 1, {.count = 400, .seed = 7});
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, 2));
    ring.run_for(kSilence * 3 / 4);
    // Rank 0 asks 20 times, from several ports each time.
    CHECK(answers > 10);
    CHECK(answers <= 21);
    lost = false;
    REQUIRE(ring.run_until([&] { return ring.done(0, 2) && ring.done(1, 2); }, kSilence));
  }
  SECTION("its first port leads into a hole") {
    lost = false;
    cut_first(ring, 1, 0);
    const auto port = [&] { return ring.shard(1).status(ring.now()).upstream_source_port; };
    while (port() < wire::kSourcePortFirst && ops.op_seq < 50) REQUIRE(ops.run() < kNever);
    CHECK(port() >= wire::kSourcePortFirst);
  }
  SECTION("it leaves") {
    cut_first(ring, 1, 0);
    cut_first(ring, 1, 2);
    ring.leave(1);
    ring.run_for(10 * kMs);
    CHECK(last_words > 0);
    CHECK(last_words <= 2 * 6);
    lost = false;
    CHECK(ring.run_until([&] { return ring.closed(1); }, kSilence / 8 - 10 * kMs));
    CHECK_FALSE(ring.aborted(0));
    CHECK_FALSE(ring.aborted(2));
  }
}

TEST_CASE("direct ops take another source port to a rank off the ring") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = options_of(kRanks);
  options.shard.direct.op_bytes = 64u << 10;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  REQUIRE(ops.run() < kNever);
  const bool there = GENERATE(true, false);
  const bool back = GENERATE(true, false);
  if (!there && !back) return;
  if (there) cut_first(ring, 0, 2);
  if (back) cut_first(ring, 2, 0);
  for (int i = 0; i < 10; ++i) {
    REQUIRE(ops.run() < kSilence / 2);
  }
  CHECK(ring.counter(&ShardCounters::peer_source_port_moves) >= 1);
  CHECK(ring.counter(&ShardCounters::source_port_moves) == 0);
  CHECK(ops.run() < 10 * kMs);
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a direct op whose full packets alone are lost takes another source port") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = options_of(kRanks);
  options.shard.direct.op_bytes = 64u << 10;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  REQUIRE(ops.run() < kNever);
  const std::uint16_t to = GENERATE(std::uint16_t{2}, std::uint16_t{1});
  ring.shorten_spine(0, to, first_spine(ring, 0, to), 300);
  REQUIRE(ops.run() < kSilence / 2);
  CHECK(ops.run() < 20 * kMs);
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a transfer takes another source port, its pieces too") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = options_of(kRanks);
  options.shard.transfers.pairs_max = 16;
  RingHarness ring(options);
  REQUIRE(ring.form());
  const auto destination = GENERATE(std::uint16_t{1}, std::uint16_t{2});
  Transfer transfer(ring, {0, destination}, 4000 * 256);
  transfer.send();
  transfer.receive();
  const auto came = [&] { return ring.shard(destination).counters().pieces_received; };
  REQUIRE(ring.run_until([&] { return came() > 1000; }));
  REQUIRE(ring.transfers_done() == 0);
  SECTION("pieces are lost") { cut_first(ring, 0, destination); }
  SECTION("full ones alone") {
    ring.shorten_spine(0, destination, first_spine(ring, 0, destination), 300);
  }
  SECTION("pulls are lost") { cut_first(ring, destination, 0); }
  SECTION("both") {
    cut_first(ring, 0, destination);
    cut_first(ring, destination, 0);
  }
  REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2; }, 2 * kSilence));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
  CHECK(transfer.is_whole());
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a group forms, works and is left though every first path leads into a hole") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(options_of(kRanks));
  for (std::uint16_t from = 0; from < kRanks; ++from) {
    for (std::uint16_t to = 0; to < kRanks; ++to) {
      if (from != to) cut_first(ring, from, to);
    }
  }
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  REQUIRE(ops.run() < kSilence / 8);
  CHECK(ring.counter(&ShardCounters::source_port_moves) <= kRanks);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.leave(rank);
  CHECK(
      ring.run_until([&] { return ring.closed(0) && ring.closed(1) && ring.closed(2); }, kSilence));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("byes that a hole swallows come from other source ports") {
  constexpr std::uint16_t kRanks = 3;
  RingOptions options = options_of(kRanks);
  options.shard.timeouts.hello_interval_ns = 2 * kMs;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  REQUIRE(ops.run() < kNever);
  cut_first(ring, 1, 0);
  cut_first(ring, 1, 2);
  ring.leave(1);
  const auto left = [&] { return ring.closed(1); };
  // Before anybody finds that the ring's links are silent.
  CHECK(ring.run_until(left, kSilence / 8));
  ring.run_for(2 * kSilence);
  CHECK_FALSE(ring.aborted(0));
  CHECK_FALSE(ring.aborted(2));
  ring.leave(0);
  ring.leave(2);
  CHECK(ring.run_until([&] { return ring.closed(0) && ring.closed(2); }, kSilence));
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("no link takes another source port because a rank stands still or posts late") {
  constexpr std::uint16_t kRanks = 3;
  RingOptions options = options_of(kRanks);
  const bool direct = GENERATE(false, true);
  if (direct) options.shard.direct.op_bytes = 64u << 10;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks, 2'000};
  REQUIRE(ops.run() < kNever);
  const auto done_everywhere = [&] {
    return ring.done(0, ops.op_seq) && ring.done(1, ops.op_seq) && ring.done(2, ops.op_seq);
  };
  SECTION("it stands still") {
    for (int i = 0; i < 10; ++i) {
      OpCase op(kRanks, 1, {.count = 2'000, .seed = 7});
      ++ops.op_seq;
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        ring.post(rank, op.spec(rank, ops.op_seq));
      }
      ring.freeze(1);
      ring.run_for(kSilence * 3 / 4);
      ring.freeze(1, false);
      REQUIRE(ring.run_until(done_everywhere, kSilence));
    }
    // Off the ring nobody knows better than to try, once each time.
    CHECK(ring.counter(&ShardCounters::peer_source_port_moves) <= (direct ? 10 * kRanks : 0));
  }
  SECTION("it posts late") {
    OpCase op(kRanks, 1, {.count = 20'000, .seed = 7});
    ++ops.op_seq;
    ring.post(0, op.spec(0, ops.op_seq));
    ring.post(2, op.spec(2, ops.op_seq));
    ring.run_for(20 * kSilence);
    ring.post(1, op.spec(1, ops.op_seq));
    REQUIRE(ring.run_until(done_everywhere, kSilence));
    CHECK(ring.counter(&ShardCounters::peer_source_port_moves) == 0);
  }
  // The ring's links may follow what direct ops try.
  CHECK(ring.counter(&ShardCounters::source_port_moves) <= (direct ? 10 : 0));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
}

TEST_CASE("a rank that may use one source port keeps it") {
  constexpr std::uint16_t kRanks = 3;
  RingOptions options = options_of(kRanks);
  options.source_ports = 1;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  cut_first(ring, 0, 1);
  CHECK(ops.run() == kNever);
  CHECK(ring.counter(&ShardCounters::source_port_moves) == 0);
}

}  // namespace gradwire::test::paths
