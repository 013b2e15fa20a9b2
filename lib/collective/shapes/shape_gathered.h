// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Gathered: tiny all-reduces, all-gathers and barriers of so many ranks that a packet from each to
/// each is too many. What each rank gives, its slot, goes to all in ceil(log2 nranks) steps (a
/// Bruck all-gather): in step t rank i sends the slots of ranks i, i+1, ... to rank i - 2^t. Then
/// each folds all parts in ring order, so the bits are the ring's. Pure; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/types.h"
#include "collective/shapes/place.h"
#include "collective/shapes/shape_direct.h"

namespace gradwire::collective::gathered {

/// Slots begin at multiples of it.
inline constexpr std::uint32_t kSlotAlignment = 8;
/// Steps of the widest gathered op.
inline constexpr std::uint32_t kStepsMax = 10;

[[nodiscard]] constexpr std::uint32_t steps(std::uint16_t nranks) noexcept {
  return static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(nranks - 1)));
}
/// Slots in the message of a step.
[[nodiscard]] constexpr std::uint32_t slots(std::uint32_t step, std::uint16_t nranks) noexcept {
  return std::min(1u << step, nranks - (1u << step));
}
/// By how many ranks `to` stands before `from`: a message goes there if it is a power of two.
[[nodiscard]] constexpr std::uint32_t distance(std::uint16_t from, std::uint16_t to,
                                               std::uint16_t nranks) noexcept {
  return from >= to ? from - to : from + nranks - to;
}
[[nodiscard]] constexpr std::uint16_t before(std::uint16_t rank, std::uint32_t by,
                                             std::uint16_t nranks) noexcept {
  return static_cast<std::uint16_t>((rank + nranks - by) % nranks);
}
[[nodiscard]] constexpr std::uint16_t after(std::uint16_t rank, std::uint32_t by,
                                            std::uint16_t nranks) noexcept {
  return static_cast<std::uint16_t>((rank + by) % nranks);
}
/// A barrier's has no slots, and one byte.
[[nodiscard]] constexpr std::uint64_t message_bytes(std::uint64_t slot, std::uint32_t step,
                                                    std::uint16_t nranks) noexcept {
  return slot == 0 ? 1 : slot * slots(step, nranks);
}

/// Bytes of a part of an all-reduce, or of a process's block of an all-gather.
[[nodiscard]] constexpr std::uint64_t block_bytes(const ShapeGroup& group, Collective collective,
                                                  DataType datatype, std::uint64_t count) noexcept {
  const bool reduced = collective == Collective::kAllReduce;
  return count * element_bytes(reduced ? direct::part_type(group, datatype) : datatype);
}
[[nodiscard]] inline std::uint64_t slot_bytes(const ShapeGroup& group, Collective collective,
                                              DataType datatype, std::uint64_t count) noexcept {
  if (collective == Collective::kBarrier) return 0;
  std::uint64_t bytes = block_bytes(group, collective, datatype, count);
  if (collective == Collective::kAllGather) bytes *= group.most_members();
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

/// Whether an op fits.
[[nodiscard]] inline bool fits(const ShapeGroup& group, Collective collective, DataType datatype,
                               std::uint64_t count) noexcept {
  if (group.nranks < 3 || group.nranks <= group.gathered_ranks || group.gathered_bytes == 0 ||
      group.direct_bytes == 0) {
    return false;
  }
  if (collective == Collective::kBarrier) return true;
  if (collective != Collective::kAllReduce && collective != Collective::kAllGather) return false;
  if (count == 0 || count > group.gathered_bytes) return false;
  const std::uint64_t slot = slot_bytes(group, collective, datatype, count);
  // The last two messages are the longest: all slots but those of the other.
  const std::uint32_t last = steps(group.nranks) - 1;
  const std::uint32_t most = std::max(slots(last, group.nranks), last > 0 ? 1u << (last - 1) : 1u);
  return slot * group.nranks <= group.gathered_bytes &&
         block_bytes(group, collective, datatype, count) <= group.payload_bytes &&
         slot * most <= std::uint64_t{direct::kChunksMax} * group.payload_bytes;
}

/// One chunk, so that all of an op is on one lane: what a rank, or a process, gives.
[[nodiscard]] inline Partition partition(const ShapeGroup& group, Collective collective,
                                         DataType datatype, std::uint64_t count) noexcept {
  if (collective == Collective::kBarrier) {
    return Partition(1, DataType::kUint8, 1, group.payload_bytes);
  }
  const bool reduced = collective == Collective::kAllReduce;
  return Partition(count, reduced ? direct::part_type(group, datatype) : datatype, 1,
                   group.payload_bytes);
}

}  // namespace gradwire::collective::gathered
