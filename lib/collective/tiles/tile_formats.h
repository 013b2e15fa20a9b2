// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Elements of ops by tiles that travel in another format than the op's datatype
/// (doc/protocol/formats.md, The order of an op): parts as a source makes them, sums as an owner
/// makes them of parts, and results as they are stored. One lane owns it; it allocates at
/// construction only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/shard_config.h"
#include "collective/tiles/tile_ops.h"
#include "reduce/formats/codec.h"

namespace gradwire::collective {

/// Where the parts of a tile lie, of all ranks.
struct TileRows {
  const std::byte* first = nullptr;  ///< rank 0's
  std::uint64_t bytes = 0;           ///< from one to the next
};

class TileFormats {
 public:
  /// @param config  outlives it.
  explicit TileFormats(const ShardConfig& config);

  // For an op with a format. @return whether the codec took it: false is a mistake of ours.
  /// What this rank gives to a chunk: its members' elements, folded and encoded.
  /// @param wire  [TileCut::wire_bytes(chunk.count)]
  [[nodiscard]] bool make_part(const TileOp& op, const TileCut::Tile& tile,
                               const TileCut::Chunk& chunk, std::byte* wire) noexcept;
  /// What a chunk of a result decodes to goes to the outputs of all members.
  [[nodiscard]] bool store(const TileOp& op, const TileCut::Tile& tile, const TileCut::Chunk& chunk,
                           reduce::BytesIn wire) noexcept;
  /// Sums a tile of which all parts are there, and stores it in the outputs of this rank's members
  /// that get it, if it has any.
  /// @param index   of the tile
  /// @param result  where it is encoded to; nullptr if it does not travel.
  [[nodiscard]] bool fold(const TileOp& op, std::uint32_t index, const TileRows& rows,
                          std::byte* result) noexcept;

 private:
  /// A chunk, and which ranks' parts come first in it.
  struct Sum {
    const TileOp& op;
    const TileCut::Tile& tile;
    const TileCut::Chunk& chunk;
    const TileRows& rows;
    std::uint32_t run = 0;  ///< in which its first element lies
  };
  [[nodiscard]] bool fold_chunk(const Sum& sum, std::byte* result) noexcept;
  void line_up(const Sum& sum, std::uint16_t first_rank) noexcept;
  [[nodiscard]] bool sum_runs(const Sum& sum) noexcept;
  void copy_to_others(const TileOp& op, const TileCut::Tile& tile,
                      const TileCut::Chunk& chunk) noexcept;

  const ShardConfig& config_;
  reduce::FormatCodec codec_;
  std::array<reduce::BytesIn, kMaxMembers> members_;
  std::vector<reduce::BytesIn> parts_;  ///< [nranks]
  /// [the largest chunk's elements] of fp32: of a chunk that is folded in several runs.
  std::vector<float> sum_;
  std::vector<float> run_sum_;
};

}  // namespace gradwire::collective
