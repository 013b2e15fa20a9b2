// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shapes/shape.h"

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::collective;

namespace {

constexpr std::uint32_t kPayload = 192;
constexpr std::uint64_t kExchangeBytes = 4096;

OpPlan plan(std::uint16_t rank, std::uint16_t nranks, std::uint8_t lane, std::uint8_t lanes,
            std::uint64_t count) {
  return plan_op({rank, nranks, 1, kExchangeBytes}, lane, lanes, kPayload, count,
                 DataType::kFloat32);
}

/// Packets that come to this rank's lane, chunk by chunk.
std::uint64_t arrivals_counted(const OpPlan& plan, std::uint8_t lane, std::uint8_t lanes) {
  std::uint64_t arrivals = 0;
  for (std::uint64_t chunk = lane; chunk < plan.partition.total_chunks(); chunk += lanes) {
    const Place place = place_of(plan.shape, plan.route, plan.partition.segment_of(chunk));
    arrivals += (place.gets_reducing ? 1 : 0) + (place.gets_gathering ? 1 : 0);
  }
  return arrivals;
}

}  // namespace

TEST_CASE("the shape follows from ranks, members and bytes") {
  const auto shape = [](std::uint16_t nranks, std::uint16_t members, std::uint64_t bytes) {
    return shape_for({0, nranks, members, kExchangeBytes}, bytes);
  };
  CHECK(shape(1, 1, 0) == Shape::kLocal);
  CHECK(shape(1, 2, 1 << 20) == Shape::kLocal);
  CHECK(shape(2, 1, kExchangeBytes) == Shape::kExchange);
  CHECK(shape(2, 1, kExchangeBytes + 1) == Shape::kRing);
  CHECK(shape(2, 2, 4) == Shape::kRing);
  CHECK(shape(3, 1, 4) == Shape::kRing);
  CHECK_FALSE(rules_of(Shape::kLocal, 1).sends);
  CHECK(rules_of(Shape::kExchange, 2).folds_over_own);
  CHECK_FALSE(rules_of(Shape::kRing, 3).folds_over_own);
}

TEST_CASE("a plan counts what its shape sends to a rank, and all ranks start all chunks") {
  for (const std::uint16_t nranks : {2, 3, 5}) {
    for (const std::uint8_t lanes : {1, 3}) {
      for (const std::uint64_t count : {0, 1, 64, 1000, 20'000}) {
        std::uint64_t started = 0;
        std::uint64_t total = 0;
        for (std::uint16_t rank = 0; rank < nranks; ++rank) {
          for (std::uint8_t lane = 0; lane < lanes; ++lane) {
            INFO(nranks << " ranks, " << int{lanes} << " lanes, count " << count);
            const OpPlan here = plan(rank, nranks, lane, lanes, count);
            total = here.partition.total_chunks();
            CHECK(here.arrivals == arrivals_counted(here, lane, lanes));
            for (std::uint64_t c = here.own.first; c < here.own.end; c += lanes) {
              CHECK(c % lanes == lane);
              const std::uint16_t segment = here.partition.segment_of(c);
              CHECK(place_of(here.shape, here.route, segment).originates);
              ++started;
            }
          }
        }
        const bool exchange = nranks == 2 && count * 4 <= kExchangeBytes;
        CHECK(started == (exchange ? 2 * total : total));
      }
    }
  }
}

TEST_CASE(
    "each chunk of every collective starts once, takes every rank in, and ends where it has to") {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kBroadcast, Collective::kAllGather,
        Collective::kReduceScatter}) {
    for (const std::uint16_t nranks : {2, 3, 5}) {
      for (const std::uint16_t members : {1, 3}) {
        for (const std::uint8_t lanes : {1, 3}) {
          for (const std::uint64_t count : {0, 1, 47, 48, 49, 1000}) {
            for (std::uint32_t root = 0; root < nranks * members; root += 2) {
              INFO(name_of(collective) << " of " << count << " by " << nranks << " ranks of "
                                       << members << ", root " << root);
              const ShapeCall call{collective, DataType::kFloat32, root, count};
              std::uint64_t started = 0;
              std::uint64_t total = 0;
              for (std::uint16_t rank = 0; rank < nranks; ++rank) {
                for (std::uint8_t lane = 0; lane < lanes; ++lane) {
                  const OpPlan here =
                      plan_op({rank, nranks, members, 0}, lane, lanes, kPayload, call);
                  total = here.partition.total_chunks();
                  const std::uint64_t own =
                      chunks_on_lane(here.own.first, here.own.end, lane, lanes);
                  CHECK(here.arrivals ==
                        arrivals_counted(here, lane, lanes) + (here.rules.copies_own ? own : 0));
                  for (std::uint64_t c = here.own.first; c < here.own.end; c += lanes) {
                    CHECK(
                        place_of(here.shape, here.route, here.partition.segment_of(c)).originates);
                    ++started;
                  }
                }
              }
              CHECK(started == total);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("hops of a half follow each other, from where it starts to where it ends") {
  for (const std::uint16_t nranks : {2, 3, 7}) {
    for (std::uint16_t home = 0; home < nranks; ++home) {
      for (std::uint16_t distance = 0; distance < nranks; ++distance) {
        const auto from_home = static_cast<std::uint16_t>((home + distance) % nranks);
        const Place gathering = gathering_half::place(from_home, home, nranks);
        CHECK(gathering.originates == (distance == 0));
        CHECK(gathering.gets_gathering == (distance != 0));
        if (distance != 0) CHECK(gathering.gathering_hop == distance - 1);
        CHECK(gathering.forwards_gather == (distance != 0 && distance != nranks - 1));
        const auto to_home = static_cast<std::uint16_t>((home + 1 + distance) % nranks);
        const Place reducing = reducing_half::place(to_home, home, nranks);
        CHECK(reducing.originates == (distance == 0));
        CHECK(reducing.gets_reducing == (distance != 0));
        if (distance != 0) CHECK(reducing.reducing_hop == distance - 1);
        CHECK(reducing.reduces_last == (to_home == home));
        CHECK(reducing.forwards_reduced == (distance != 0 && to_home != home));
      }
    }
  }
}

TEST_CASE("no chunk crosses a process's block") {
  const Partition partition = Partition::of_blocks(6, 100, DataType::kFloat32, kPayload);
  CHECK(partition.total_chunks() == 6 * 3);
  for (std::uint64_t chunk = 0; chunk < partition.total_chunks(); ++chunk) {
    const ChunkSpan span = partition.span_of(chunk);
    CHECK(span.segment == chunk / 3);
    CHECK(span.first_element / 100 == span.segment);
    CHECK((span.first_element + span.elements - 1) / 100 == span.segment);
  }
  CHECK(Partition::of_blocks(6, 0, DataType::kFloat32, kPayload).total_chunks() == 0);
}

TEST_CASE("an op of one rank is folded here, each chunk once") {
  for (const std::uint8_t lane : {0, 1}) {
    const OpPlan here = plan(0, 1, lane, 2, 1000);
    CHECK(here.arrivals == here.lane_chunks);
    CHECK(here.own.first == lane);
    CHECK(here.own.end == here.partition.total_chunks());
  }
}

TEST_CASE("a rank has a link to each other rank that is a neighbor") {
  CHECK(link_count(1) == 0);
  CHECK(link_count(2) == 1);
  CHECK(link_count(3) == 2);
  CHECK(link_count(1024) == 2);
  CHECK(downstream_rank(3, 4) == 0);
  CHECK(upstream_rank(0, 4) == 3);
  for (const Shape shape : {Shape::kExchange, Shape::kRing}) {
    CHECK(rules_of(shape, 2).to == rules_of(shape, 2).from);
  }
  CHECK(rules_of(Shape::kRing, 3).to != rules_of(Shape::kRing, 3).from);
}
