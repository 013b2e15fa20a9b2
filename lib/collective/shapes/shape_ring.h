// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The shape of all other ops: a segment for each rank. Segment s starts at rank s with hop 0, is
/// fully reduced where hop nranks-2 arrives, and goes on from there until hop 2(nranks-1)-1
/// arrives. So a rank has two links: data goes down to the next rank, and comes from the one before
/// it. Pure; any thread.
#pragma once

#include "collective/shapes/place.h"

namespace gradwire::collective {

/// The ring's links, which all shapes of today use: one for each other rank that is a neighbor. A
/// group of one rank has none.
inline constexpr LinkIndex kDownstream = 0;
/// That of the rank before: with two ranks it is the next one, too.
[[nodiscard]] constexpr LinkIndex upstream_link(std::uint16_t nranks) noexcept {
  return nranks == 2 ? kDownstream : 1;
}
[[nodiscard]] constexpr std::size_t link_count(std::uint16_t nranks) noexcept {
  return nranks > 2 ? 2 : nranks - 1;
}
[[nodiscard]] constexpr std::uint16_t upstream_rank(std::uint16_t rank,
                                                    std::uint16_t nranks) noexcept {
  return static_cast<std::uint16_t>((rank + nranks - 1) % nranks);
}
[[nodiscard]] constexpr std::uint16_t downstream_rank(std::uint16_t rank,
                                                      std::uint16_t nranks) noexcept {
  return static_cast<std::uint16_t>((rank + 1) % nranks);
}

/// nranks >= 2.
[[nodiscard]] constexpr Place ring_place(std::uint16_t rank, std::uint16_t segment,
                                         std::uint16_t nranks) noexcept {
  Place place;
  // The sender of hop h is rank segment + h; the receiver is one further.
  const int ahead = rank - 1 - segment;
  const int distance = ahead < 0 ? ahead + nranks : ahead;
  const int last_hop = 2 * nranks - 3;
  place.originates = rank == segment;
  if (!place.originates) {
    place.gets_reducing = true;
    place.reducing_hop = static_cast<std::uint16_t>(distance);
    place.reduces_last = distance == nranks - 2;
    place.forwards_reduced = true;
  }
  const int gathering_hop = place.originates ? nranks - 1 : distance + nranks;
  if (gathering_hop <= last_hop) {
    place.gets_gathering = true;
    place.gathering_hop = static_cast<std::uint16_t>(gathering_hop);
    place.forwards_gather = gathering_hop < last_hop;
  }
  return place;
}

namespace whole_ring {

[[nodiscard]] constexpr OpRules rules(std::uint16_t nranks) noexcept {
  return {.to = kDownstream, .from = upstream_link(nranks), .sends = true};
}
[[nodiscard]] inline ChunkRange own_chunks(const Partition& partition,
                                           std::uint16_t rank) noexcept {
  return {partition.first_chunk(rank), partition.end_chunk(rank)};
}
/// Every chunk arrives twice, but once only where its segment starts or is fully reduced.
/// @param on_lane  how many chunks of a range fall to the lane.
template <class OnLane>
[[nodiscard]] std::uint64_t arrivals(const Partition& partition, const ShapeGroup& group,
                                     OnLane&& on_lane) noexcept {
  const std::uint16_t next = downstream_rank(group.rank, group.nranks);
  return 2 * on_lane(ChunkRange{0, partition.total_chunks()}) -
         on_lane(own_chunks(partition, group.rank)) - on_lane(own_chunks(partition, next));
}

}  // namespace whole_ring
}  // namespace gradwire::collective
