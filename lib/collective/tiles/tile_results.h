// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Results of the tiles that a rank owns on a lane, if they do not lie in an output: they are
/// encoded, or the rank has no members. A tile has a place for its result from
/// its start until all who pull it have it. As they tell of chunks in their order, places come back
/// in the order of the tiles, and what is told is counted, not looked at rank by rank. One lane
/// owns it; it allocates at construction only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/tiles/tile_ops.h"
#include "collective/tiles/tile_places.h"
#include "collective/tiles/tile_scratch.h"

namespace gradwire::collective {

class TileResults {
 public:
  explicit TileResults(const TilePlaces& places)
      : count_(places.results),
        scratch_(places.results, places.result_bytes),
        tiles_(std::size_t{TileOps::kOpsMax} * places.results) {}

  [[nodiscard]] bool empty() const noexcept { return scratch_.empty(); }
  /// Whether pullers are to hear at once of so many tiles that they have not been told of: places
  /// come back only when they have pulled those.
  [[nodiscard]] bool wants_back(std::uint32_t untold_tiles) const noexcept {
    return empty() || untold_tiles >= count_ / 4;
  }

  /// The op's next tile starts, and gets a place: there is one.
  /// @param op_place  of the op, here and below: see TileOps::place_of().
  void start(const TileOp& op, std::uint32_t op_place) noexcept {
    Tile& tile = tile_of(op_place, op.started);
    tile.place = scratch_.take();
    tile.left = planted(PlantedBug::kResultPlaceFreedEarly) ? 1 : op.pullers_left;
  }
  /// Where the result of a tile lies that has started, and that somebody lacks.
  [[nodiscard]] std::byte* at(std::uint32_t op_place, std::uint32_t tile) noexcept {
    return scratch_.at(tile_of(op_place, tile).place);
  }
  /// A puller has all chunks below `end`; before that it had those below `first`.
  void taken(const TileOp& op, std::uint32_t op_place, std::uint32_t first,
             std::uint32_t end) noexcept {
    const std::uint32_t each = op.cut.chunks_of_tile();
    const std::uint32_t until = std::min(end / each, op.started);
    // What was given back, all have.
    for (std::uint32_t i = std::max(first / each, op.given_back); i < until; ++i) {
      Tile& tile = tile_of(op_place, i);
      require(tile.left > 0 || planted(PlantedBug::kResultPlaceFreedEarly),
              "each puller has a tile's result once");
      if (tile.left > 0) --tile.left;
    }
  }
  /// Gives back what is folded and nobody lacks any more. @return whether there was any.
  bool give_back(TileOp& op, std::uint32_t op_place) noexcept {
    const std::uint32_t before = op.given_back;
    while (op.given_back < op.folded && tile_of(op_place, op.given_back).left == 0) {
      scratch_.give_back(tile_of(op_place, op.given_back).place);
      ++op.given_back;
    }
    return op.given_back != before;
  }

 private:
  struct Tile {
    std::uint16_t place = 0;
    std::uint16_t left = 0;  ///< pullers that do not have all of it
  };

  /// An op has not more tiles between given_back and started than there are places.
  [[nodiscard]] Tile& tile_of(std::uint32_t op_place, std::uint32_t tile) noexcept {
    return tiles_[std::size_t{op_place} * count_ + tile % count_];
  }

  const std::uint32_t count_;
  TileScratch scratch_;
  std::vector<Tile> tiles_;  ///< [kOpsMax x count_]: by op, then by tile modulo count_
};

}  // namespace gradwire::collective
