// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shape of a small all-reduce: each rank sends its whole part to each other rank, and each
/// folds for itself when it has all parts, in ring order: an element of segment s from rank s on,
/// rounded after each rank. So the bits are the ring's, in one hop in place of 2(nranks-1). Pure;
/// any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"
#include "collective/place.h"
#include "reduce/backend.h"

namespace gradwire::collective::direct {

/// Chunks that a lane may have of an op: a bit each in receipts.
inline constexpr std::uint32_t kChunksMax = 64;
/// What each rank gives begins at a multiple of this many bytes.
inline constexpr std::uint32_t kAlignment = 64;

[[nodiscard]] constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The type in which ranks' parts travel. The ring rounds after each rank, not after each member:
/// if any rank has several, values of 16 bits travel in 32.
[[nodiscard]] constexpr bool is_wide(const ShapeGroup& group, DataType datatype) noexcept {
  return !group.processes().one_each() && reduce::has_wide_form(datatype);
}
[[nodiscard]] constexpr DataType part_type(const ShapeGroup& group, DataType datatype) noexcept {
  return is_wide(group, datatype) ? DataType::kFloat32 : datatype;
}

/// @param bytes  of the op.
[[nodiscard]] constexpr bool fits(const ShapeGroup& group, std::uint64_t bytes,
                                  DataType datatype) noexcept {
  if (group.nranks < 2 || bytes == 0 || bytes > group.direct_bytes) return false;
  const std::uint64_t part = is_wide(group, datatype) ? 2 * bytes : bytes;
  return aligned(part) * group.nranks <= group.direct_bytes &&
         part <= std::uint64_t{kChunksMax} * group.payload_bytes;
}
inline constexpr OpRules kRules{};
inline constexpr std::uint16_t kSegments = 1;
/// It arrives as a whole: when the last contribution is there.
[[nodiscard]] constexpr std::uint64_t arrivals(std::uint64_t lane_chunks) noexcept {
  return lane_chunks > 0 ? 1 : 0;
}

}  // namespace gradwire::collective::direct
