// SPDX-License-Identifier: BSD-3-Clause
// Gathered ops (lib/collective/direct/direct_gathered.cc) of production shards in the simulator's
// world.
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <vector>

#include "base/defaults.h"
#include "collective/shapes/shape.h"
#include "ring_sums.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

namespace {

RingOptions options_of(std::uint16_t nranks, std::uint64_t gathered_bytes = 64u << 10) {
  RingOptions options;
  options.nranks = nranks;
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.direct.gathered_bytes = gathered_bytes;
  options.shard.direct.gathered_ranks = 2;
  return options;
}

std::uint64_t gathered_ops(const RingHarness& ring) {
  return ring.counter(&collective::ShardCounters::ops_gathered);
}

struct Layout {
  std::uint16_t nranks;
  std::uint16_t members;
  std::uint8_t lanes;
  double loss;
  std::vector<std::uint16_t> ranks;
};

}  // namespace

TEST_CASE("gathered ops have the ring's bits, for every datatype and redop", "[gathered]") {
  constexpr std::array kGathered = {Collective::kAllReduce, Collective::kAllGather,
                                    Collective::kBarrier};
  const Layout layouts[] = {{3, 1, 1, 0, {}},
                            {4, 2, 2, 0.05, {}},
                            {7, 1, 3, 0.02, {}},
                            {8, 1, 1, 0, {}},
                            {13, 1, 1, 0.05, {}},
                            {3, 3, 2, 0.02, {2, 0, 1, 0, 2, 2}},
                            {5, 2, 1, 0.02, {4, 3, 2, 1, 0, 2}}};
  for (const Layout& layout : layouts) {
    RingOptions options = options_of(layout.nranks);
    options.members = layout.members;
    options.ranks = layout.ranks;
    options.lanes = layout.lanes;
    options.loss = layout.loss;
    options.slow_backend = layout.nranks == 4 || layout.nranks == 5 ? 0.3 : 0;
    RingHarness ring(options);
    REQUIRE(ring.form());
    std::uint64_t op_seq = 0;
    std::uint64_t gathered = 0;
    for (const Collective collective : kGathered) {
      for (int type = 0; type < kDataTypeCount; ++type) {
        for (int redop = 0; redop < kRedOpCount; ++redop) {
          const bool reduced = collective == Collective::kAllReduce;
          if (!fits(static_cast<RedOp>(redop), static_cast<DataType>(type))) continue;
          if (!reduced && (redop != 0 || (collective == Collective::kBarrier && type != 0))) {
            continue;
          }
          for (const std::uint64_t count : {1, 31}) {
            INFO(layout.nranks << " ranks of " << layout.members << ", " << name_of(collective)
                               << " of " << count << " " << name_of(static_cast<DataType>(type))
                               << " " << name_of(static_cast<RedOp>(redop)));
            const sim::OpPlan plan{.count = collective == Collective::kBarrier ? 0 : count,
                                   .datatype = static_cast<DataType>(type),
                                   .redop = static_cast<RedOp>(redop),
                                   .in_place = (op_seq & 1) != 0,
                                   .seed = ++op_seq,
                                   .collective = collective};
            OpCase op = layout.ranks.empty() ? OpCase(layout.nranks, layout.members, plan)
                                             : OpCase(layout.nranks, layout.ranks, plan);
            run_op(ring, op, layout.nranks, op_seq);
            // A product in 16 bits would be rounded where it travels: it goes round the ring.
            const bool rounds = reduce::has_wide_form(static_cast<DataType>(type));
            gathered += rounds && static_cast<RedOp>(redop) == RedOp::kPremulSum ? 0 : 1;
          }
        }
      }
    }
    REQUIRE(gathered_ops(ring) == gathered * layout.nranks);
    REQUIRE(ring.drops(wire::Drop::kBadChunk) == 0);
    REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
    for (std::uint16_t rank = 0; rank < layout.nranks; ++rank) ring.leave(rank);
    for (std::uint16_t rank = 0; rank < layout.nranks; ++rank) {
      REQUIRE(ring.run_until([&] { return ring.closed(rank); }));
    }
  }
}

TEST_CASE("of a gathered op only the late rank counts as late, not who waits for it",
          "[gathered]") {
  constexpr std::uint16_t kRanks = 8;
  constexpr std::uint16_t kLate = 5;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  OpCase op(kRanks, 1, {.count = 0, .seed = 1, .collective = Collective::kBarrier});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    if (rank != kLate) ring.post(rank, op.spec(rank, 1));
  }
  ring.run_for(30'000'000);
  int wait = 0;
  int say_who = 0;
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    const collective::ShardStatus status = ring.shard(rank).status(ring.now());
    if (!status.is_contribution_missing) continue;
    CAPTURE(rank, status.missing_rank);
    ++wait;
    say_who += status.missing_rank_has_posted ? 0 : 1;
    CHECK((status.missing_rank_has_posted || status.missing_rank == kLate));
  }
  CHECK(wait == kRanks - 1);
  CHECK(say_who == 1);
  ring.post(kLate, op.spec(kLate, 1));
  REQUIRE(ring.run_until([&] { return ring.done(0, 1) && ring.done(kLate, 1); }));
  CHECK(gathered_ops(ring) > 0);
}

TEST_CASE("which op is gathered follows from ranks and bytes", "[gathered]") {
  collective::ShapeGroup group{.rank = 0,
                               .nranks = 128,
                               .exchange_bytes = 0,
                               .direct_bytes = 64u << 10,
                               .payload_bytes = 1408,
                               .two_step_bytes = 1u << 20,
                               .gathered_bytes = 256u << 10,
                               .gathered_ranks = 64};
  const auto shape = [&](Collective collective, std::uint64_t count,
                         DataType type = DataType::kFloat32) {
    return collective::shape_for(group, count * element_bytes(type),
                                 {.collective = collective, .datatype = type, .count = count});
  };
  using collective::Shape;
  CHECK(shape(Collective::kAllReduce, 16) == Shape::kGathered);
  CHECK(shape(Collective::kAllGather, 16) == Shape::kGathered);
  CHECK(shape(Collective::kBarrier, 0) == Shape::kGathered);
  CHECK(shape(Collective::kReduceScatter, 16) == Shape::kDirect);
  // Half of all slots are one message, of 64 chunks at most.
  CHECK(shape(Collective::kAllReduce, 1408 / 4) == Shape::kGathered);
  CHECK(shape(Collective::kAllReduce, 1408 / 4 + 1) == Shape::kTwoStep);
  group.payload_bytes = 8896;
  CHECK(shape(Collective::kAllReduce, 512) == Shape::kGathered);
  CHECK(shape(Collective::kAllReduce, 513) == Shape::kTwoStep);
  CHECK(shape(Collective::kAllReduce, 1024, DataType::kBfloat16) == Shape::kGathered);
  // Of several members parts travel in 32 bits.
  group.member_count = 2;
  CHECK(shape(Collective::kAllReduce, 1024, DataType::kBfloat16) == Shape::kTwoStep);
  group.member_count = 1;
  group.nranks = 64;
  CHECK(shape(Collective::kAllReduce, 16) == Shape::kDirect);
  CHECK(shape(Collective::kBarrier, 0) == Shape::kDirect);
  group.nranks = 128;
  group.gathered_bytes = 0;
  CHECK(shape(Collective::kBarrier, 0) == Shape::kDirect);
}

TEST_CASE("a gathered op takes log2(n) steps, and as many packets of each rank", "[gathered]") {
  constexpr TimeNs kDelay = 100'000;
  for (const std::uint16_t nranks : {5, 16, 33}) {
    const auto steps = static_cast<std::uint64_t>(std::bit_width(nranks - 1u));
    RingOptions options = options_of(nranks);
    options.shard.payload_bytes = 4096;
    options.delay_ns = kDelay;
    RingHarness ring(options);
    REQUIRE(ring.form());
    for (const Collective collective : {Collective::kAllReduce, Collective::kBarrier}) {
      const std::uint64_t op_seq = collective == Collective::kBarrier ? 2 : 1;
      const std::uint64_t before = ring.counter(&collective::ShardCounters::data_packets_sent);
      OpCase op(nranks, 1,
                {.count = collective == Collective::kBarrier ? 0u : 4u,
                 .seed = 5,
                 .collective = collective});
      const TimeNs begin = ring.now();
      run_op(ring, op, nranks, op_seq);
      INFO(nranks << " ranks: " << ring.now() - begin << " ns");
      CHECK(ring.now() - begin >= static_cast<TimeNs>(steps) * kDelay);
      CHECK(ring.now() - begin < static_cast<TimeNs>(steps + 1) * kDelay);
      CHECK(ring.counter(&collective::ShardCounters::data_packets_sent) - before == steps * nranks);
    }
    REQUIRE(ring.counter(&collective::ShardCounters::retransmissions) == 0);
  }
}

TEST_CASE("messages of many chunks wait for nobody's inquiry", "[gathered]") {
  constexpr std::uint16_t kRanks = 16;
  RingOptions options = options_of(kRanks);
  options.shard.payload_bytes = 64;
  RingHarness ring(options);
  REQUIRE(ring.form());
  OpCase op(kRanks, 1, {.count = 16, .seed = 3});  // 8 chunks in the last message
  const TimeNs begin = ring.now();
  run_op(ring, op, kRanks);
  CHECK(ring.now() - begin < 1'000'000);
  CHECK(gathered_ops(ring) == kRanks);
  CHECK(ring.counter(&collective::ShardCounters::probes) == 0);
}

TEST_CASE("messages of as many chunks as there are bits for have the ring's bits", "[gathered]") {
  constexpr std::uint16_t kMembers = 8;
  for (const std::uint16_t nranks : {16, 12}) {
    for (const double loss : {0.0, 0.05}) {
      RingOptions options = options_of(nranks);
      options.members = kMembers;
      options.shard.payload_bytes = 64;
      options.loss = loss;
      RingHarness ring(options);
      REQUIRE(ring.form());
      for (std::uint64_t op_seq = 1; op_seq <= 6; ++op_seq) {
        INFO(nranks << " ranks, loss " << loss << ", op " << op_seq);
        // Eight blocks of a whole payload in each slot, and eight slots in the last message of 16.
        OpCase op(nranks, kMembers,
                  {.count = 16, .seed = op_seq, .collective = Collective::kAllGather});
        run_op(ring, op, nranks, op_seq);
      }
      CHECK(gathered_ops(ring) == 6u * nranks);
      CHECK(ring.drops(wire::Drop::kBadChunk) == 0);
      CHECK(ring.drops(wire::Drop::kEagerOverflow) == 0);
    }
  }
}

TEST_CASE("a rank posts many gathered ops while another has posted none", "[gathered]") {
  constexpr std::uint16_t kRanks = 5;
  constexpr std::size_t kOps = 60;
  RingOptions options = options_of(kRanks, 4096);
  options.loss = 0.1;
  RingHarness ring(options);
  REQUIRE(ring.form());
  std::deque<OpCase> ops;
  for (std::size_t i = 0; i < kOps; ++i) {
    ops.emplace_back(kRanks, 1, sim::OpPlan{.count = 1 + i, .seed = i});
  }
  for (std::uint16_t rank = 0; rank + 1 < kRanks; ++rank) {
    for (std::size_t i = 0; i < kOps; ++i) ring.post(rank, ops[i].spec(rank, i + 1));
  }
  ring.run_for(500'000'000);
  REQUIRE_FALSE(ring.aborted(0));
  REQUIRE_FALSE(ring.done(0, 1));
  for (std::size_t i = 0; i < kOps; ++i) ring.post(4, ops[i].spec(4, i + 1));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = 0; i < kOps; ++i) {
      REQUIRE(ring.run_until([&] { return ring.done(rank, i + 1); }));
      REQUIRE(ops[i].wrong(rank) == "");
    }
  }
  REQUIRE(gathered_ops(ring) == kOps * kRanks);
  REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
}

TEST_CASE("of a gathered op the silent rank is named, not one that waits for it", "[gathered]") {
  constexpr std::uint16_t kRanks = 9;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  OpCase first(kRanks, 1, {.count = 16, .seed = 1});
  run_op(ring, first, kRanks, 1);
  // Rank 4's message of step 1 does not come to rank 2. Ring neighbors hear each other.
  ring.set_down(4, 2, true);
  ring.set_down(2, 4, true);
  OpCase second(kRanks, 1, {.count = 16, .seed = 2});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, second.spec(rank, 2));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(7); }));
  const AbortReason& reason = ring.shard(0).reason();
  REQUIRE(reason.code == AbortCode::kSilence);
  const bool by_name = (reason.culprit_rank == 4 && reason.reporter_rank == 2) ||
                       (reason.culprit_rank == 2 && reason.reporter_rank == 4);
  REQUIRE(by_name);
}

TEST_CASE("calls of which one is gathered and the other is not are found to differ", "[gathered]") {
  constexpr std::uint16_t kRanks = 5;
  RingHarness ring(options_of(kRanks, 4096));
  REQUIRE(ring.form());
  OpCase small(kRanks, 1, {.count = 16, .seed = 1});
  OpCase large(kRanks, 1, {.count = 2000, .seed = 1});
  ring.post(0, small.spec(0, 1));
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) ring.post(rank, large.spec(rank, 1));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.aborted(rank); }));
    REQUIRE(ring.shard(rank).reason().code == AbortCode::kMismatch);
  }
}

TEST_CASE("an idle group costs what its ring neighbors ping, however many ranks it has",
          "[gathered]") {
  constexpr std::uint64_t kSeconds = 10;
  for (const std::uint16_t ranks : {5, 20}) {
    RingOptions options = options_of(ranks);
    options.shard.timeouts.ping_interval_ns = collective::ShardTimeouts{}.ping_interval_ns;
    RingHarness ring(options);
    REQUIRE(ring.form());
    OpCase op(ranks, 1, {.count = 16, .seed = 1});
    run_op(ring, op, ranks);
    ring.run_for(1'000'000'000);
    const std::uint64_t before = ring.frames();
    ring.run_for(kSeconds * 1'000'000'000);
    // A ping and its acknowledgement, 20 times a second.
    const std::uint64_t each = (ring.frames() - before) / ranks / kSeconds;
    CHECK(each <= 40);
    CHECK(each >= 30);
  }
}
