// SPDX-License-Identifier: BSD-3-Clause
// Places for encoded results: when they are taken, and when they come back.
#include "collective/tiles/tile_results.h"

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::collective;

namespace {

constexpr TilePlaces kPlaces{.part_bytes = 1280, .result_bytes = 640, .parts = 2, .results = 4};
constexpr std::uint32_t kEach = 2;  // chunks of a tile

/// An all-reduce of which a rank of three owns many tiles, two chunks each.
TileOp op_of_three() {
  TileOp op;
  op.cut = {{.payload_bytes = 320, .all_ranks = 3, .processes = {3}, .tile_bytes = 32 * 320},
            {.format = WireFormat::kInt8, .count = 100'000}};
  REQUIRE(op.cut.supported());
  REQUIRE(op.cut.chunks_of_tile() == kEach);
  op.encodes = true;
  op.pullers_left = 2;
  return op;
}

void start(TileResults& results, TileOp& op, std::uint32_t op_place) {
  results.start(op, op_place);
  ++op.started;
}

}  // namespace

TEST_CASE("a place for a result comes back when the last puller has it, and it is folded") {
  TileResults results(kPlaces);
  TileOp op = op_of_three();
  for (int i = 0; i < 4; ++i) {
    CHECK_FALSE(results.empty());
    start(results, op, 3);
  }
  CHECK(results.empty());
  op.folded = 3;
  // One has two tiles, the other the half of one: nobody's place is free.
  results.taken(op, 3, 0, 2 * kEach);
  results.taken(op, 3, 0, 1);
  CHECK_FALSE(results.give_back(op, 3));
  results.taken(op, 3, 1, kEach);
  CHECK(results.give_back(op, 3));
  CHECK(op.given_back == 1);
  CHECK_FALSE(results.empty());
  // Both have left before the last tile is folded.
  results.taken(op, 3, 2 * kEach, 100 * kEach);
  results.taken(op, 3, kEach, 100 * kEach);
  CHECK(results.give_back(op, 3));
  CHECK(op.given_back == 3);
  op.folded = 4;
  CHECK(results.give_back(op, 3));
  CHECK(op.given_back == 4);
}

TEST_CASE("each tile that has a place has one of its own, whatever its op") {
  TileResults results(kPlaces);
  TileOp one = op_of_three();
  TileOp other = op_of_three();
  start(results, one, 0);
  start(results, other, 1);
  start(results, one, 0);
  CHECK(results.at(0, 0) != results.at(1, 0));
  CHECK(results.at(0, 0) != results.at(0, 1));
  CHECK(results.at(1, 0) != results.at(0, 1));
  // Tile 0's place is used anew by a tile of which four have started since.
  one.folded = 1;
  results.taken(one, 0, 0, kEach);
  results.taken(one, 0, 0, kEach);
  const std::byte* const before = results.at(0, 0);
  REQUIRE(results.give_back(one, 0));
  start(results, one, 0);
  CHECK(results.at(0, 2) == before);
}

TEST_CASE("a tile that starts when nobody is left who pulls it keeps no place") {
  TileResults results(kPlaces);
  TileOp op = op_of_three();
  op.pullers_left = 0;
  start(results, op, 0);
  CHECK_FALSE(results.give_back(op, 0));
  op.folded = 1;
  CHECK(results.give_back(op, 0));
}

TEST_CASE("pullers are told at once if a quarter of the places waits for them, or all are taken") {
  constexpr TilePlaces kMany{.part_bytes = 64, .result_bytes = 64, .parts = 2, .results = 8};
  TileResults results(kMany);
  TileOp op = op_of_three();
  CHECK_FALSE(results.wants_back(1));
  CHECK(results.wants_back(2));
  for (int i = 0; i < 8; ++i) start(results, op, 0);
  CHECK(results.wants_back(1));
}
