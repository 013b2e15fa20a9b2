// SPDX-License-Identifier: BSD-3-Clause
// What is pulled from whom, without a shard: lines, the window, and numbers that tiles lack.
#include "collective/tiles/tile_pulls.h"

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "collective/tiles/tile_memory.h"

using namespace gradwire;
using namespace gradwire::collective;

namespace {

constexpr std::uint32_t kPayload = 64;
constexpr std::uint32_t kElements = 16;  ///< int32 of a chunk

/// Rank 0 of a group of reduce-scatters, where a process owns its block: tiles of four chunks.
struct Stand {
  /// @param count  of a block.
  Stand(std::uint16_t nranks, std::uint64_t count, std::uint32_t window, std::uint32_t from_each,
        std::uint16_t members = 1)
      : config(config_of(nranks, window, members)),
        pulls(config, ops, links, pull_window, counters, from_each) {
    op = &ops.open();
    OpSpec spec;
    spec.op_seq = 1;
    spec.count = count;
    spec.collective = Collective::kReduceScatter;
    spec.datatype = DataType::kInt32;
    op->spec = spec;
    op->cut = cut_of(config, spec);
    for (std::uint16_t rank = 1; rank < nranks; ++rank) {
      ops.parts_in(*op, rank).begin(static_cast<std::uint32_t>(op->cut.chunks(0, 0)));
      ops.results_in(*op, rank).begin(static_cast<std::uint32_t>(op->cut.chunks(rank, 0)));
    }
  }
  static ShardConfig config_of(std::uint16_t nranks, std::uint32_t window, std::uint16_t members) {
    ShardConfig config;
    config.nranks = nranks;
    config.member_count = members;
    config.payload_bytes = kPayload;
    config.tiles.tile_bytes = 16 * 4 * kPayload;
    config.window_packets = window;
    config.congestion = transport::CongestionKind::kStatic;
    return config;
  }

  TileIn& parts(std::uint16_t rank) { return ops.parts_in(*op, rank); }
  TileIn& results(std::uint16_t rank) { return ops.results_in(*op, rank); }
  void ready(std::uint16_t rank, std::uint32_t chunks, TileWay way = TileWay::kParts) {
    (way == TileWay::kParts ? parts(rank) : results(rank)).ready = chunks;
    pulls.line_up(*op, rank, way);
  }
  /// Ranks that were pulled from, in order; results are of a rank and 100.
  std::vector<int> pull() {
    std::vector<int> ranks;
    pulls.pull_more(now, [&](const TileOp&, std::uint16_t rank, TileWay way) {
      ranks.push_back(rank + (way == TileWay::kResults ? 100 : 0));
    });
    return ranks;
  }
  bool came(std::uint16_t rank, std::uint32_t chunk, TileWay way = TileWay::kParts) {
    return pulls.came(*op, rank, way, chunk, false, now);
  }

  ShardConfig config;
  ShardCounters counters;
  Links ring;
  PeerEnds ends{config, ring, counters};
  PeerLinks links{config, ends};
  PullWindow pull_window{config};
  TileOps ops{config.nranks};
  TileOp* op = nullptr;
  TilePulls pulls;
  TimeNs now = 1'000'000'000;
};

}  // namespace

TEST_CASE("numbers that a short tile lacks are never pulled, and count as chunks that have come") {
  // A block has a tile of four chunks and one of two: two members own two blocks.
  Stand stand(2, 6 * kElements, 64, 64, 2);
  TileIn& in = stand.parts(1);
  REQUIRE(in.end == 16);
  stand.ready(1, 16);
  CHECK(stand.pull() == std::vector<int>{1});
  CHECK(in.on_way == 12);
  CHECK(in.asked.size() == 12);
  for (const std::uint32_t lacking : {6, 7, 14, 15}) CHECK_FALSE(in.asked.has(lacking));
  for (const std::uint32_t chunk : {0, 1, 2, 3, 4}) CHECK_FALSE(stand.came(1, chunk));
  CHECK(in.first == 5);
  CHECK_FALSE(stand.came(1, 5));
  CHECK(in.first == 8);
  for (const std::uint32_t chunk : {8, 9, 10, 11, 12, 13}) CHECK_FALSE(stand.came(1, chunk));
  CHECK(in.complete());
  CHECK(in.on_way == 0);
}

TEST_CASE("a short tile is passed over whatever the window, and whatever comes first") {
  for (const std::uint32_t window : {1, 2, 3, 5}) {
    for (const bool backwards : {false, true}) {
      INFO(window << " packets" << (backwards ? ", backwards" : ""));
      Stand stand(2, 5 * kElements, window, 64, 3);
      TileIn& in = stand.parts(1);
      REQUIRE(in.end == 24);
      stand.ready(1, 24);
      std::uint32_t pulled = 0;
      while (!in.complete()) {
        (void)stand.pull();
        REQUIRE(in.on_way != 0);
        REQUIRE(in.on_way == in.asked.size());
        REQUIRE(in.on_way <= window);
        std::uint32_t bit = in.asked.lowest();
        for (std::uint32_t i = bit; backwards && i < ChunkSet::kChunks; ++i) {
          if (in.asked.has(i)) bit = i;
        }
        stand.now += 1'000'000;
        (void)stand.came(1, in.first + bit);
        stand.pulls.line_up(*stand.op, 1, TileWay::kParts);
        ++pulled;
      }
      CHECK(pulled == 15);
    }
  }
}

TEST_CASE("a pull is for several chunks, though each that comes makes room for one") {
  constexpr std::uint16_t kRanks = 17;
  Stand stand(kRanks, 40 * kElements, 32, 3);
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) stand.ready(rank, 40);
  std::size_t words = stand.pull().size();
  std::uint32_t chunks = 0;
  for (bool any = true; any;) {
    any = false;
    for (std::uint16_t rank = 1; rank < kRanks; ++rank) {
      TileIn& in = stand.parts(rank);
      if (in.on_way == 0) continue;
      any = true;
      ++chunks;
      CHECK_FALSE(stand.came(rank, in.first + in.asked.lowest()));
      stand.pulls.line_up(*stand.op, rank, TileWay::kParts);
      words += stand.pull().size();
    }
  }
  CHECK(chunks == 16 * 40);
  CHECK(words <= 16 * 40 / 3 + 16);
}

TEST_CASE("ranks take turns, and parts and results do") {
  Stand stand(4, 40 * kElements, 8, 2);
  for (const std::uint16_t rank : {1, 2, 3}) {
    stand.ready(rank, 40);
    stand.ready(rank, 40, TileWay::kResults);
  }
  CHECK(stand.pull() == std::vector<int>{1, 101, 2, 102});
  // What comes makes room for whoever waits the longest.
  CHECK_FALSE(stand.came(1, 0));
  CHECK_FALSE(stand.came(1, 1));
  stand.pulls.line_up(*stand.op, 1, TileWay::kParts);
  CHECK(stand.pull() == std::vector<int>{3});
  CHECK_FALSE(stand.came(2, 0));
  CHECK_FALSE(stand.came(2, 1));
  CHECK(stand.pull() == std::vector<int>{103});
  CHECK_FALSE(stand.came(3, 0));
  CHECK_FALSE(stand.came(3, 1));
  CHECK(stand.pull() == std::vector<int>{1});
}

TEST_CASE("a rank that has not entered gives back its window, and what comes late is taken") {
  Stand stand(3, 8 * kElements, 4, 4);
  stand.ready(1, 8);
  stand.ready(2, 8);
  CHECK(stand.pull() == std::vector<int>{1});
  TileIn& in = stand.parts(1);
  in.late = true;
  stand.pulls.give_back(in);
  stand.pulls.give_back(in);
  CHECK(in.on_way == 0);
  CHECK(in.granted == 4);
  CHECK(stand.pull() == std::vector<int>{2});
  // It was sent all the same, and holds no window.
  CHECK_FALSE(stand.came(1, 2));
  CHECK(in.first == 0);
  in.late = false;
  for (const std::uint32_t chunk : {0, 1, 2, 3}) CHECK_FALSE(stand.came(2, chunk));
  stand.pulls.line_up(*stand.op, 1, TileWay::kParts);
  CHECK(stand.pull() == std::vector<int>{1});
  // The rank may think that it has sent what was granted before.
  CHECK(in.asked.has(0));
  CHECK(in.again.has(0));
  CHECK(in.again.has(1));
  CHECK_FALSE(in.asked.has(2));
  CHECK(in.again.has(3));
  CHECK(in.asked.has(4));
  CHECK_FALSE(in.again.has(4));
}

TEST_CASE("what three later chunks overtook is wanted again, each chunk once in a round trip") {
  Stand stand(2, 12 * kElements, 64, 64);
  stand.ready(1, 12);
  CHECK(stand.pull() == std::vector<int>{1});
  TileIn& in = stand.parts(1);
  CHECK_FALSE(stand.came(1, 1));
  CHECK_FALSE(stand.came(1, 2));
  CHECK(stand.came(1, 3));
  CHECK(in.again.has(0));
  CHECK(in.again.size() == 1);
  CHECK_FALSE(stand.came(1, 5));
  in.again.clear();  // A pull went.
  // Another one is lost: it does not wait for the round trip of the first.
  CHECK(stand.came(1, 8));
  CHECK_FALSE(in.again.has(0));
  CHECK(in.again.has(4));
  CHECK(in.again.size() == 1);
  stand.now += 1'000'000'000;
  CHECK(stand.came(1, 9));
  CHECK(in.again.has(0));
  CHECK(in.again.has(4));
  CHECK(in.again.has(6));
  CHECK_FALSE(in.again.has(7));
  CHECK(stand.counters.tile_pieces_pulled_again == 4);
}

TEST_CASE("chunks are numbered up to the last number") {
  TileIn in;
  in.begin(UINT32_MAX);
  in.ready = UINT32_MAX;
  in.first = in.next = UINT32_MAX - 3;
  CHECK(in.open(64) == 3);
  in.next = UINT32_MAX - 1;
  CHECK(in.open(64) == 1);
}
