// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a rank does with the tiles that it owns on a lane: they start when there is a place for
/// their parts and, if it does not lie in an output, for their result, in the order of the ops and,
/// in each of them, of the tiles; and they are folded in that order when all parts are here. One
/// lane owns it; it allocates at construction only; time is a parameter.
///
/// No tile of an op starts while one of an older op waits for a place, so the oldest op never waits
/// for a place that a younger one has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/ops/fold_queue.h"
#include "collective/ops/op_memory.h"
#include "collective/shard_config.h"
#include "collective/tiles/tile_formats.h"
#include "collective/tiles/tile_ops.h"
#include "collective/tiles/tile_results.h"
#include "collective/tiles/tile_scratch.h"

namespace gradwire::collective {

class TileOwner {
 public:
  /// All of them outlive it.
  TileOwner(const ShardConfig& config, TileOps& ops, FoldQueue& folds, TileFormats& formats);

  /// The op has entered: all of its tiles are to start, or of an op without parts have started.
  void begin(TileOp& op) const noexcept;
  /// Starts a tile, if one may start. @return its op, or nullptr.
  [[nodiscard]] TileOp* start_next() noexcept;
  /// Whether more of the op's tiles may start, now or when places come back.
  [[nodiscard]] static bool has_to_start(const TileOp& op) noexcept {
    return op.started < op.tiles;
  }

  /// A chunk of a tile that has started came from a source. It is kept until the tile is folded, or
  /// of two ranks folded now. @return whether the backend could.
  [[nodiscard]] bool take_part(const TileOp& op, std::uint16_t source, const TileCut::Tile& tile,
                               const TileCut::Chunk& chunk,
                               std::span<const std::byte> payload) noexcept;
  /// Where a chunk of a tile that has started lies, of a source.
  [[nodiscard]] std::byte* part(const TileOp& op, std::uint16_t source,
                                const TileCut::Chunk& chunk) noexcept {
    return row(op.place[chunk.tile % TileOp::kStartedMax], source) + op.cut.wire_bytes(chunk.at);
  }
  /// The op whose next tile can be folded; nullptr if there is none.
  [[nodiscard]] TileOp* foldable() const noexcept;
  /// Folds it, and gives its place back; of an op without parts copies it to the outputs here.
  /// @return whether the backend could.
  [[nodiscard]] bool fold_next(TileOp& op) noexcept;

  // If this rank keeps an op's results in places of their own:
  /// Where a chunk of a result lies that some rank lacks.
  [[nodiscard]] const std::byte* result(const TileOp& op, const TileCut::Chunk& chunk) noexcept {
    return results_.at(ops_.place_of(op), chunk.tile) + op.cut.wire_bytes(chunk.at);
  }
  /// A puller has all chunks below `end`; before that it had those below `first`.
  /// @return whether a place for a result came back.
  bool taken(TileOp& op, std::uint32_t first, std::uint32_t end) noexcept;
  /// Whether a tile of such an op waits for a place, if one is to start.
  [[nodiscard]] bool has_no_place() const noexcept { return results_.empty(); }
  /// Whether tiles that are folded, and untold, are to be told at once.
  [[nodiscard]] bool wants_results_back(std::uint32_t untold_tiles) const noexcept {
    return results_.wants_back(untold_tiles);
  }

 private:
  TileOwner(const ShardConfig& config, const TilePlaces& places, TileOps& ops, FoldQueue& folds,
            TileFormats& formats);
  /// Where a rank's part lies in a place for parts.
  [[nodiscard]] std::byte* row(std::uint16_t place, std::uint16_t rank) noexcept {
    return parts_.at(place) + rank * row_bytes_;
  }
  /// Whether a chunk needs no place, since only one rank gives a part of it that travels: what
  /// members here give and that come to the result in whatever order.
  [[nodiscard]] bool folds_chunks(const TileOp& op) const noexcept {
    return config_.nranks == 2 && !config_.folds_only() && op.spec.wire == WireFormat::kSame;
  }
  /// An entry that makes `count` elements of a result of what is still to be said, and stores them
  /// in the outputs here.
  [[nodiscard]] reduce::Entry result_of(const TileOp& op, const ChunkMemory& memory,
                                        std::uint32_t count) const noexcept;
  [[nodiscard]] bool fold(const TileOp& op, std::uint16_t place) noexcept;
  [[nodiscard]] bool fold_encoded(const TileOp& op, std::uint16_t place) noexcept;
  [[nodiscard]] bool copy_next(TileOp& op) noexcept;
  [[nodiscard]] bool load_own_part(const TileOp& op, const TileCut::Tile& tile,
                                   std::byte* row) noexcept;
  [[nodiscard]] bool is_own_in_memory(const TileOp& op) const noexcept {
    return config_.member_count == 1 && op.spec.redop != RedOp::kPremulSum && !config_.folds_only();
  }

  const ShardConfig& config_;
  TileOps& ops_;
  FoldQueue& folds_;
  TileFormats& formats_;
  const std::uint64_t row_bytes_;  ///< what one rank gives to a tile, at most
  TileScratch parts_;
  TileResults results_;
  std::vector<const std::byte*> sources_;  ///< [nranks]
};

}  // namespace gradwire::collective
