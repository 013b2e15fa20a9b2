// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What each process of a group reads and writes in an op, how its input and output may lie, and
/// the text of a call. Client, daemon and bench all use this one description. Processes are
/// numbered through the group, as base/process_layout.h says. Any thread; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/types.h"
#include "base/wire_format.h"

namespace gradwire {

/// Its index in kCollectives.
[[nodiscard]] constexpr std::size_t index_of(Collective collective) noexcept {
  return is_valid(collective) ? static_cast<std::size_t>(collective) - 1 : kCollectives.size() - 1;
}

/// One op as a process calls it. Parameters that a collective does not have are 0.
struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  /// Elements, as in NCCL: of an all-gather and a gather what each process contributes, of a
  /// reduce-scatter and a scatter what each process gets, of an all-to-all what each sends to each,
  /// else of the whole op.
  std::uint64_t count = 0;
  std::uint32_t root = 0;  ///< process of a collective that has one; of a send or recv the other
  std::uint32_t tag = 0;
  WireFormat wire = WireFormat::kSame;  ///< how elements travel
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

/// A process among those of its group.
struct ProcessPlace {
  std::uint32_t process = 0;
  std::uint32_t processes = 1;
};

/// What one process reads and writes, in bytes; 0 if it does not take part on that side.
struct CollectiveExtent {
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  /// If in place: the offset at which the smaller of the two begins in the larger.
  std::uint64_t in_place_at = 0;
  bool may_be_in_place = true;
};

/// Elements of an op: more than any memory has, and few enough that products do not overflow.
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;

/// Whether what it reads or writes has a block of `count` elements for each process.
[[nodiscard]] constexpr bool has_blocks(Collective collective) noexcept {
  return collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
         collective == Collective::kGather || collective == Collective::kScatter ||
         collective == Collective::kAllToAll;
}

/// The whole op's elements, of an all-to-all one process's: count x processes if it has blocks.
/// @return nothing if that is 2^64 or more.
[[nodiscard]] constexpr std::optional<std::uint64_t> whole_count(const CollectiveCall& call,
                                                                 std::uint32_t processes) noexcept {
  if (!has_blocks(call.collective)) return call.count;
  if (processes != 0 && call.count > UINT64_MAX / processes) return std::nullopt;
  return call.count * processes;
}

/// @param place  process < processes.
/// @return nothing if the whole op has 2^64 bytes or more.
[[nodiscard]] constexpr std::optional<CollectiveExtent> extent_of(
    const CollectiveCall& call, const ProcessPlace& place) noexcept {
  const std::uint64_t element = element_bytes(call.datatype);
  const auto whole = whole_count(call, place.processes);
  if (!whole || (element != 0 && *whole > UINT64_MAX / element)) return std::nullopt;
  const std::uint64_t all = *whole * element;
  const std::uint64_t own = call.count * element;
  const bool is_root = place.process == call.root;
  switch (call.collective) {
    case Collective::kAllReduce:
      return CollectiveExtent{all, all, 0};
    case Collective::kReduce:
      return CollectiveExtent{all, is_root ? all : 0, 0};
    case Collective::kBroadcast:
      return CollectiveExtent{is_root ? all : 0, all, 0};
    case Collective::kAllGather:
      return CollectiveExtent{own, all, place.process * own};
    case Collective::kReduceScatter:
      return CollectiveExtent{all, own, place.process * own};
    case Collective::kGather:
      return CollectiveExtent{own, is_root ? all : 0, place.process * own};
    case Collective::kScatter:
      return CollectiveExtent{is_root ? all : 0, own, place.process * own};
    case Collective::kAllToAll:
      return CollectiveExtent{all, all, 0, false};
    case Collective::kSend:
      return CollectiveExtent{own, 0, 0};
    case Collective::kRecv:
      return CollectiveExtent{0, own, 0};
    case Collective::kBarrier:
      break;
  }
  return CollectiveExtent{};
}

/// Whether input and output are placed as an op allows: disjoint, or in place. In place they begin
/// at the same byte, but for an all-gather and a gather, whose input is then its own block of the
/// output, and for a reduce-scatter and a scatter, whose output is its own block of the input.
[[nodiscard]] constexpr bool may_lie(std::uintptr_t input, std::uintptr_t output,
                                     const CollectiveExtent& extent) noexcept {
  if (extent.input == 0 || extent.output == 0) return true;
  const bool apart =
      input < output ? output - input >= extent.input : input - output >= extent.output;
  if (apart) return true;
  if (!extent.may_be_in_place) return false;
  return extent.output >= extent.input ? input - output == extent.in_place_at
                                       : output - input == extent.in_place_at;
}

/// "all-reduce sum of 1000 fp32 with tag 7", "broadcast of 8 uint8 from process 3 with tag 0",
/// "reduce-scatter avg of 256 fp32 as int8 with tag 0": what the error of a mismatch says of both
/// sides.
struct CallText {
  char text[96] = {};
};
[[nodiscard]] CallText text_of(const CollectiveCall& call) noexcept;

}  // namespace gradwire
