// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a rank does with the tiles that it owns on a lane: they start when there is a place for
/// their parts, in the order of the ops and, in each of them, of the tiles; and they are folded in
/// that order when all parts are here. One lane owns it; it allocates at construction only; time is
/// a parameter.
///
/// No tile of an op starts while one of an older op waits for a place, so the oldest op never waits
/// for a place that a younger one has.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/ops/fold_queue.h"
#include "collective/shard_config.h"
#include "collective/tiles/tile_ops.h"
#include "collective/tiles/tile_scratch.h"

namespace gradwire::collective {

class TileOwner {
 public:
  /// All of them outlive it.
  TileOwner(const ShardConfig& config, TileOps& ops, FoldQueue& folds);

  /// The op has entered: all of its tiles are to start, or of an op without parts have started.
  void begin(TileOp& op) const noexcept;
  /// Starts a tile, if one may start. @return its op, or nullptr.
  [[nodiscard]] TileOp* start_next() noexcept;
  /// Whether more of the op's tiles may start, now or when places come back.
  [[nodiscard]] static bool has_to_start(const TileOp& op) noexcept {
    return op.started < op.tiles;
  }

  /// Where a chunk of a tile that has started lies, of a source.
  [[nodiscard]] std::byte* part(const TileOp& op, std::uint16_t source,
                                const TileCut::Chunk& chunk) noexcept {
    return scratch_.row(op.place[chunk.tile % TileOp::kStartedMax], source) +
           std::size_t{chunk.at} * element_bytes(op.spec.datatype);
  }
  /// The op whose next tile can be folded; nullptr if there is none.
  [[nodiscard]] TileOp* foldable() const noexcept;
  /// Folds it, and gives its place back; of an op without parts copies it to the outputs here.
  /// @return whether the backend could.
  [[nodiscard]] bool fold_next(TileOp& op) noexcept;

 private:
  [[nodiscard]] bool copy_next(TileOp& op) noexcept;
  [[nodiscard]] bool load_own_part(const TileOp& op, const TileCut::Tile& tile,
                                   std::byte* row) noexcept;
  [[nodiscard]] bool is_own_in_memory(const TileOp& op) const noexcept {
    return config_.member_count == 1 && op.spec.factors == nullptr;
  }

  const ShardConfig& config_;
  TileOps& ops_;
  FoldQueue& folds_;
  TileScratch scratch_;
  std::vector<const std::byte*> sources_;  ///< [nranks]
};

}  // namespace gradwire::collective
