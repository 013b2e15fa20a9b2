// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How much scratch memory a lane of a group has for ops by tiles (doc/protocol/tiles.md, Memory):
/// places for the parts of tiles that are summed, and for results. No other rank needs to know it.
/// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/tiles/tile_cut.h"

namespace gradwire::collective {

struct TilePlaces {
  std::uint64_t part_bytes = 0;    ///< of a place for the parts of a tile, of all ranks
  std::uint64_t result_bytes = 0;  ///< of a place for a result: T of the page
  std::uint32_t parts = 0;         ///< places: P
  std::uint32_t results = 0;       ///< R

  /// Bytes of all places: more than was given where that is too little for the fewest.
  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept {
    return parts * part_bytes + results * result_bytes;
  }
};

/// @param nranks         that have members.
/// @param scratch_bytes  of a lane: `transport.tile_scratch_kib`. Three quarters are for parts.
[[nodiscard]] constexpr TilePlaces tile_places(std::uint32_t payload_bytes, std::uint16_t nranks,
                                               std::uint64_t scratch_bytes,
                                               std::uint32_t tile_bytes = kTileBytes) noexcept {
  TilePlaces places;
  places.result_bytes =
      std::uint64_t{chunks_of_tile(payload_bytes, nranks, tile_bytes)} * payload_bytes;
  places.part_bytes = nranks * places.result_bytes;
  places.parts = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(3 * scratch_bytes / (4 * places.part_bytes), 2, 64));
  places.results = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(scratch_bytes / (4 * places.result_bytes), 4, 1024));
  return places;
}

}  // namespace gradwire::collective
