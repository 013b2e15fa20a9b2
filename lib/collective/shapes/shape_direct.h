// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shapes of ops whose packets go between any two ranks.
///
/// Direct, of small ops: one hop in place of up to 2(nranks-1). In an all-reduce each rank sends
/// its whole part to each other rank, and each folds for itself when it has all parts. In a reduce
/// and a reduce-scatter each rank sends its part to the owner, the rank that gets the sum; in a
/// broadcast, an all-gather and a barrier the owner sends what it has to all.
///
/// Two-step, of larger all-reduces: first as in a reduce-scatter, then as in an all-gather. There
/// are as many segments as owners: all ranks, or those that the group's table names.
///
/// Folds go in ring order, rounded after each rank: in an all-reduce an element of segment s from
/// rank s on, else from the rank after the owner. So the bits are the ring's. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"
#include "collective/shapes/place.h"
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
/// Chunks of an op that may belong to one owner: two bits each in receipts.
inline constexpr std::uint32_t kOwnedMax = kChunksMax / 2;

/// What is sent in an op.
struct Steps {
  bool to_all = false;      ///< each rank's part to each other rank
  bool to_owner = false;    ///< of each segment its part to its owner
  bool from_owner = false;  ///< what the owner has of a segment to all
};
[[nodiscard]] constexpr Steps steps_of(Collective collective, bool two_step) noexcept {
  switch (collective) {
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return {.to_owner = true};
    case Collective::kBroadcast:
    case Collective::kAllGather:
    case Collective::kBarrier:
      return {.from_owner = true};
    default:
      break;
  }
  return two_step ? Steps{.to_owner = true, .from_owner = true} : Steps{.to_all = true};
}

/// Segments of `rank`, of those that there are.
struct Owned {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};
[[nodiscard]] inline Owned owned_by(const Route& route, std::uint16_t rank,
                                    std::uint64_t segments) noexcept {
  const auto most = [&](std::uint64_t segment) { return std::min(segment, segments); };
  // A rank without members owns what it sums in two steps alone.
  if (rank >= route.nranks && route.owners == nullptr) return {};
  if (route.blocks != nullptr) {
    return {most(route.blocks->first_place(rank)), most(route.blocks->first_place(rank + 1u))};
  }
  if (route.owners != nullptr) {
    if (!route.owners->has(rank)) return {};
    const std::uint64_t place = route.owners->place_of(rank);
    return {most(place), most(place + 1)};
  }
  if (rank < route.first_home) return {};
  const auto first =
      std::uint64_t{route.segments_per_rank} * std::uint64_t(rank - route.first_home);
  return {most(first), most(first + route.segments_per_rank)};
}

/// How an op with owners is cut: bytes of what travels.
[[nodiscard]] inline Partition owners_partition(const ShapeGroup& group, Collective collective,
                                                DataType datatype, std::uint64_t count) noexcept {
  const DataType part = part_type(group, datatype);
  switch (collective) {
    case Collective::kAllReduce:
      return Partition(count, part, group.owner_count(), group.payload_bytes);
    case Collective::kReduce:
      return Partition(count, part, 1, group.payload_bytes);
    case Collective::kBroadcast:
      return Partition(count, datatype, 1, group.payload_bytes);
    case Collective::kReduceScatter:
      return Partition::of_blocks(group.processes().count(), count, part, group.payload_bytes);
    case Collective::kAllGather:
      return Partition::of_blocks(group.processes().count(), count, datatype, group.payload_bytes);
    default:
      break;
  }
  // A byte of each rank's, which is 0.
  return Partition::of_blocks(group.nranks, 1, DataType::kUint8, group.payload_bytes);
}

/// Whether an op fits that is no all-reduce. Two ranks gain nothing.
[[nodiscard]] inline bool fits_with_owners(const ShapeGroup& group, Collective collective,
                                           DataType datatype, std::uint64_t count) noexcept {
  if (group.nranks < 3 || group.direct_bytes == 0) return false;
  if (collective == Collective::kBarrier) return true;
  // Each is half of an all-reduce in two steps.
  const std::uint64_t bound = std::max(group.direct_bytes, group.two_step_bytes);
  if (count == 0 || count > bound) return false;
  const bool reduced =
      collective == Collective::kReduce || collective == Collective::kReduceScatter;
  const bool rooted = collective == Collective::kReduce || collective == Collective::kBroadcast;
  const std::uint32_t width = element_bytes(reduced ? part_type(group, datatype) : datatype);
  std::uint64_t most = 1;  // blocks that one rank has
  if (!rooted) most = group.most_members();
  const std::uint64_t block = aligned(count * width);
  const std::uint64_t chunks =
      most * owners_partition(group, collective, datatype, count).chunks_per_segment();
  return block * most * group.nranks <= bound && chunks <= kOwnedMax;
}

/// Whether an all-reduce that is not direct goes in two steps. An owner gets as much as if all were
/// owners: the fewer there are, the smaller is the largest op.
[[nodiscard]] inline bool fits_two_steps(const ShapeGroup& group, DataType datatype,
                                         std::uint64_t count) noexcept {
  if (group.all_ranks() < 3 || count == 0 || count > group.two_step_bytes) return false;
  const Partition partition = owners_partition(group, Collective::kAllReduce, datatype, count);
  const std::uint64_t segment =
      partition.segment_elements() * element_bytes(part_type(group, datatype));
  return segment * group.nranks <= group.two_step_bytes &&
         partition.chunks_per_segment() <= kOwnedMax;
}

/// Scratch memory of the largest op that fits: own parts, others', and sums.
/// @param keeps_sums  whether those of other owners are kept until all can be stored.
[[nodiscard]] constexpr std::uint64_t scratch_bytes(std::uint64_t direct_bytes,
                                                    std::uint64_t two_step_bytes,
                                                    std::uint64_t gathered_bytes,
                                                    bool keeps_sums) noexcept {
  const std::uint64_t sums = keeps_sums ? two_step_bytes : two_step_bytes / 2;
  return std::max({2 * direct_bytes, 2 * two_step_bytes + sums, gathered_bytes});
}

inline constexpr OpRules kRules{};
inline constexpr std::uint16_t kSegments = 1;
/// It arrives as a whole: when the last contribution is there.
[[nodiscard]] constexpr std::uint64_t arrivals(std::uint64_t lane_chunks) noexcept {
  return lane_chunks > 0 ? 1 : 0;
}

}  // namespace gradwire::collective::direct
