// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How an op's chunks travel. A shape is chosen once, when the op is posted, from values that all
/// ranks have alike; each has a file of its own, and nothing but these files knows by which links
/// and hops it goes. Pure functions behind an enumeration, since some are called for each packet.
/// Any thread.
#pragma once

#include "base/types.h"
#include "base/wire_format.h"
#include "collective/ops/op_spec.h"
#include "collective/shapes/place.h"
#include "collective/shapes/shape_direct.h"
#include "collective/shapes/shape_exchange.h"
#include "collective/shapes/shape_gathered.h"
#include "collective/shapes/shape_gathering_half.h"
#include "collective/shapes/shape_kind.h"
#include "collective/shapes/shape_local.h"
#include "collective/shapes/shape_reducing_half.h"
#include "collective/shapes/shape_ring.h"
#include "collective/shapes/shape_tiles.h"

namespace gradwire::collective {

/// What a shape follows from, beside the group.
struct ShapeCall {
  Collective collective = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  std::uint32_t root = kNoRoot;
  std::uint64_t count = 0;  ///< as in OpSpec
  RedOp redop = RedOp::kSum;
  WireFormat wire = WireFormat::kSame;
};

/// Whether its packets go between any two ranks, and not by the ring's links.
[[nodiscard]] constexpr bool is_off_ring(Shape shape) noexcept {
  return shape == Shape::kDirect || shape == Shape::kTwoStep || shape == Shape::kGathered ||
         shape == Shape::kTiles;
}
/// Whether ranks push what they give to it: it lies whole in scratch memory.
[[nodiscard]] constexpr bool is_pushed(Shape shape) noexcept {
  return is_off_ring(shape) && shape != Shape::kTiles;
}

/// @param bytes  of the whole op.
[[nodiscard]] inline Shape shape_for(const ShapeGroup& group, std::uint64_t bytes,
                                     const ShapeCall& call = {}) noexcept {
  if (local::fits(group)) return Shape::kLocal;
  const auto& [collective, datatype, root, count, redop, wire] = call;
  // No other shape has formats. Whether the op and the group can have one Shard::post() asks.
  if (wire != WireFormat::kSame && count != 0) return Shape::kTiles;
  // The ring folds a rank's product before it rounds it. In 16 bits a part that travels is rounded.
  const bool travels = redop != RedOp::kPremulSum || !reduce::has_wide_form(datatype);
  if (travels && gathered::fits(group, collective, datatype, count)) return Shape::kGathered;
  if (collective != Collective::kAllReduce && travels &&
      direct::fits_with_owners(group, collective, datatype, count)) {
    return Shape::kDirect;
  }
  if (collective != Collective::kAllReduce &&
      tiles::fits(group, collective, datatype, count, bytes, redop))
    return Shape::kTiles;
  switch (collective) {
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return Shape::kReducingHalf;
    case Collective::kBroadcast:
    case Collective::kAllGather:
      return Shape::kGatheringHalf;
    case Collective::kBarrier:
      return Shape::kWord;
    default:
      break;
  }
  if (!travels) return Shape::kRing;
  if (exchange::fits(group, bytes)) return Shape::kExchange;
  if (direct::fits(group, bytes, datatype)) return Shape::kDirect;
  if (direct::fits_two_steps(group, datatype, count)) return Shape::kTwoStep;
  return tiles::fits(group, collective, datatype, count, bytes, redop) ? Shape::kTiles
                                                                       : Shape::kRing;
}

[[nodiscard]] constexpr OpRules rules_of(Shape shape, std::uint16_t nranks,
                                         bool has_root = false) noexcept {
  switch (shape) {
    case Shape::kLocal:
      return local::kRules;
    case Shape::kExchange:
      return exchange::kRules;
    case Shape::kDirect:
    case Shape::kTwoStep:
    case Shape::kGathered:
      return direct::kRules;
    case Shape::kTiles:
      return tiles::kRules;
    case Shape::kReducingHalf:
      return reducing_half::rules(nranks, has_root);
    case Shape::kGatheringHalf:
      return gathering_half::rules(nranks);
    case Shape::kWord: {
      OpRules rules = whole_ring::rules(nranks);
      rules.waits_for_all = true;
      return rules;
    }
    case Shape::kRing:
      break;
  }
  return whole_ring::rules(nranks);
}

/// Of the halves, apart: what is called for each packet of an all-reduce stays small. Of an
/// op off the ring no chunk goes by the ring's links: it has no place there.
[[nodiscard]] Place half_place(Shape shape, const Route& route, std::uint16_t segment) noexcept;

/// What a rank has to do with a chunk of that segment. Not of a local op, of which none travels.
[[nodiscard, gnu::always_inline]] inline Place place_of(Shape shape, const Route& route,
                                                        std::uint16_t segment) noexcept {
  if (shape == Shape::kRing) return ring_place(route.rank, segment, route.nranks);
  return shape == Shape::kExchange ? exchange::kPlace : half_place(shape, route, segment);
}

/// What a rank's lane has to do for an op.
struct OpPlan {
  Shape shape = Shape::kRing;
  OpRules rules;
  Route route;
  Partition partition;
  std::uint64_t bytes = 0;        ///< of the whole op
  std::uint64_t lane_chunks = 0;  ///< chunks of the op that fall to this lane
  std::uint64_t arrivals = 0;     ///< chunks that this rank's lane has to finish
  ChunkRange own;                 ///< that start here; the first of them that falls to this lane
};
/// @param call  whose whole op has kMostElements at most.
[[nodiscard]] OpPlan plan_op(const ShapeGroup& group, std::uint8_t lane, std::uint8_t lanes,
                             std::uint32_t payload_bytes, const ShapeCall& call) noexcept;
/// For an all-reduce.
[[nodiscard]] inline OpPlan plan_op(const ShapeGroup& group, std::uint8_t lane, std::uint8_t lanes,
                                    std::uint32_t payload_bytes, std::uint64_t count,
                                    DataType datatype) noexcept {
  return plan_op(group, lane, lanes, payload_bytes, {.datatype = datatype, .count = count});
}
[[nodiscard]] Partition partition_of(const ShapeGroup& group, std::uint32_t payload_bytes,
                                     const ShapeCall& call) noexcept;

}  // namespace gradwire::collective
