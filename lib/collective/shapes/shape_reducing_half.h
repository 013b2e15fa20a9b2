// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The reducing half of the ring, of reduce-scatter and of reduce: each chunk has a rank where it
/// ends. It starts at the rank after that one, hop 0, and each rank on its way adds its members'
/// part; hop nranks-2 brings the sum to where it ends. Of reduce-scatter a chunk ends at the rank
/// of its process, of reduce all of them end at the root's: a chain. Pure; any thread.
///
/// A rank on the way has no output in which a chunk could wait: such a chunk keeps its packet
/// (OpRules::holds), and none starts before all ranks have posted the op
/// (OpRules::waits_for_all). With two ranks nothing goes on, and neither is needed.
#pragma once

#include "collective/shapes/place.h"
#include "collective/shapes/shape_ring.h"

namespace gradwire::collective::reducing_half {

[[nodiscard]] constexpr OpRules rules(std::uint16_t nranks, bool has_root) noexcept {
  OpRules rules = whole_ring::rules(nranks);
  rules.holds = nranks > 2;
  rules.waits_for_all = nranks > 2;
  // With two ranks nothing may come on a lane that says that the other has posted a
  // reduce-scatter, either.
  rules.one_way = has_root || nranks == 2;
  return rules;
}

/// @param end  the rank where the chunk ends. nranks >= 2.
[[nodiscard]] constexpr Place place(std::uint16_t rank, std::uint16_t end,
                                    std::uint16_t nranks) noexcept {
  Place place;
  const int behind = rank - end - 1;
  const int distance = behind < 0 ? behind + nranks : behind;  // from where it starts
  place.originates = distance == 0;
  if (!place.originates) {
    place.gets_reducing = true;
    place.reducing_hop = static_cast<std::uint16_t>(distance - 1);
    place.reduces_last = rank == end;
    place.forwards_reduced = !place.reduces_last;
  }
  return place;
}

/// The rank whose chunks start at `rank`.
[[nodiscard]] constexpr std::uint16_t starts_for(std::uint16_t rank,
                                                 std::uint16_t nranks) noexcept {
  return upstream_rank(rank, nranks);
}

}  // namespace gradwire::collective::reducing_half
