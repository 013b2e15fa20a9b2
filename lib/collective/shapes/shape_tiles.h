// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shape of large ops by tiles: owners pull parts of all ranks and fold them, and ranks pull
/// the results. How such an op is cut collective/tiles/tile_cut.h says. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "collective/shapes/place.h"
#include "reduce/backend.h"

namespace gradwire::collective::tiles {

/// Whether an op without a wire format goes by tiles, if no smaller shape takes it.
/// @param count  as in OpSpec.
/// @param bytes  of the whole op.
[[nodiscard]] inline bool fits(const ShapeGroup& group, Collective collective, DataType datatype,
                               std::uint64_t count, std::uint64_t bytes, RedOp redop) noexcept {
  if (!group.tiles || group.nranks < 2 || count == 0) return false;
  if (collective != Collective::kAllGather && collective != Collective::kAllReduce &&
      collective != Collective::kReduceScatter) {
    return false;
  }
  if (group.tile_costs != nullptr &&
      !group.tile_costs->tiles_are_faster(collective, bytes, group.payload_bytes)) {
    return false;
  }
  if (collective == Collective::kAllGather) return true;
  // The ring rounds after each rank, not after each member, so such parts would travel in 32 bits.
  const bool rounds = reduce::has_wide_form(datatype);
  return !rounds || (group.processes().one_each() && redop != RedOp::kPremulSum);
}

inline constexpr OpRules kRules{};
/// It arrives as a whole: when nobody needs its memory here any more.
inline constexpr std::uint64_t kArrivals = 1;

}  // namespace gradwire::collective::tiles
