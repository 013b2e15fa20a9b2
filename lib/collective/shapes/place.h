// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a shape says of a chunk and of an op: the words that all shapes have in common. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/process_layout.h"
#include "collective/shapes/owners.h"
#include "collective/shapes/partition.h"
#include "collective/shapes/tile_costs.h"

namespace gradwire::collective {

/// Index of a link among those of a shard. Which rank is at its other end the shape knows.
using LinkIndex = std::uint8_t;

/// What a shape depends on beside the op.
struct ShapeGroup {
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;               ///< that have members
  std::uint16_t member_count = 1;         ///< of this rank; if it has none, as in ShardConfig
  std::uint64_t exchange_bytes = 0;       ///< most bytes of an exchange
  const ProcessLayout* layout = nullptr;  ///< nullptr: every rank has as many members
  std::uint64_t direct_bytes = 0;         ///< of all ranks' parts of a direct op, together
  std::uint32_t payload_bytes = 0;        ///< of a packet; for direct ops alone
  std::uint64_t two_step_bytes = 0;       ///< of the parts of a two-step op, together
  std::uint64_t gathered_bytes = 0;       ///< of all slots of a gathered op
  std::uint16_t gathered_ranks = 0;       ///< no op of so many ranks, or fewer, is gathered
  const Owners* owners = nullptr;         ///< of ops in two steps; nullptr: all ranks
  bool tiles = false;                     ///< large ops without a wire format may go by tiles
  const TileCosts* tile_costs = nullptr;  ///< which of them do; nullptr: all

  [[nodiscard]] constexpr GroupProcesses processes() const noexcept {
    return {nranks, member_count, layout};
  }
  /// How many ranks sum all-reduces in two steps.
  [[nodiscard]] std::uint16_t owner_count() const noexcept {
    return owners == nullptr ? nranks : owners->count();
  }
  /// Those without members, too: each of them is an owner.
  [[nodiscard]] std::uint16_t all_ranks() const noexcept {
    return owners == nullptr ? nranks : owners->nranks();
  }
  /// Members of the rank that has most.
  [[nodiscard]] constexpr std::uint16_t most_members() const noexcept {
    std::uint16_t most = member_count;
    for (std::uint16_t other = 0; layout != nullptr && other < nranks; ++other) {
      if (layout->members_of(other) > most) most = layout->members_of(other);
    }
    return most;
  }
};

/// What the way of an op's chunks depends on, beside the chunk's segment.
struct Route {
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;
  std::uint16_t segments_per_rank = 1;    ///< of segments that are processes' blocks
  std::uint16_t first_home = 0;           ///< the rank of segment 0
  const ProcessLayout* blocks = nullptr;  ///< of processes, if ranks differ in how many they have
  const Owners* owners = nullptr;         ///< of an op in two steps, if not all ranks are

  /// The rank that a segment belongs to: where it starts, or ends.
  [[nodiscard]] std::uint16_t home(std::uint16_t segment) const noexcept {
    if (blocks != nullptr) [[unlikely]]
      return blocks->rank_of(blocks->process_at(segment));
    if (owners != nullptr) [[unlikely]]
      return owners->rank_at(segment);
    return static_cast<std::uint16_t>(first_home + segment / segments_per_rank);
  }
};

/// What a rank has to do with a chunk: its role, the hops by which the chunk comes, and whether it
/// goes on. What goes on goes to OpRules::to.
struct Place {
  bool originates = false;      ///< this rank sends hop 0
  bool gets_reducing = false;   ///< one reducing hop arrives here: `reducing_hop`
  bool gets_gathering = false;  ///< one gathering hop arrives here: `gathering_hop`
  std::uint16_t reducing_hop = 0;
  std::uint16_t gathering_hop = 0;
  bool reduces_last = false;      ///< the reducing hop that arrives is the last
  bool forwards_reduced = false;  ///< what the reducing hop comes to goes on
  bool forwards_gather = false;   ///< the gathering hop that arrives goes on
};

/// What holds for all chunks of an op.
struct OpRules {
  LinkIndex to = 0;           ///< the link by which chunks go from here
  LinkIndex from = 0;         ///< the link by which they come
  bool sends = false;         ///< chunks go anywhere: else each is folded here, from own inputs
  bool whole_window = false;  ///< no transit has to find room beside own chunks
  /// What arrives is folded to where this rank's own part lies, if the op is in place: it waits
  /// until that part has been read.
  bool folds_over_own = false;
  /// What goes on has no output to wait in: it keeps its packet until the next rank has the chunk.
  bool holds = false;
  bool waits_for_all = false;  ///< nothing starts or is done before all ranks have posted the op
  /// A rank may be through with it before the next rank has posted it. Then it is done only when
  /// that rank has, if it sent chunks ahead of that.
  bool one_way = false;
  /// No packet of it shows what was called: it is done when the next rank has said so.
  bool compares = false;
  bool copies_own = false;  ///< what starts here is stored here too, from the input
};

/// Chunks [first, end) of an op.
struct ChunkRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};

}  // namespace gradwire::collective
