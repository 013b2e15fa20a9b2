// SPDX-License-Identifier: BSD-3-Clause
// The table "Exactly once, and in place" of doc/protocol/tiles.md: what each packet does that is
// late, comes twice, or says what cannot be. They have the right token: a rank of the group made
// them.
#include <catch2/catch.hpp>

#include "lone_shard.h"

using namespace gradwire;
using namespace gradwire::test;
using wire::Drop;
using wire::PacketType;

namespace {

constexpr std::uint64_t kChunk = 16;               ///< elements of one
constexpr std::size_t kBytes = 64;                 ///< of one
constexpr std::uint64_t kCount = 3 * 24 * kChunk;  ///< each rank owns six tiles of four chunks

wire::TileHeader part(std::uint32_t chunk, std::uint64_t op_seq = 1) {
  wire::TileHeader header = LoneShard::call_of(op_seq, kCount);
  header.chunk = chunk;
  return header;
}
wire::TileHeader result(std::uint32_t chunk, std::uint64_t op_seq = 1) {
  wire::TileHeader header = part(chunk, op_seq);
  header.result = true;
  return header;
}

/// Rank 0 of three, which has posted an op of which nothing has come.
struct Entered : LoneShard {
  Entered() : LoneShard(config_of(3)) {
    post(kCount);
    const auto came = run();
    const auto pull = last(came, 1, PacketType::kTilePull);
    REQUIRE(pull);
    // The chunks of two tiles: there are places for so many.
    REQUIRE(pull->tile_pull.first == 0);
    REQUIRE(pull->tile_pull.grant == 8);
  }
  std::uint64_t received() const { return counters().tile_pieces_received; }
  void parts_of_tile(std::uint32_t tile, std::uint64_t op_seq = 1) {
    for (const std::uint16_t rank : {1, 2}) {
      for (std::uint32_t i = 0; i < 4; ++i) piece(rank, part(4 * tile + i, op_seq), kBytes);
    }
  }
  /// All that an op needs comes.
  void end_op(std::uint64_t op_seq = 1) {
    for (const std::uint16_t rank : {1, 2}) {
      pull(rank, {.op_seq = op_seq, .first = 24, .grant = 24, .done = 6});
    }
    for (std::uint32_t tile = 0; tile < 6; ++tile) {
      parts_of_tile(tile, op_seq);
      run();
    }
    for (int times = 0; times < 20; ++times) {
      for (const std::uint16_t rank : {1, 2}) {
        for (std::uint32_t i = 0; i < 24; ++i) piece(rank, result(i, op_seq), kBytes, 3);
      }
      run();
    }
  }
  void all(std::uint16_t rank, std::uint64_t op_seq = 1, bool asks = false) {
    pull(rank, {.op_seq = op_seq, .asks = asks, .results = true, .all = true});
  }
};

}  // namespace

TEST_CASE("tiles: a piece of a part is taken if it was asked for, is whole and right, and once") {
  Entered shard;
  // Another length, at or above the grant, no such number, an op that has not entered.
  shard.piece(1, part(0), kBytes - 4);
  shard.piece(1, part(0), kBytes + 4);
  shard.piece(1, part(8), kBytes);
  shard.piece(1, part(24), kBytes);
  shard.piece(1, part(UINT32_MAX), kBytes);
  shard.piece(1, part(0, 2), kBytes);
  CHECK(shard.drops(Drop::kBadChunk) == 6);
  shard.piece(1, part(0), kBytes, 1, 1);
  CHECK(shard.drops(Drop::kPayloadCrc) == 1);
  CHECK(shard.received() == 0);
  shard.piece(1, part(0), kBytes);
  CHECK(shard.received() == 1);
  shard.piece(1, part(0), kBytes, 77);
  shard.piece(1, part(2), kBytes);
  shard.piece(1, part(2), kBytes, 77);
  CHECK(shard.drops(Drop::kDuplicate) == 2);
  CHECK(shard.received() == 2);
  // Of a tile that is folded, too.
  shard.parts_of_tile(0);
  shard.run();
  const std::uint64_t before = shard.drops(Drop::kDuplicate);
  shard.piece(1, part(1), kBytes, 77);
  CHECK(shard.drops(Drop::kDuplicate) == before + 1);
  for (std::uint64_t i = 0; i < 4 * kChunk; ++i) REQUIRE(shard.output(1)[i] == 3);
  CHECK_FALSE(shard.aborted());
}

TEST_CASE("tiles: a result is taken if it was asked for, and once") {
  Entered shard;
  shard.piece(1, result(0), kBytes, 3);
  CHECK(shard.drops(Drop::kBadChunk) == 1);
  shard.pull(1, {.op_seq = 1, .first = 8, .grant = 8, .done = 1});
  const auto came = shard.run();
  const auto asked = LoneShard::last(came, 1, PacketType::kTilePull);
  REQUIRE(asked);
  CHECK(asked->tile_pull.results);
  CHECK(asked->tile_pull.grant == 4);
  shard.piece(1, result(4), kBytes, 3);
  shard.piece(1, result(0), kBytes - 4, 3);
  CHECK(shard.drops(Drop::kBadChunk) == 3);
  shard.piece(1, result(0), kBytes, 3, 1);
  CHECK(shard.drops(Drop::kPayloadCrc) == 1);
  shard.piece(1, result(0), kBytes, 3);
  shard.piece(1, result(0), kBytes, 77);
  CHECK(shard.drops(Drop::kDuplicate) == 1);
  const std::uint64_t at = 24 * kChunk;  // rank 1's segment
  for (std::uint64_t i = 0; i < kChunk; ++i) REQUIRE(shard.output(1)[at + i] == 3);
  REQUIRE(shard.output(1)[at + kChunk] == 0);
}

TEST_CASE("tiles: pieces and calls of another call end the group by name") {
  for (const bool calls : {false, true}) {
    Entered shard;
    wire::TileHeader other = LoneShard::call_of(1, kCount + 1);
    if (calls) {
      shard.call(2, other);
    } else {
      shard.piece(2, other, kBytes);
    }
    shard.run();
    CHECK(shard.aborted());
    CHECK(shard.shard().reason().code == AbortCode::kMismatch);
  }
}

TEST_CASE("tiles: \"not entered\" is believed until something of the op came") {
  Entered shard;
  shard.call(1, LoneShard::not_entered(1));
  shard.run();
  CHECK(shard.status().missing_rank == 1);
  CHECK_FALSE(shard.status().missing_rank_has_posted);
  // It enters: it is pulled from again, and told that its call came.
  shard.call(1, LoneShard::call_of(1, kCount));
  auto came = shard.run();
  auto pull = LoneShard::last(came, 1, PacketType::kTilePull);
  REQUIRE(pull);
  CHECK(pull->tile_pull.grant == 8);
  CHECK(pull->tile_pull.echo != 0);
  // An older word comes late.
  shard.call(1, LoneShard::not_entered(1));
  shard.run();
  CHECK(shard.status().missing_rank_has_posted);
  // What was pulled before the first word comes all the same.
  for (std::uint32_t i = 0; i < 8; ++i) shard.piece(1, part(i), kBytes);
  CHECK(shard.received() == 8);
  // Of the other rank nothing has come.
  CHECK(shard.status().missing_rank == 2);
  CHECK(shard.status().tiles.tiles > 0);
  CHECK(shard.status().tiles.folded == 0);
  CHECK(shard.status().tiles.chunks > 8);
  CHECK(shard.status().tiles.chunks_here == 0);
  // A word of an op that is unknown does nothing.
  shard.call(1, LoneShard::not_entered(7));
  CHECK_FALSE(shard.aborted());
}

TEST_CASE("tiles: whoever pulls has entered, so an older \"not entered\" is not believed") {
  for (const bool results : {false, true}) {
    INFO((results ? "results" : "parts"));
    Entered shard;
    if (results) {
      shard.pull(1, {.op_seq = 1, .results = true});
    } else {
      shard.pull(1, {.op_seq = 1, .grant = 1});
    }
    shard.call(1, LoneShard::not_entered(1));
    shard.run();
    CHECK(shard.status().missing_rank_has_posted);
    for (std::uint32_t i = 0; i < 4; ++i) shard.piece(1, part(i), kBytes);
    shard.call(2, LoneShard::not_entered(1));
    shard.run();
    CHECK(shard.status().missing_rank == 2);
    CHECK_FALSE(shard.status().missing_rank_has_posted);
  }
}

TEST_CASE("tiles: a pull of parts that cannot be is dropped") {
  Entered shard;
  // More than there are; done above what lies below first, or above all that there are.
  shard.pull(1, {.op_seq = 1, .first = 20, .grant = 25});
  shard.pull(1, {.op_seq = 1, .first = 3, .grant = 8, .done = 1});
  shard.pull(1, {.op_seq = 1, .first = 24, .grant = 24, .done = 7});
  shard.pull(1, {.op_seq = 1, .first = 24, .grant = 24, .done = 1u << 30});
  CHECK(shard.drops(Drop::kBadChunk) == 4);
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 0);
  // A right one is served, once.
  shard.pull(1, {.op_seq = 1, .grant = 5});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 5);
  shard.pull(1, {.op_seq = 1, .grant = 5});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 0);
  // Repairs again, but what was not sent before goes once.
  shard.pull(1, {.op_seq = 1, .grant = 7, .repair = true, .wanted = {0x62}});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 3);
  // One that was overtaken changes nothing, and what is folded there goes no more.
  shard.pull(1, {.op_seq = 1, .first = 4, .grant = 8, .done = 1});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 1);
  shard.pull(1, {.op_seq = 1, .first = 0, .grant = 8, .repair = true, .wanted = {0xff}});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 0);
  CHECK(shard.drops(Drop::kBadChunk) == 4);
}

TEST_CASE("tiles: numbers that a short tile lacks are never sent, though they are wanted") {
  LoneShard shard(LoneShard::config_of(3));
  // An owner has a tile of four chunks, and one of two.
  shard.post(3 * 6 * kChunk);
  shard.run();
  shard.pull(1, {.op_seq = 1, .grant = 8});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 6);
  shard.pull(1, {.op_seq = 1, .grant = 8, .repair = true, .wanted = {0xe0}});
  CHECK(LoneShard::count(shard.run(), 1, PacketType::kTilePiece) == 1);
  CHECK_FALSE(shard.aborted());
}

TEST_CASE("tiles: a pull of results that cannot be is dropped") {
  Entered shard;
  shard.pull(1, {.op_seq = 1, .grant = 1, .results = true});
  shard.all(1);
  shard.all(1, 2);
  shard.all(1, UINT64_MAX);
  CHECK(shard.drops(Drop::kBadChunk) == 4);
  shard.parts_of_tile(0);
  shard.run();
  shard.pull(1, {.op_seq = 1, .grant = 5, .results = true});
  CHECK(shard.drops(Drop::kBadChunk) == 5);
  shard.pull(1, {.op_seq = 1, .grant = 4, .results = true});
  const auto came = shard.run();
  CHECK(LoneShard::count(came, 1, PacketType::kTilePiece) == 4);
  for (const Came& each : came) {
    if (each.packet.common.type != PacketType::kTilePiece) continue;
    CHECK(each.packet.tile.result);
    std::int32_t sum = 0;
    std::memcpy(&sum, each.payload.data(), sizeof sum);
    CHECK(sum == 3);
  }
}

TEST_CASE("tiles: who asks of an op that has not entered hears so, and when it has") {
  LoneShard shard(LoneShard::config_of(3));
  shard.run();
  shard.pull(1, {.op_seq = 1, .grant = 8});
  auto came = shard.run();
  auto word = LoneShard::last(came, 1, PacketType::kTileCall);
  REQUIRE(word);
  CHECK(word->tile.not_entered);
  CHECK(LoneShard::count(came, 1, PacketType::kTileCall) == 1);
  CHECK(LoneShard::count(came, 1, PacketType::kTilePiece) == 0);
  shard.post(kCount);
  came = shard.run();
  word = LoneShard::last(came, 1, PacketType::kTileCall);
  REQUIRE(word);
  CHECK_FALSE(word->tile.not_entered);
  CHECK(word->tile == LoneShard::call_of(1, kCount));
  // The grant was forgotten. Until the call is echoed it is repeated.
  CHECK(LoneShard::count(came, 1, PacketType::kTilePiece) == 0);
  shard.ping();
  shard.pull(1, {.op_seq = 1, .grant = 1});
  came = shard.run(200'000'000);
  CHECK(LoneShard::count(came, 1, PacketType::kTileCall) > 1);
  const auto number = LoneShard::last(came, 1, PacketType::kTileCall)->common.packet_number;
  shard.pull(1, {.op_seq = 1, .grant = 1, .echo = static_cast<std::uint32_t>(number)});
  came = shard.run(200'000'000);
  CHECK(LoneShard::count(came, 1, PacketType::kTileCall) == 0);
}

TEST_CASE("tiles: a puller that asks too early hears of it when the op enters, too") {
  LoneShard shard(LoneShard::config_of(3));
  shard.run();
  shard.pull(1, {.op_seq = 1, .asks = true, .results = true});
  auto word = LoneShard::last(shard.run(), 1, PacketType::kTileCall);
  REQUIRE(word);
  CHECK(word->tile.not_entered);
  // The answer ends the other's repeats, so it must hear of the op when that has entered.
  shard.post(kCount);
  word = LoneShard::last(shard.run(), 1, PacketType::kTileCall);
  REQUIRE(word);
  CHECK_FALSE(word->tile.not_entered);
}

TEST_CASE("tiles: words of an op that is over are answered without a state of it") {
  Entered shard;
  shard.end_op();
  CHECK(shard.done() == 0);
  shard.all(1);
  shard.all(2);
  shard.run();
  REQUIRE(shard.done() == 1);
  for (const std::int32_t sum : shard.output(1)) {
    if (&sum - shard.output(1).data() < static_cast<long>(kCount)) REQUIRE(sum == 3);
  }
  // Late pieces of both kinds, late pulls, a question of each end.
  const std::uint64_t before = shard.drops(Drop::kDuplicate);
  shard.piece(1, part(3), kBytes, 77);
  shard.piece(1, result(3), kBytes, 77);
  CHECK(shard.drops(Drop::kDuplicate) == before + 2);
  shard.pull(1, {.op_seq = 1, .grant = 8});
  shard.pull(1, {.op_seq = 1, .first = 24, .grant = 24, .done = 6, .asks = true});
  auto came = shard.run();
  CHECK(LoneShard::count(came, 1, PacketType::kTilePiece) == 0);
  auto word = LoneShard::last(came, 1, PacketType::kTilePull);
  REQUIRE(word);
  CHECK(word->tile_pull.all);
  CHECK(word->tile_pull.op_seq == 1);
  shard.all(1, 1, true);
  word = LoneShard::last(shard.run(), 1, PacketType::kTilePull);
  REQUIRE(word);
  CHECK(word->tile_pull.over == 1);
  for (std::uint64_t i = 0; i < kCount; ++i) REQUIRE(shard.output(1)[i] == 3);
}

TEST_CASE("tiles: who asks of an op that was called otherwise here is told what was") {
  LoneShard shard(LoneShard::config_of(3));
  REQUIRE(shard.post(kCount, [](collective::OpSpec& spec) {
    spec.collective = Collective::kBroadcast;
    spec.root = 0;
  }) == collective::PostResult::kOk);
  shard.run();
  shard.pull(1, {.op_seq = 1, .grant = 4});
  const auto word = LoneShard::last(shard.run(), 1, PacketType::kTileCall);
  REQUIRE(word);
  CHECK_FALSE(word->tile.not_entered);
  CHECK(word->tile.collective == Collective::kBroadcast);
}

TEST_CASE("tiles: the same words again and again are no news") {
  // Nobody who only repeats that it has posted keeps a group from being found stuck.
  Entered shard;
  shard.call(1, LoneShard::call_of(1, kCount));
  shard.run();
  const TimeNs moved = shard.status().progress_at;
  for (int i = 0; i < 10; ++i) {
    shard.call(1, LoneShard::call_of(1, kCount));
    shard.pull(1, {.op_seq = 1, .results = true});
    shard.run(1'000'000);
  }
  CHECK(shard.status().progress_at == moved);
}

TEST_CASE("tiles: what an op ends with is repeated after two round trips, not a probe timeout") {
  // Of parts: the last chunk has none behind it. A round trip takes 200 us; a PTO is 2 ms more.
  Entered parts;
  for (std::uint32_t i = 0; i < 7; ++i) parts.piece(1, part(i), kBytes);
  const auto came = parts.run(1'500'000);
  const auto again = LoneShard::last(came, 1, PacketType::kTilePull);
  REQUIRE(again);
  CHECK(again->tile_pull.repair);
  CHECK(again->tile_pull.first == 7);
  CHECK(again->tile_pull.wanted[0] == 1);
  CHECK(parts.counters().tile_asks >= 1);
  // Of what is done, all of it.
  Entered done;
  for (std::uint32_t tile = 0; tile < 6; ++tile) {
    done.parts_of_tile(tile);
    done.run();
  }
  const auto said = LoneShard::last(done.run(1'500'000), 1, PacketType::kTilePull);
  REQUIRE(said);
  CHECK(said->tile_pull.asks);
  CHECK(said->tile_pull.done == 6);
}

TEST_CASE("tiles: packets of a group without them are foreign") {
  collective::ShardConfig config = LoneShard::config_of(3);
  config.tiles.used = false;
  config.transfers.pairs_max = 1;
  LoneShard shard(std::move(config));
  shard.pull(1, {.op_seq = 1, .grant = 4});
  shard.call(1, LoneShard::call_of(1, kCount));
  shard.piece(1, part(0), kBytes);
  CHECK(shard.drops(Drop::kForeign) == 3);
}
