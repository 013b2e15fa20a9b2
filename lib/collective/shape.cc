// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shape.h"

namespace gradwire::collective {

OpPlan plan_op(const ShapeGroup& group, std::uint8_t lane, std::uint8_t lanes,
               std::uint32_t payload_bytes, std::uint64_t count, DataType datatype) noexcept {
  OpPlan plan;
  plan.shape = shape_for(group, count * element_bytes(datatype));
  plan.rules = rules_of(plan.shape, group.nranks);
  const auto cut = [&](std::uint16_t segments) {
    return Partition(count, datatype, segments, payload_bytes);
  };
  const auto on_lane = [&](const ChunkRange& range) {
    return chunks_on_lane(range.first, range.end, lane, lanes);
  };
  switch (plan.shape) {
    case Shape::kLocal:
      plan.partition = cut(local::kSegments);
      plan.own = local::own_chunks(plan.partition);
      plan.arrivals = local::arrivals(on_lane(plan.own));
      break;
    case Shape::kExchange:
      plan.partition = cut(exchange::kSegments);
      plan.own = exchange::own_chunks(plan.partition);
      plan.arrivals = exchange::arrivals(on_lane(plan.own));
      break;
    case Shape::kRing:
      plan.partition = cut(group.nranks);
      plan.own = whole_ring::own_chunks(plan.partition, group.rank);
      plan.arrivals = whole_ring::arrivals(plan.partition, group, on_lane);
      break;
  }
  plan.lane_chunks = on_lane({0, plan.partition.total_chunks()});
  plan.own.first += (lane + lanes - plan.own.first % lanes) % lanes;
  return plan;
}

}  // namespace gradwire::collective
