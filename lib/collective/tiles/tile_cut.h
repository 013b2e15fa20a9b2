// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How an op by tiles is cut (doc/protocol/tiles.md, How an op is cut): an owner's segments into
/// tiles, tiles into chunks, which of them a lane has, and from which rank on they are folded. It
/// follows from the group and the call alone, so that every rank comes to the same answer. Pure;
/// any thread; nothing here allocates, and nothing takes longer in a larger group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/process_layout.h"
#include "base/types.h"
#include "base/wire_format.h"
#include "collective/shapes/partition.h"
#include "collective/tiles/tile_shares.h"

namespace gradwire::collective {

/// What all ranks give to a tile, at most, but for a chunk of each: a fold's sources stay in the L2
/// cache. In the simulator alone it is less, so that small ops have many tiles.
inline constexpr std::uint32_t kTileBytes = 1u << 20;

/// What a cut depends on beside the op.
struct TileGroup {
  std::uint32_t payload_bytes = 0;  ///< of a packet
  std::uint16_t lanes = 1;
  std::uint16_t all_ranks = 1;  ///< those without members too
  GroupProcesses processes;     ///< of the ranks that have members
  /// Who owns how much of an all-reduce; nullptr: each rank its segment of the ring.
  const TileShares* shares = nullptr;
  std::uint32_t tile_bytes = kTileBytes;  ///< as chunks_of_tile()
};

/// An op, as all ranks have called it.
struct TileCall {
  Collective collective = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  WireFormat format = WireFormat::kSame;
  std::uint64_t count = 0;  ///< as in OpSpec
  std::uint32_t root = 0;   ///< a process, of a reduce
};

/// Why an op cannot go by tiles, whatever the group would choose.
enum class TileRefusal : std::uint8_t {
  kNone,
  kCollective,     ///< it has no tiles
  kFormat,         ///< the format is for other datatypes
  kPayload,        ///< no element, or no block of the format, fits a packet
  kOwners,         ///< there are ranks without members, and no shares for them
  kTooManyChunks,  ///< of an owner on a lane, for 32 bits
};

/// Chunks of a tile, by the payload and how many ranks have members.
/// @param tile_bytes  of all ranks. One gives a sixteenth at most: a longer tile would only delay
///                    its result.
[[nodiscard]] constexpr std::uint32_t chunks_of_tile(
    std::uint32_t payload_bytes, std::uint16_t nranks,
    std::uint32_t tile_bytes = kTileBytes) noexcept {
  const std::uint64_t most = std::max<std::uint64_t>(tile_bytes / 16 / payload_bytes, 1);
  const std::uint64_t all = std::uint64_t{nranks} * payload_bytes;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tile_bytes / all, 1, most));
}

class TileCut {
 public:
  struct Tile {
    /// The process whose block it is of, in a reduce-scatter and an all-gather; else 0.
    std::uint16_t process_block = 0;
    std::uint16_t owner = 0;
    std::uint64_t first = 0;   ///< element: in that block, or else in the op
    std::uint32_t count = 0;   ///< elements
    std::uint32_t chunks = 0;  ///< that it has; all of an op but the last of a segment have c
  };
  struct Chunk {
    std::uint32_t tile = 0;   ///< on its lane
    std::uint32_t at = 0;     ///< element in the tile
    std::uint32_t count = 0;  ///< elements; 0: a number that a short tile lacks, and `at` is 0
  };
  /// Elements of a tile that are folded from the same rank on.
  struct Run {
    std::uint32_t at = 0;  ///< element in the tile
    std::uint32_t count = 0;
    std::uint16_t first_rank = 0;
  };

  TileCut() = default;
  /// What `group` and `call` point to outlives the cut. Nothing else may be asked if it is refused.
  TileCut(const TileGroup& group, const TileCall& call) noexcept;

  [[nodiscard]] TileRefusal refusal() const noexcept { return refusal_; }
  [[nodiscard]] bool supported() const noexcept { return refusal_ == TileRefusal::kNone; }

  /// E and c of the page.
  [[nodiscard]] std::uint32_t chunk_elements() const noexcept { return chunk_elements_; }
  [[nodiscard]] std::uint32_t chunks_of_tile() const noexcept { return chunks_of_tile_; }
  /// Bytes of so many elements of a chunk, as they travel.
  [[nodiscard]] std::uint32_t wire_bytes(std::uint32_t elements) const noexcept {
    return static_cast<std::uint32_t>(gradwire::wire_bytes(call_.format, call_.datatype, elements));
  }

  // An owner is any rank of the group: one that owns nothing has no tiles.
  [[nodiscard]] bool owns(std::uint16_t rank) const noexcept {
    return share_of(rank).elements != 0;
  }
  /// How many an owner has on a lane, and their chunks: those are numbers from 0 on, and numbers
  /// that short tiles lack are among them.
  [[nodiscard]] std::uint32_t tiles(std::uint16_t owner, std::uint16_t lane) const noexcept {
    return static_cast<std::uint32_t>(tiles_on_lane(share_of(owner), lane));
  }
  [[nodiscard]] std::uint64_t chunks(std::uint16_t owner, std::uint16_t lane) const noexcept {
    return std::uint64_t{tiles(owner, lane)} * chunks_of_tile_;
  }
  /// Of these, those from 0 on of which it is plain that none is lacking: of one segment all tiles
  /// but the last are whole.
  [[nodiscard]] std::uint32_t whole_chunks(std::uint16_t owner, std::uint16_t lane) const noexcept {
    const Share share = share_of(owner);
    const std::uint64_t tiles = share.segments == 1 ? tiles_on_lane(share, lane) : 0;
    return tiles == 0 ? 0 : static_cast<std::uint32_t>(tiles - 1) * chunks_of_tile_;
  }
  /// @param index  below tiles().
  [[nodiscard]] Tile tile(std::uint16_t owner, std::uint16_t lane,
                          std::uint32_t index) const noexcept;
  /// @param number  below chunks().
  [[nodiscard]] Chunk chunk(std::uint16_t owner, std::uint16_t lane,
                            std::uint32_t number) const noexcept {
    return chunk_of(tile(owner, lane, number / chunks_of_tile_), number);
  }
  /// As chunk(), if the tile is known that has it.
  [[nodiscard]] Chunk chunk_of(const Tile& tile, std::uint32_t number) const noexcept {
    Chunk chunk{.tile = number / chunks_of_tile_};
    const std::uint32_t index = number % chunks_of_tile_;
    if (index >= tile.chunks) return chunk;
    chunk.at = index * chunk_elements_;
    chunk.count = std::min(chunk_elements_, tile.count - chunk.at);
    return chunk;
  }

  /// In how many runs a tile is folded: none in an all-gather.
  [[nodiscard]] std::uint32_t runs(const Tile& tile) const noexcept;
  /// @param index  below runs().
  [[nodiscard]] Run run(const Tile& tile, std::uint32_t index) const noexcept;

 private:
  /// What an owner has: so many segments of one size.
  struct Share {
    std::uint64_t first = 0;     ///< element, of a part of an all-reduce
    std::uint64_t elements = 0;  ///< of a segment; 0: it owns nothing
    std::uint32_t segments = 0;
    std::uint16_t place = 0;  ///< among the owners
  };

  [[nodiscard]] static TileRefusal judge(const TileGroup& group, const TileCall& call) noexcept;
  [[nodiscard]] bool is_all_reduce() const noexcept {
    return call_.collective == Collective::kAllReduce;
  }
  [[nodiscard]] bool has_blocks() const noexcept {
    return call_.collective == Collective::kReduceScatter ||
           call_.collective == Collective::kAllGather;
  }
  [[nodiscard]] Share share_of(std::uint16_t owner) const noexcept;
  /// First element of the part of an all-reduce that a rank owns; all_ranks: the end.
  [[nodiscard]] std::uint64_t begin_of(std::uint32_t rank) const noexcept;
  [[nodiscard]] std::uint64_t tile_elements() const noexcept {
    return std::uint64_t{chunks_of_tile_} * chunk_elements_;
  }
  [[nodiscard]] std::uint64_t tiles_of_segment(const Share& share) const noexcept {
    return (share.elements + tile_elements() - 1) / tile_elements();
  }
  [[nodiscard]] std::uint64_t tiles_of(const Share& share) const noexcept {
    return share.segments * tiles_of_segment(share);
  }
  /// The first that the lane has of the tiles of the owner at that place.
  [[nodiscard]] std::uint32_t first_on_lane(std::uint16_t place,
                                            std::uint16_t lane) const noexcept {
    return (lane + group_.lanes - place % group_.lanes) % group_.lanes;
  }
  [[nodiscard]] std::uint64_t tiles_on_lane(const Share& share, std::uint16_t lane) const noexcept {
    const std::uint64_t all = tiles_of(share);
    const std::uint32_t first = first_on_lane(share.place, lane);
    return all > first ? (all - 1 - first) / group_.lanes + 1 : 0;
  }
  /// Whether the chunks of a share on the lane that has most of them can be numbered.
  [[nodiscard]] bool fits_numbers(const Share& share) const noexcept {
    return (tiles_of(share) + group_.lanes - 1) / group_.lanes <= UINT32_MAX / chunks_of_tile_;
  }
  [[nodiscard]] bool all_fit_numbers() const noexcept;

  TileGroup group_;
  TileCall call_;
  Partition ring_;  ///< the ring's, of an all-reduce: where folds begin
  std::uint32_t chunk_elements_ = 1;
  std::uint32_t chunks_of_tile_ = 1;
  std::uint64_t unit_elements_ = 1;  ///< shares begin at such borders
  std::uint64_t units_ = 0;
  std::uint64_t segment_units_ = 0;  ///< of an all-reduce's owner, if there are no shares
  TileRefusal refusal_ = TileRefusal::kNone;
};

}  // namespace gradwire::collective
