// SPDX-License-Identifier: BSD-3-Clause
// The model by which large ops go by tiles or by the ring (lib/collective/shapes/tile_costs.h),
// against vectors that Python made in whole numbers without a bound.
#include "collective/shapes/tile_costs.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "collective/shapes/shape.h"
#include "tile_costs_vectors.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::Shape;
using collective::ShapeGroup;
using collective::TileCosts;
using collective::TileShares;

namespace {

TileCosts costs_of(const CostGroup& group) {
  std::vector<std::uint32_t> rates = group.rates;
  if (rates.size() == 1) rates.assign(group.ranks, rates[0]);
  const auto shares = TileShares::make(rates, group.nranks);
  return TileCosts({group.packet_ns, group.byte_ps, group.hop_ns}, rates, group.nranks,
                   shares ? &*shares : nullptr, group.lanes);
}

}  // namespace

TEST_CASE("what the ring and tiles take is the page's", "[tiles]") {
  constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kReduceScatter,
                                       Collective::kAllGather};
  for (const CostVector& vector : kCostVectors) {
    const Collective collective = kCollectives.at(vector.collective);
    CAPTURE(vector.group, name_of(collective), vector.bytes, vector.payload);
    const TileCosts costs = costs_of(kCostGroups[vector.group]);
    CHECK(static_cast<std::uint64_t>(costs.ring_time(collective, vector.bytes, vector.payload)) ==
          vector.ring);
    CHECK(static_cast<std::uint64_t>(costs.tiles_time(collective, vector.bytes, vector.payload)) ==
          vector.tiles);
    CHECK(costs.tiles_are_faster(collective, vector.bytes, vector.payload) == vector.by_tiles);
  }
}

TEST_CASE("an op without a format goes by tiles if the model says so", "[tiles]") {
  const CostGroup many{250, 100, 5000, 4, 64, {1000}, 64};
  const TileCosts costs = costs_of(many);
  ShapeGroup group{.nranks = 64, .payload_bytes = 8896, .tiles = true, .tile_costs = &costs};
  const auto shape = [&](std::uint64_t count, Collective collective = Collective::kAllReduce,
                         WireFormat wire = WireFormat::kSame) {
    const std::uint64_t processes = collective == Collective::kAllReduce ? 1 : 64;
    return collective::shape_for(
        group, 4 * count * processes,
        {.collective = collective, .count = count, .redop = RedOp::kSum, .wire = wire});
  };
  CHECK(shape(1 << 18) == Shape::kTiles);
  CHECK(shape(1 << 12, Collective::kAllGather) == Shape::kTiles);
  CHECK(shape(1 << 12, Collective::kReduceScatter) == Shape::kTiles);
  // Where the wire takes most of the time, both take as long.
  CHECK(shape(1u << 31) == Shape::kRing);
  CHECK(shape(1u << 26, Collective::kAllGather) == Shape::kGatheringHalf);
  CHECK(shape(1u << 26, Collective::kReduceScatter) == Shape::kReducingHalf);
  CHECK(shape(1u << 31, Collective::kAllReduce, WireFormat::kInt8) == Shape::kTiles);
  group.tile_costs = nullptr;
  CHECK(shape(1u << 31) == Shape::kTiles);
  group.tiles = false;
  CHECK(shape(1 << 18) == Shape::kRing);

  // Of two ranks tiles have more hops and more to do.
  const CostGroup two{250, 100, 5000, 4, 2, {1000}, 2};
  const TileCosts few = costs_of(two);
  group = {.nranks = 2, .payload_bytes = 8896, .tiles = true, .tile_costs = &few};
  for (int bits = 0; bits < 40; ++bits) CHECK(shape(std::uint64_t{1} << bits) == Shape::kRing);
}
