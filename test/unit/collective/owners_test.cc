// SPDX-License-Identifier: BSD-3-Clause
// All-reduces in two steps that only some ranks sum (lib/collective/shapes/owners.h).
#include "collective/shapes/owners.h"

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <vector>

#include "ring_sums.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::Owners;
using collective::Shape;
using sim::OpCase;

namespace {

constexpr std::uint64_t kCount = 2000;  ///< 32 chunks of 256 bytes, as many as an owner may have
constexpr std::uint64_t kBytes = kCount * 4;

/// All ops of more than 1 KiB of all ranks' inputs go in two steps.
RingOptions options_of(std::uint16_t nranks, std::vector<std::uint16_t> owners) {
  RingOptions options;
  options.nranks = nranks;
  options.owners = std::move(owners);
  options.shard.direct.op_bytes = 1024;
  options.shard.direct.two_step_bytes = 64u << 10;
  options.shard.exchange_bytes = 0;
  return options;
}

}  // namespace

TEST_CASE("ranks that are no owners send their bytes once", "[owners]") {
  constexpr std::uint16_t kRanks = 4;
  RingHarness ring(options_of(kRanks, {2}));
  REQUIRE(ring.form());
  OpCase op(kRanks, 1, {.count = kCount, .seed = 3});
  run_op(ring, op, kRanks);
  REQUIRE(ring.counter(&collective::ShardCounters::ops_two_step) == kRanks);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    const std::uint64_t sent = ring.shard(rank).counters().data_bytes_sent;
    CHECK(sent == (rank == 2 ? (kRanks - 1) * kBytes : kBytes));
  }
}

TEST_CASE("an owner gets as much of each rank as if all were owners, and no more", "[owners]") {
  const Owners one({3}, 4);
  const Owners two({0, 3}, 4);
  const auto shape = [](const Owners* owners, std::uint64_t count) {
    const collective::ShapeGroup group{.nranks = 4,
                                       .direct_bytes = 1024,
                                       .payload_bytes = 8192,
                                       .two_step_bytes = 64u << 10,
                                       .owners = owners};
    return shape_for(group, count * 4, {.count = count});
  };
  CHECK(shape(nullptr, 16384) == Shape::kTwoStep);
  CHECK(shape(nullptr, 16385) == Shape::kRing);
  CHECK(shape(&two, 8192) == Shape::kTwoStep);
  CHECK(shape(&two, 8193) == Shape::kRing);
  CHECK(shape(&one, 4096) == Shape::kTwoStep);
  CHECK(shape(&one, 4097) == Shape::kRing);
  // Reductions that have an owner by themselves have that one.
  const collective::ShapeGroup group{.rank = 1,
                                     .nranks = 4,
                                     .direct_bytes = 1u << 16,
                                     .payload_bytes = 8192,
                                     .two_step_bytes = 64u << 10,
                                     .owners = &one};
  const auto plan =
      plan_op(group, 0, 1, 8192, {.collective = Collective::kReduceScatter, .count = 100});
  CHECK(plan.shape == Shape::kDirect);
  CHECK(plan.route.home(1) == 1);
}

TEST_CASE("an owner lets others send without waiting for it", "[owners]") {
  // Their parts have more chunks than may go ahead, and the owner has nothing to send before it has
  // all of them: it says at once that it has entered the op.
  constexpr TimeNs kDelay = 100'000;
  constexpr std::uint16_t kRanks = 4;
  RingOptions options = options_of(kRanks, {0});
  options.delay_ns = kDelay;
  RingHarness ring(options);
  REQUIRE(ring.form());
  OpCase op(kRanks, 1, {.count = kCount, .seed = 4});
  const TimeNs begin = ring.now();
  run_op(ring, op, kRanks);
  INFO("it took " << ring.now() - begin << " ns");
  REQUIRE(ring.now() - begin < 4 * kDelay);
}

TEST_CASE("owners and others post to any depths, under loss", "[owners]") {
  constexpr std::uint16_t kRanks = 5;
  constexpr std::size_t kOps = 60;
  for (const std::uint16_t late : {0, 2}) {
    RingOptions options = options_of(kRanks, {2, 4});
    options.loss = 0.1;
    options.lanes = 2;
    RingHarness ring(options);
    REQUIRE(ring.form());
    std::deque<OpCase> ops;
    for (std::size_t i = 0; i < kOps; ++i) {
      ops.emplace_back(kRanks, 1, sim::OpPlan{.count = 1 + i * 211 % 3900, .seed = i});
    }
    const auto post_all = [&](std::uint16_t rank) {
      for (std::size_t i = 0; i < kOps; ++i) ring.post(rank, ops[i].spec(rank, i + 1));
    };
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      if (rank != late) post_all(rank);
    }
    ring.run_for(500'000'000);
    REQUIRE_FALSE(ring.aborted(1));
    REQUIRE_FALSE(ring.done(1, 1));
    post_all(late);
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t i = 0; i < kOps; ++i) {
        REQUIRE(ring.run_until([&] { return ring.done(rank, i + 1); }));
        REQUIRE(ops[i].wrong(rank) == "");
      }
    }
    REQUIRE(ring.counter(&collective::ShardCounters::ops_two_step) > kOps);
    REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
    REQUIRE(ring.drops(wire::Drop::kBadChunk) == 0);
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.leave(rank);
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      REQUIRE(ring.run_until([&] { return ring.closed(rank); }));
    }
  }
}

TEST_CASE("an owner that cannot be reached is named by who needs it", "[owners]") {
  constexpr std::uint16_t kRanks = 5;
  RingHarness ring(options_of(kRanks, {2}));
  REQUIRE(ring.form());
  OpCase first(kRanks, 1, {.count = kCount, .seed = 1});
  run_op(ring, first, kRanks, 1);
  // Ranks 0 and 2 are no neighbors: the ring sees nothing of this.
  ring.set_down(0, 2, true);
  ring.set_down(2, 0, true);
  OpCase second(kRanks, 1, {.count = kCount, .seed = 2});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, second.spec(rank, 2));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(2) && ring.aborted(4); }));
  const AbortReason& reason = ring.shard(4).reason();
  REQUIRE(reason.code == AbortCode::kSilence);
  REQUIRE((reason.culprit_rank == 0 || reason.culprit_rank == 2));
  REQUIRE((reason.reporter_rank == 0 || reason.reporter_rank == 2));
}

TEST_CASE("a rank that calls another count is named, also if it sends nothing", "[owners]") {
  constexpr std::uint16_t kRanks = 4;
  for (const std::uint64_t count : {kCount - 100, std::uint64_t{0}}) {
    RingHarness ring(options_of(kRanks, {0}));
    REQUIRE(ring.form());
    OpCase common(kRanks, 1, {.count = kCount, .seed = 1});
    OpCase other(kRanks, 1, {.count = count, .seed = 1});
    for (const std::uint16_t rank : {0, 1, 3}) ring.post(rank, common.spec(rank, 1));
    ring.post(2, other.spec(2, 1));
    REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1) && ring.aborted(3); },
                           100'000'000'000));
    // Rank 2 sends nothing in an op of no elements, and gets nothing before it has sent its part:
    // acknowledgements tell.
    REQUIRE(ring.shard(1).reason().code == AbortCode::kMismatch);
  }
}
