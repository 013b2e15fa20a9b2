// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shape of an op of one rank: every chunk is folded from the members' inputs into their
/// outputs, and no packet moves. Pure; any thread.
#pragma once

#include "collective/shapes/place.h"

namespace gradwire::collective::local {

[[nodiscard]] constexpr bool fits(const ShapeGroup& group) noexcept { return group.nranks == 1; }
inline constexpr OpRules kRules{};
/// How many segments an op has.
inline constexpr std::uint16_t kSegments = 1;
[[nodiscard]] inline ChunkRange own_chunks(const Partition& partition) noexcept {
  return {0, partition.total_chunks()};
}
/// A chunk finishes once, where it is folded.
[[nodiscard]] inline std::uint64_t arrivals(std::uint64_t lane_chunks) noexcept {
  return lane_chunks;
}

}  // namespace gradwire::collective::local
