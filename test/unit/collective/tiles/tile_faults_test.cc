// SPDX-License-Identifier: BSD-3-Clause
// Rings of ranks whose large ops go by tiles, with one thing wrong: nobody may wait for ever, and
// nobody who has all may fail.
#include <catch2/catch.hpp>
#include <string>

#include "ring_sums.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

constexpr TimeNs kMs = 1'000'000;

RingOptions with_tiles(std::uint16_t nranks) {
  RingOptions options;
  options.nranks = nranks;
  options.shard.tiles.used = true;
  options.shard.exchange_bytes = 0;
  options.shard.tiles.tile_bytes = 16 * 2 * options.payload_bytes;
  options.shard.timeouts.silence_ns = 500 * kMs;
  options.shard.timeouts.ping_interval_ns = 20 * kMs;
  return options;
}

}  // namespace

TEST_CASE("parts that never come, though their source answers, end the group by name") {
  for (const std::uint16_t nranks : {2, 3, 5}) {
    INFO(nranks << " ranks");
    RingOptions options = with_tiles(nranks);
    options.shard.timeouts.stuck_ns = 2'000 * kMs;
    Sums sums(options);
    sums.add(20'000);
    sums.ring.lose([](sim::HostId from, sim::HostId to, wire::PacketType type) {
      return from == 1 && to == 0 && type == wire::PacketType::kTilePiece;
    });
    sums.post();
    REQUIRE(sums.ring.run_until([&] { return sums.ring.aborted(0); }, 20'000 * kMs));
    const AbortReason& reason = sums.ring.shard(0).reason();
    CHECK(reason.code == AbortCode::kSilence);
    CHECK(reason.culprit_rank == 1);
    CHECK(reason.op_seq == 1);
    CHECK(std::string(reason.detail).find("never came") != std::string::npos);
  }
}

TEST_CASE("a rank that leaves when all is done does not end the group for the others") {
  for (const std::uint16_t nranks : {2, 3, 6}) {
    INFO(nranks << " ranks");
    Sums sums(with_tiles(nranks));
    sums.add(20'000);
    sums.run();
    sums.ring.leave(0);
    sums.ring.run_for(5'000 * kMs);
    CHECK(sums.ring.closed(0));
    for (std::uint16_t rank = 1; rank < nranks; ++rank) {
      INFO("rank " << rank);
      CHECK_FALSE(sums.ring.aborted(rank));
      sums.ring.leave(rank);
    }
    sums.ring.run_for(1'000 * kMs);
    for (std::uint16_t rank = 1; rank < nranks; ++rank) CHECK(sums.ring.closed(rank));
  }
}

TEST_CASE("who only missed that an owner knows that it has all does not end the group") {
  Sums sums(with_tiles(6));
  sums.add(20'000);
  sums.run();
  // Rank 0 and its neighbors leave. Rank 3 hears nothing from rank 0, nor of it.
  sums.ring.lose([](sim::HostId from, sim::HostId to, wire::PacketType type) {
    return from == 0 && to == 3 && type == wire::PacketType::kTilePull;
  });
  for (const std::uint16_t rank : {0, 1, 5}) sums.ring.leave(rank);
  sums.ring.run_for(10'000 * kMs);
  CHECK(sums.ring.closed(0));
  CHECK_FALSE(sums.ring.aborted(3));
}

TEST_CASE("ranks that call other counts by tiles hear of it by name") {
  for (const std::uint64_t other : {60'000, 6'000, 16}) {
    INFO("one calls " << other);
    RingOptions options = with_tiles(3);
    Sums sums(options);
    sums.add(20'000);
    sums.add(other);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      sums.ring.post(rank, sums.cases[rank == 1 ? 1 : 0].spec(rank, 1));
    }
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      INFO("rank " << rank);
      REQUIRE(sums.ring.run_until([&] { return sums.ring.aborted(rank); }, 5'000 * kMs));
      CHECK(sums.ring.shard(rank).reason().code == AbortCode::kMismatch);
    }
  }
}

TEST_CASE("lost pieces of a large op are pulled again without a probe timeout for each") {
  RingOptions options = with_tiles(2);
  options.shard.tiles.tile_bytes = collective::kTileBytes;
  options.shard.tiles.scratch_bytes = 1u << 20;
  options.shard.window_packets = options.shard.transit_packets = 64;
  options.payload_bytes = 1024;
  options.pool_mbufs = 4096;
  options.loss = 0.01;
  Sums sums(options);
  sums.add(1'000'000);
  sums.run();
  const std::uint64_t again =
      sums.ring.counter(&collective::ShardCounters::tile_pieces_pulled_again);
  CHECK(again > 40);
  CHECK(sums.ring.counter(&collective::ShardCounters::tile_asks) < again / 4);
}
