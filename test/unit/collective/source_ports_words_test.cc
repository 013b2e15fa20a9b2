// SPDX-License-Identifier: BSD-3-Clause
// What ranks tell each other of source ports: in hellos, by asking again, and in aborts. Each cut
// that is made here lasts.
#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "many_paths.h"
#include "support/ring_harness.h"

namespace gradwire::test::paths {

using collective::ShardCounters;
using sim::OpCase;

namespace {

/// Whose links do little of their own accord, so that it shows what a hello does. They fall silent
/// as soon as those of others.
RingOptions patient_of(std::uint16_t nranks) {
  RingOptions options = options_of(nranks);
  options.shard.timeouts.ping_interval_ns = kSilence / 17;
  options.shard.sender.max_pto_ns = kSilence;
  return options;
}

/// The second round of hellos, which says what was heard, and what it brings about.
constexpr TimeNs kToldAfter = kSilence / 8 + kSilence / 32 + 2 * kMs;

}  // namespace

TEST_CASE("of two ranks, one sends what was lost again when the other has told it of a port") {
  RingHarness ring(patient_of(2));
  REQUIRE(ring.form());
  // All that is in flight goes again at once, with answers to hellos and an acknowledgement: it has
  // to fit a host's receive ring of 64.
  Ops ops{ring, 2, 3'000};
  REQUIRE(ops.run() < kNever);
  cut_first(ring, 0, 1);
  CHECK(ops.run() < kToldAfter);
  CHECK(ring.shard(0).counters().source_port_moves == 1);
}

TEST_CASE("a rank that is told of a source port acknowledges from there at once") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(patient_of(kRanks));
  REQUIRE(ring.form());
  Ops ops{ring, kRanks, 5'000};
  REQUIRE(ops.run() < kNever);
  const bool slow = GENERATE(false, true);
  if (slow) {
    ring.host(1).driver_holds_ns = 4 * kMs;
    ring.host(1).tx_descriptors = 24;
  }
  cut_first(ring, 1, 0);
  // A port that is behind asks half as often, and answers from another one every second time.
  CHECK(ops.run() < kToldAfter + (slow ? kSilence / 5 : 0));
  CHECK(ring.shard(1).counters().source_port_moves == 1);
}

TEST_CASE("what was heard while a group formed is told before anything is silent") {
  constexpr std::uint16_t kRanks = 3;
  RingOptions options = options_of(kRanks);
  options.shard.timeouts.hello_interval_ns = kMs;
  RingHarness ring(options);
  // Hellos arrive, answers do not from the first port.
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    cut_first(ring, rank, collective::upstream_rank(rank, kRanks));
  }
  const TimeNs start = ring.now();
  REQUIRE(ring.form());
  ring.run_for(kMs);
  REQUIRE(ring.now() - start < kSilence / 8);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    const std::uint16_t before = collective::upstream_rank(rank, kRanks);
    const std::uint16_t port = ring.shard(rank).status(ring.now()).upstream_source_port;
    CHECK(ring.spine_of(rank, before, port) != first_spine(ring, rank, before));
  }
}

TEST_CASE("a rank that gave up says so to one off the ring from one source port after the other") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = options_of(kRanks);
  options.shard.transfers.pairs_max = 16;
  options.shard.timeouts.hello_interval_ns = 2 * kMs;
  RingHarness ring(options);
  REQUIRE(ring.form());
  // Nobody hands it on.
  ring.freeze(1);
  ring.freeze(3);
  cut_first(ring, 0, 2);
  ring.abort(0, {.code = AbortCode::kClientDied});
  Transfer transfer(ring, {2, 0}, 20 * 256);
  transfer.send();
  REQUIRE(ring.run_until([&] { return ring.aborted(2); }, kSilence / 2));
  CHECK(ring.shard(2).reason().code == AbortCode::kClientDied);
}

TEST_CASE("a rank that does nothing but answer takes another source port when it is asked again") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = options_of(kRanks);
  options.shard.direct.op_bytes = 64u << 10;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  REQUIRE(ops.run() < kNever);
  cut_first(ring, 2, 0);
  REQUIRE(ops.run(2, 3 * kSilence) < 4 * kSilence);
  CHECK(ring.shard(2).counters().peer_source_port_moves > 0);
}

TEST_CASE("a rank that rests takes another source port when it is asked again") {
  constexpr TimeNs kLimit = 25 * kSilence;
  RingOptions options = options_of(2);
  options.shard.timeouts.silence_ns = kLimit;
  options.shard.timeouts.ping_interval_ns = kLimit / 100;
  options.shard.sender.max_pto_ns = kLimit / 25;
  options.shard.transfers.pairs_max = 16;
  options.shard.transfers.alone = true;
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.run_for(kLimit);
  cut_first(ring, 1, 0);
  Transfer transfer(ring, {0, 1}, 20 * 256);
  transfer.send();
  ring.run_for(3 * kLimit);
  CHECK(ring.shard(1).counters().peer_source_port_moves > 0);
  REQUIRE(!ring.aborted(0));
  transfer.receive();
  CHECK(ring.run_until([&] { return transfer.is_whole(); }, kLimit));
}

TEST_CASE("others send to a rank that stood still from source ports that lead there") {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::uint16_t kStill = 2;
  RingOptions options = options_of(kRanks);
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.transfers.pairs_max = 16;
  RingHarness ring(options);
  REQUIRE(ring.form());
  Ops ops{ring, kRanks};
  REQUIRE(ops.run() < kNever);
  // Of all their source ports half lead into a hole, the first one does not.
  const auto hole = [&](std::uint16_t from) {
    return static_cast<std::uint8_t>(1 - first_spine(ring, from, kStill));
  };
  int lost = 0;
  for (const std::uint16_t rank : {0, 1, 3}) ring.cut_spine(rank, kStill, hole(rank), true);
  ring.lose([&](sim::HostId from, sim::HostId to, wire::PacketType) {
    lost += to % kRanks == kStill && to / kRanks == hole(from) ? 1 : 0;
    return false;
  });
  const bool transfers = GENERATE(true, false);
  const bool posts_later = GENERATE(true, false);
  int lost_in_search = 0;
  for (int i = 0; i < 20; ++i) {
    lost = 0;
    ops.op_seq += transfers ? 0 : 1;
    OpCase op(kRanks, 1, {.count = 100, .seed = 7});
    Transfer transfer(ring, {0, kStill}, 20 * 256);
    const auto post = [&](std::uint16_t rank) {
      if (!transfers) return ring.post(rank, op.spec(rank, ops.op_seq));
      if (rank == 0) transfer.send();
      if (rank == kStill) transfer.receive();
    };
    const std::size_t ends = ring.transfers_done() + (transfers ? 2 : 0);
    ring.freeze(kStill);
    for (const std::uint16_t rank : {0, 1, 3}) post(rank);
    if (!posts_later) post(kStill);
    ring.run_for(kSilence / 4 + i * 4 * kMs);
    ring.freeze(kStill, false);
    if (posts_later) post(kStill);
    const auto done = [&] {
      return ring.transfers_done() == ends && ring.done(0, ops.op_seq) &&
             ring.done(kStill, ops.op_seq);
    };
    CHECK(ring.run_until(done, kSilence / 25));
    REQUIRE(ring.run_until(done, kSilence));
    ring.run_for(kMs);
    lost_in_search += lost;
    lost = 0;
    // It is asked meanwhile.
    CHECK(ops.run(kStill, 25 * kMs) < 26 * kMs);
    CHECK(lost == 0);
  }
  CHECK(lost_in_search > 20);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK_FALSE(ring.aborted(rank));
}

TEST_CASE("transfers that are posted together are no sign that answers are lost") {
  constexpr std::uint16_t kMembers = 4;
  RingOptions options = options_of(4);
  options.members = kMembers;
  options.shard.transfers.pairs_max = 64;
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.run_for(kSilence);
  std::vector<Transfer> transfers;
  transfers.reserve(kMembers);
  for (std::uint16_t member = 0; member < kMembers; ++member) {
    const auto destination = static_cast<std::uint16_t>(2 * kMembers + member);
    transfers.emplace_back(ring, wire::ProcessPair{member, destination}, 20 * 256);
    transfers.back().send(kMembers);
  }
  ring.run_for(kMs);
  for (Transfer& transfer : transfers) transfer.receive(kMembers);
  REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2 * kMembers; }, kSilence));
  for (const Transfer& transfer : transfers) CHECK(transfer.is_whole());
  CHECK(ring.counter(&ShardCounters::peer_source_port_moves) == 0);
}

}  // namespace gradwire::test::paths
