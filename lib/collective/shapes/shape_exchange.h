// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shape of a small op of two ranks: they send each other their whole inputs, and each folds
/// for itself. As many bytes cross the wire as in the ring, in one hop and not in two. The bits are
/// the same on both and as in the ring, since every fold of two values gives the same bits either
/// way round. With several members it would not: the order of three values counts. Pure; any
/// thread.
#pragma once

#include "collective/shapes/place.h"
#include "collective/shapes/shape_ring.h"

namespace gradwire::collective::exchange {

[[nodiscard]] constexpr bool fits(const ShapeGroup& group, std::uint64_t bytes) noexcept {
  return group.nranks == 2 && group.processes().one_each() && bytes <= group.exchange_bytes;
}
inline constexpr OpRules kRules{.to = kDownstream,
                                .from = upstream_link(2),
                                .sends = true,
                                .whole_window = true,
                                .folds_over_own = true};
inline constexpr std::uint16_t kSegments = 1;
[[nodiscard]] inline ChunkRange own_chunks(const Partition& partition) noexcept {
  return {0, partition.total_chunks()};
}
/// Each chunk of the other rank's comes once.
[[nodiscard]] inline std::uint64_t arrivals(std::uint64_t lane_chunks) noexcept {
  return lane_chunks;
}
/// Any chunk starts at both ranks, and is folded where it arrives.
inline constexpr Place kPlace{.originates = true, .gets_reducing = true, .reduces_last = true};

}  // namespace gradwire::collective::exchange
