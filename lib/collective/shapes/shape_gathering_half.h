// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The gathering half of the ring, of all-gather and of broadcast: each chunk has a rank where it
/// starts with hop 0, and goes on until hop nranks-2 has brought it to the last. Each rank stores
/// it, the first one too: by a copy of its own. Of all-gather a chunk starts at the rank of its
/// process, of broadcast all of them start at the root's: a chain. Pure; any thread.
#pragma once

#include "collective/shapes/place.h"
#include "collective/shapes/shape_ring.h"

namespace gradwire::collective::gathering_half {

/// One way although an all-gather brings something from every rank: on a lane there may be no chunk
/// of the next rank's block, and then nothing that came says that the next rank has posted the op.
[[nodiscard]] constexpr OpRules rules(std::uint16_t nranks) noexcept {
  OpRules rules = whole_ring::rules(nranks);
  rules.copies_own = true;
  rules.one_way = true;
  return rules;
}

/// @param start  the rank where the chunk starts. nranks >= 2.
[[nodiscard]] constexpr Place place(std::uint16_t rank, std::uint16_t start,
                                    std::uint16_t nranks) noexcept {
  Place place;
  const int ahead = rank - start;
  const int distance = ahead < 0 ? ahead + nranks : ahead;
  place.originates = distance == 0;
  if (!place.originates) {
    place.gets_gathering = true;
    place.gathering_hop = static_cast<std::uint16_t>(distance - 1);
    place.forwards_gather = distance < nranks - 1;
  }
  return place;
}

}  // namespace gradwire::collective::gathering_half
