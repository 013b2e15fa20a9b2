// SPDX-License-Identifier: BSD-3-Clause
// Ports that take a few packets in a millisecond: what goes to one rank waits for what goes to all
// others, and nobody may take that for silence.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

namespace {

constexpr TimeNs kMs = 1'000'000;

/// Hosts whose drivers hold each frame for so long that they take `per_ms` packets.
RingOptions options_of(std::uint16_t nranks, std::uint32_t per_ms) {
  RingOptions options;
  options.nranks = nranks;
  options.payload_bytes = 64;
  options.tx_descriptors = 4 * per_ms;
  options.driver_holds_ns = 4 * kMs;
  options.shard.timeouts.silence_ns = 200 * kMs;
  options.shard.timeouts.ping_interval_ns = 20 * kMs;
  options.shard.sender.max_pto_ns = 20 * kMs;
  return options;
}

bool any_aborted(const RingHarness& ring, std::uint16_t nranks) {
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    if (ring.aborted(rank)) return true;
  }
  return false;
}

collective::TransferSpec transfer(collective::TransferEnd end, std::uint16_t source,
                                  std::uint16_t destination, std::vector<std::byte>& memory) {
  collective::TransferSpec spec;
  spec.id = std::uint64_t{source} << 16 | destination;
  spec.end = end;
  spec.pair = {source, destination};
  spec.terms.bytes = memory.size();
  spec.from = spec.to = memory.data();
  return spec;
}

}  // namespace

TEST_CASE("all ranks get a part of a direct op from a slow port in turn") {
  constexpr std::uint16_t kRanks = 16;
  RingOptions options = options_of(kRanks, 2);
  options.shard.direct.op_bytes = 64u << 10;
  RingHarness ring(options);
  // Of one rank alone it is slow: the others have time to ask it.
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) ring.host(rank).tx_descriptors = 512;
  REQUIRE(ring.form());
  // First a small one, so that each has heard each. Then 60 chunks to each of 15: the port takes
  // 450 ms for them.
  std::uint64_t op_seq = 0;
  for (const std::uint64_t count : {1, 960}) {
    OpCase op(kRanks, 1, {.count = count, .seed = ++op_seq});
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, op_seq));
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      REQUIRE(ring.run_until([&] { return ring.done(rank, op_seq) || any_aborted(ring, kRanks); }));
      REQUIRE_FALSE(any_aborted(ring, kRanks));
      REQUIRE(op.wrong(rank) == "");
    }
  }
}

TEST_CASE("transfers of all with all end though ports are slow and every rank asks") {
  constexpr std::uint16_t kRanks = 14;
  RingOptions options = options_of(kRanks, 2);
  options.shard.timeouts.ping_interval_ns = 5 * kMs;
  options.loss = 0.05;
  options.shard.transfers.pairs_max = kRanks;
  RingHarness ring(options);
  REQUIRE(ring.form());
  std::vector<std::byte> from(40 * 64, std::byte{7});
  std::vector<std::vector<std::byte>> to(kRanks * kRanks, std::vector<std::byte>(from.size()));
  for (std::uint16_t source = 0; source < kRanks; ++source) {
    for (std::uint16_t ahead = 1; ahead < kRanks; ++ahead) {
      const auto other = static_cast<std::uint16_t>((source + ahead) % kRanks);
      REQUIRE(ring.post(source, transfer(collective::TransferEnd::kSource, source, other, from)));
      REQUIRE(ring.post(source, transfer(collective::TransferEnd::kDestination, other, source,
                                         to[source * kRanks + other])));
    }
  }
  // 520 pieces a rank: 260 ms of the port, and their words besides.
  const std::size_t ends = 2 * kRanks * (kRanks - 1);
  REQUIRE(ring.run_until([&] { return ring.transfers_done() == ends || any_aborted(ring, kRanks); },
                         3'000 * kMs));
  REQUIRE_FALSE(any_aborted(ring, kRanks));
  REQUIRE(ring.transfers_done() == ends);
}

TEST_CASE("a rank whose ring fills its port is not silent to those that wait for a transfer") {
  for (const std::uint16_t nranks : {3, 5}) {
    CAPTURE(nranks);
    RingOptions options = options_of(nranks, 2);
    options.shard.transfers.pairs_max = 16;
    options.shard.exchange_bytes = 0;
    options.shard.max_chunks = 8192;
    RingHarness ring(options);
    REQUIRE(ring.form());
    std::vector<std::byte> from(640, std::byte{7});
    std::vector<std::byte> to(from.size());
    REQUIRE(ring.post(0, transfer(collective::TransferEnd::kSource, 0, 2, from)));
    REQUIRE(ring.post(2, transfer(collective::TransferEnd::kDestination, 0, 2, to)));
    REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2; }, 1'000 * kMs));
    // More than a second of the port.
    OpCase op(nranks, 1, {.count = std::uint64_t{2'000} * 16, .seed = 1});
    for (std::uint16_t rank = 0; rank < nranks; ++rank) ring.post(rank, op.spec(rank, 1));
    ring.run_for(20 * kMs);
    // Rank 2 receives late: until then rank 0 asks whether it is there.
    std::ranges::fill(to, std::byte{0});
    REQUIRE(ring.post(0, transfer(collective::TransferEnd::kSource, 0, 2, from)));
    ring.run_for(700 * kMs);
    REQUIRE_FALSE(any_aborted(ring, nranks));
    REQUIRE_FALSE(ring.done(0, 1));
    REQUIRE(ring.post(2, transfer(collective::TransferEnd::kDestination, 0, 2, to)));
    REQUIRE(ring.run_until([&] { return ring.transfers_done() == 4; }, 1'000 * kMs));
    REQUIRE(to == from);
    REQUIRE(ring.run_until([&] { return ring.done(0, 1) || any_aborted(ring, nranks); }));
    REQUIRE_FALSE(any_aborted(ring, nranks));
  }
}

TEST_CASE("a rank whose packets of one kind all get lost is heard by those of another") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options;
  options.nranks = kRanks;
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.transfers.pairs_max = kRanks;
  options.shard.timeouts.silence_ns = 200 * kMs;
  options.shard.timeouts.ping_interval_ns = 20 * kMs;
  options.shard.sender.max_pto_ns = 20 * kMs;
  enum class Kind { kTransfers, kDirect, kRing };
  for (const Kind lost : {Kind::kTransfers, Kind::kDirect, Kind::kRing}) {
    CAPTURE(static_cast<int>(lost));
    // Rank 2 is no neighbor of rank 0, rank 1 is.
    const sim::HostId loser = lost == Kind::kRing ? 1 : 2;
    RingHarness ring(options);
    REQUIRE(ring.form());
    // Rank 0 waits for rank 2, for a transfer whose other end comes late.
    std::vector<std::byte> from(640, std::byte{7});
    std::vector<std::byte> to(from.size());
    REQUIRE(ring.post(0, transfer(collective::TransferEnd::kSource, 0, 2, from)));
    std::uint64_t op_seq = 0;
    OpCase op(kRanks, 1, {.count = 8, .seed = 1});
    const auto post_op = [&] {
      ++op_seq;
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, op_seq));
    };
    const auto all_done = [&] {
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        if (!ring.done(rank, op_seq)) return false;
      }
      return true;
    };
    post_op();
    REQUIRE(ring.run_until(all_done));
    ring.lose([&](sim::HostId source, sim::HostId, wire::PacketType type) {
      const Kind kind = !wire::goes_to_any_rank(type) ? Kind::kRing
                        : wire::is_of_transfer(type)  ? Kind::kTransfers
                                                      : Kind::kDirect;
      return source == loser && kind == lost;
    });
    // Three times the silence limit: ops follow each other, or one waits.
    for (int i = 0; i < 30; ++i) {
      if (all_done()) post_op();
      ring.run_for(20 * kMs);
    }
    REQUIRE_FALSE(any_aborted(ring, kRanks));
    REQUIRE(op_seq == (lost == Kind::kDirect ? 2 : 31));
    ring.lose({});
    REQUIRE(ring.post(2, transfer(collective::TransferEnd::kDestination, 0, 2, to)));
    REQUIRE(ring.run_until([&] { return ring.transfers_done() == 2 && all_done(); }, 1'000 * kMs));
    REQUIRE(to == from);
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) REQUIRE(op.wrong(rank) == "");
  }
}

TEST_CASE(
    "a rank that gives nothing off the ring, though it pings, is named when the group is stuck") {
  constexpr std::uint16_t kRanks = 4;
  RingOptions options;
  options.nranks = kRanks;
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.timeouts.silence_ns = 200 * kMs;
  options.shard.timeouts.ping_interval_ns = 20 * kMs;
  options.shard.timeouts.stuck_ns = 600 * kMs;
  RingHarness ring(options);
  REQUIRE(ring.form());
  // Rank 1 is a neighbor of ranks 0 and 2, which hear it on the ring.
  ring.lose([](sim::HostId source, sim::HostId, wire::PacketType type) {
    return source == 1 && wire::goes_to_any_rank(type) && !wire::is_of_transfer(type);
  });
  // Only they wait for it.
  OpCase op(kRanks, 1, {.count = 8, .seed = 1, .collective = Collective::kReduce, .root = 0});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(0); }, 5'000 * kMs));
  const AbortReason& reason = ring.shard(0).reason();
  CHECK(reason.code == AbortCode::kStuck);
  CHECK(reason.culprit_rank == 1);
  CHECK(std::string(reason.detail).starts_with("rank 1 gives nothing to it, but pings; lane 0: "));
  CHECK_THAT(describe(reason), Catch::Contains("between ranks 0 and 1"));
}

TEST_CASE("transfers and direct ops share a slow port by turns") {
  // Where it takes one packet at a time there is no room in most rounds, and they are nobody's
  // turn.
  const bool one_at_a_time = GENERATE(false, true);
  CAPTURE(one_at_a_time);
  constexpr std::uint16_t kRanks = 8;
  RingOptions options = options_of(kRanks, 2);
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.transfers.pairs_max = kRanks;
  options.shard.exchange_bytes = 0;
  RingHarness ring(options);
  // Of one rank alone.
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) ring.host(rank).tx_descriptors = 512;
  if (one_at_a_time) {
    ring.host(0).tx_descriptors = 3;  // by thirds: the ring's two ways, and all else
    ring.host(0).driver_holds_ns = kMs / 4;
  }
  REQUIRE(ring.form());
  // 60 chunks to each of 7: the port alone would take 210 ms for them.
  OpCase op(kRanks, 1, {.count = 960, .seed = 1});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, 1));
  std::vector<std::byte> from(640, std::byte{7});
  std::vector<std::byte> to(from.size());
  std::size_t transfers = 0;
  while (!ring.done(1, 1)) {
    REQUIRE(ring.post(4, transfer(collective::TransferEnd::kSource, 4, 0, from)));
    REQUIRE(ring.post(0, transfer(collective::TransferEnd::kDestination, 4, 0, to)));
    ++transfers;
    REQUIRE(ring.run_until(
        [&] { return ring.transfers_done() == 2 * transfers || any_aborted(ring, kRanks); }));
    REQUIRE_FALSE(any_aborted(ring, kRanks));
  }
  // 23 when direct ops went first until transfers had waited for eight rounds, 90 by turns.
  REQUIRE(transfers >= 50);
}
