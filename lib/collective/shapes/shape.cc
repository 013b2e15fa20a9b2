// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shapes/shape.h"

#include "base/collective_call.h"
#include "base/planted_bug.h"
#include "base/require.h"

namespace gradwire::collective {
namespace {

/// Chunks of the segments that belong to `rank`.
ChunkRange chunks_of(const Partition& partition, const Route& route, std::uint16_t rank) noexcept {
  const direct::Owned owned = direct::owned_by(route, rank, UINT32_MAX);
  return {partition.first_chunk(owned.first), partition.first_chunk(owned.end)};
}

/// As if a chunk started at the rank after the one at which it does.
Place begun_too_late(const Place& right) noexcept {
  Place place = right;
  place.originates = right.gets_reducing && right.reducing_hop == 0;
  place.gets_reducing = right.gets_reducing && !place.originates;
  if (place.gets_reducing) --place.reducing_hop;
  return place;
}

}  // namespace

Place half_place(Shape shape, const Route& route, std::uint16_t segment) noexcept {
  if (is_off_ring(shape)) return {};
  const std::uint16_t home = route.home(segment);
  if (planted(PlantedBug::kFoldStartsAtWrongRank) && shape == Shape::kReducingHalf &&
      route.nranks > 2) {
    return begun_too_late(reducing_half::place(route.rank, home, route.nranks));
  }
  return shape == Shape::kReducingHalf ? reducing_half::place(route.rank, home, route.nranks)
                                       : gathering_half::place(route.rank, home, route.nranks);
}

Partition partition_of(const ShapeGroup& group, std::uint32_t payload_bytes,
                       const ShapeCall& call) noexcept {
  const auto whole =
      whole_count({.collective = call.collective, .count = call.count}, group.processes().count());
  const Shape shape =
      shape_for(group, whole.value_or(UINT64_MAX / 8) * element_bytes(call.datatype), call);
  if (shape == Shape::kTiles) return {};  // TileCut cuts it.
  if (shape == Shape::kGathered) {
    return gathered::partition(group, call.collective, call.datatype, call.count);
  }
  if (is_off_ring(shape) && !direct::steps_of(call.collective, shape == Shape::kTwoStep).to_all) {
    return direct::owners_partition(group, call.collective, call.datatype, call.count);
  }
  switch (call.collective) {
    case Collective::kBarrier:
      return {};
    case Collective::kReduce:
    case Collective::kBroadcast:
      return Partition(call.count, call.datatype, 1, payload_bytes);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return Partition::of_blocks(group.processes().count(), call.count, call.datatype,
                                  payload_bytes);
    default:
      break;
  }
  if (shape == Shape::kDirect) {
    return Partition(call.count, direct::part_type(group, call.datatype), direct::kSegments,
                     payload_bytes);
  }
  const bool one = shape != Shape::kRing;
  return Partition(call.count, call.datatype, one ? 1 : group.nranks, payload_bytes);
}

OpPlan plan_op(const ShapeGroup& group, std::uint8_t lane, std::uint8_t lanes,
               std::uint32_t payload_bytes, const ShapeCall& call) noexcept {
  OpPlan plan;
  const GroupProcesses processes = group.processes();
  const auto whole =
      whole_count({.collective = call.collective, .count = call.count}, processes.count());
  require(whole && *whole <= kMostElements, "an op was planned that has too many elements");
  plan.bytes = *whole * element_bytes(call.datatype);
  plan.shape = shape_for(group, plan.bytes, call);
  plan.rules = rules_of(plan.shape, group.nranks, has_root(call.collective));
  plan.partition = partition_of(group, payload_bytes, call);
  plan.route.rank = group.rank;
  plan.route.nranks = group.nranks;
  if (plan.shape == Shape::kTwoStep) plan.route.owners = group.owners;
  if (has_root(call.collective)) {
    plan.route.first_home = processes.rank_of(call.root);
  } else if (call.collective != Collective::kAllReduce && call.collective != Collective::kBarrier) {
    plan.route.segments_per_rank = group.member_count;
    plan.route.blocks = group.layout;
  }
  // An op of no elements waits for the next rank alone, but for a barrier.
  const bool empty = call.count == 0 && call.collective != Collective::kBarrier;
  if (empty) plan.rules.waits_for_all = false;
  plan.rules.compares = plan.shape == Shape::kWord || (empty && plan.shape != Shape::kLocal);

  const Partition& partition = plan.partition;
  const auto on_lane = [&](const ChunkRange& range) {
    return chunks_on_lane(range.first, range.end, lane, lanes);
  };
  plan.lane_chunks = on_lane({0, partition.total_chunks()});
  switch (plan.shape) {
    case Shape::kLocal:
      plan.own = local::own_chunks(partition);
      plan.arrivals = local::arrivals(on_lane(plan.own));
      break;
    case Shape::kExchange:
      plan.own = exchange::own_chunks(partition);
      plan.arrivals = exchange::arrivals(on_lane(plan.own));
      break;
    case Shape::kRing:
      plan.own = whole_ring::own_chunks(partition, group.rank);
      plan.arrivals = whole_ring::arrivals(partition, group, on_lane);
      break;
    case Shape::kReducingHalf:
      plan.own =
          chunks_of(partition, plan.route, reducing_half::starts_for(group.rank, group.nranks));
      plan.arrivals = plan.lane_chunks - on_lane(plan.own);
      if (planted(PlantedBug::kFoldStartsAtWrongRank) && group.nranks > 2) {
        const auto before = upstream_rank(group.rank, group.nranks);
        plan.own =
            chunks_of(partition, plan.route, reducing_half::starts_for(before, group.nranks));
        plan.arrivals -= on_lane(plan.own);
      }
      break;
    case Shape::kGatheringHalf:
      plan.own = chunks_of(partition, plan.route, group.rank);
      plan.arrivals = plan.lane_chunks;  // its own are copied, which finishes them
      break;
    case Shape::kDirect:
    case Shape::kTwoStep: {
      const direct::Steps steps = direct::steps_of(call.collective, plan.shape == Shape::kTwoStep);
      const std::uint64_t owned = on_lane(chunks_of(partition, plan.route, group.rank));
      const bool folds = steps.to_owner && owned > 0;
      const bool gets = steps.from_owner && plan.lane_chunks > owned;
      plan.arrivals = steps.to_all ? direct::arrivals(plan.lane_chunks) : (folds || gets ? 1 : 0);
      break;
    }
    case Shape::kGathered:
      plan.arrivals = direct::arrivals(plan.lane_chunks);
      break;
    case Shape::kTiles:
      plan.arrivals = tiles::kArrivals;
      break;
    case Shape::kWord:
      break;
  }
  plan.own.first += (lane + lanes - plan.own.first % lanes) % lanes;
  return plan;
}

}  // namespace gradwire::collective
