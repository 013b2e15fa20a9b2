// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How an op's chunks travel. A shape is chosen once, when the op is posted, from values that all
/// ranks have alike; each has a file of its own, and nothing but these files knows by which links
/// and hops it goes. Pure functions behind an enumeration, since some are called for each packet.
/// Any thread.
#pragma once

#include "base/types.h"
#include "collective/place.h"
#include "collective/shape_exchange.h"
#include "collective/shape_local.h"
#include "collective/shape_ring.h"

namespace gradwire::collective {

enum class Shape : std::uint8_t { kLocal, kExchange, kRing };

[[nodiscard]] constexpr Shape shape_for(const ShapeGroup& group, std::uint64_t bytes) noexcept {
  if (local::fits(group)) return Shape::kLocal;
  return exchange::fits(group, bytes) ? Shape::kExchange : Shape::kRing;
}

[[nodiscard]] constexpr OpRules rules_of(Shape shape, std::uint16_t nranks) noexcept {
  switch (shape) {
    case Shape::kLocal:
      return local::kRules;
    case Shape::kExchange:
      return exchange::kRules;
    case Shape::kRing:
      break;
  }
  return whole_ring::rules(nranks);
}

/// What a rank has to do with a chunk of that segment. Not of a local op, of which none travels.
[[nodiscard]] constexpr Place place_of(Shape shape, std::uint16_t rank, std::uint16_t segment,
                                       std::uint16_t nranks) noexcept {
  return shape == Shape::kExchange ? exchange::kPlace : ring_place(rank, segment, nranks);
}

/// What a rank's lane has to do for an op.
struct OpPlan {
  Shape shape = Shape::kRing;
  OpRules rules;
  Partition partition;
  std::uint64_t lane_chunks = 0;  ///< chunks of the op that fall to this lane
  std::uint64_t arrivals = 0;     ///< chunks that this rank's lane has to finish
  ChunkRange own;                 ///< that start here; the first of them that falls to this lane
};
[[nodiscard]] OpPlan plan_op(const ShapeGroup& group, std::uint8_t lane, std::uint8_t lanes,
                             std::uint32_t payload_bytes, std::uint64_t count,
                             DataType datatype) noexcept;

}  // namespace gradwire::collective
