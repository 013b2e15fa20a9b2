// SPDX-License-Identifier: BSD-3-Clause
// Direct ops (lib/collective/direct/direct.h) of production shards in the simulator's world.
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <vector>

#include "ring_sums.h"
#include "sim/world/addresses.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

namespace {

constexpr std::uint64_t kDirectBytes = 64u << 10;

RingOptions options_of(std::uint16_t nranks, std::uint64_t direct_bytes = kDirectBytes) {
  RingOptions options;
  options.nranks = nranks;
  options.shard.direct.op_bytes = direct_bytes;
  options.shard.exchange_bytes = 0;
  return options;
}

std::uint64_t direct_ops(const RingHarness& ring) {
  return ring.counter(&collective::ShardCounters::ops_direct);
}

}  // namespace

TEST_CASE("direct ops have the ring's bits, for every datatype and redop", "[direct]") {
  for (const std::uint16_t nranks : {2, 3, 4, 7}) {
    for (const std::uint16_t members : {1, 3}) {
      RingOptions options = options_of(nranks);
      // As a GPU's: entries are done late, and in any order.
      options.slow_backend = nranks == 3 ? 0.3 : 0;
      options.members = members;
      options.lanes = nranks == 4 ? 2 : 1;
      RingHarness ring(options);
      REQUIRE(ring.form());
      std::uint64_t op_seq = 0;
      std::uint64_t by_ring = 0;
      for (int type = 0; type < kDataTypeCount; ++type) {
        for (int redop = 0; redop < kRedOpCount; ++redop) {
          if (!fits(static_cast<RedOp>(redop), static_cast<DataType>(type))) continue;
          for (const std::uint64_t count : {1, 65, 1000}) {
            INFO(nranks << " ranks of " << members << ", " << count << " "
                        << name_of(static_cast<DataType>(type)) << " "
                        << name_of(static_cast<RedOp>(redop)));
            OpCase op(nranks, members,
                      {.count = count,
                       .datatype = static_cast<DataType>(type),
                       .redop = static_cast<RedOp>(redop),
                       .in_place = (count & 1) != 0,
                       .seed = ++op_seq});
            run_op(ring, op, nranks, op_seq);
            // A product in 16 bits: it would be rounded where it travels.
            const bool rounds = reduce::has_wide_form(static_cast<DataType>(type));
            by_ring += rounds && static_cast<RedOp>(redop) == RedOp::kPremulSum ? 1 : 0;
          }
        }
      }
      REQUIRE(direct_ops(ring) >= (op_seq - by_ring) * nranks);
    }
  }
}

TEST_CASE("all collectives have the ring's bits, direct and in two steps", "[direct]") {
  constexpr std::array kShaped = {Collective::kAllReduce,     Collective::kReduce,
                                  Collective::kReduceScatter, Collective::kBroadcast,
                                  Collective::kAllGather,     Collective::kBarrier};
  constexpr std::array kTypes = {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8,
                                 DataType::kFloat64};
  struct Layout {
    std::uint16_t nranks;
    std::uint16_t members;
    std::uint8_t lanes;
    double loss;
    std::vector<std::uint16_t> ranks;
    double slow_backend = 0;
  };
  const Layout layouts[] = {{3, 1, 1, 0, {}},         {4, 2, 2, 0.05, {}},
                            {7, 1, 3, 0.02, {}},      {3, 3, 2, 0.02, {2, 0, 1, 0, 2, 2}},
                            {4, 2, 2, 0.02, {}, 0.3}, {3, 3, 1, 0.02, {2, 0, 1, 0, 2, 2}, 0.1}};
  for (const Layout& layout : layouts) {
    RingOptions options = options_of(layout.nranks);
    options.shard.direct.two_step_bytes = 64u << 10;
    options.members = layout.members;
    options.ranks = layout.ranks;
    options.lanes = layout.lanes;
    options.loss = layout.loss;
    options.slow_backend = layout.slow_backend;
    RingHarness ring(options);
    REQUIRE(ring.form());
    const std::uint32_t processes = layout.ranks.empty()
                                        ? std::uint32_t{layout.nranks} * layout.members
                                        : static_cast<std::uint32_t>(layout.ranks.size());
    std::uint64_t op_seq = 0;
    for (const Collective collective : kShaped) {
      for (const DataType type : kTypes) {
        for (const std::uint64_t count : {1, 65, 700, 6000}) {
          if (collective == Collective::kBarrier && count != 1) continue;
          INFO(layout.nranks << " ranks of " << layout.members << ", " << name_of(collective) << " "
                             << count << " " << name_of(type));
          const bool barrier = collective == Collective::kBarrier;
          const sim::OpPlan plan{.count = barrier ? 0 : count,
                                 .datatype = type,
                                 .redop = (count & 4) != 0 ? RedOp::kAvg : RedOp::kSum,
                                 .in_place = count == 65,
                                 .seed = ++op_seq,
                                 .collective = collective,
                                 .root = has_root(collective)
                                             ? static_cast<std::uint32_t>(count % processes)
                                             : collective::kNoRoot};
          OpCase op = layout.ranks.empty() ? OpCase(layout.nranks, layout.members, plan)
                                           : OpCase(layout.nranks, layout.ranks, plan);
          run_op(ring, op, layout.nranks, op_seq);
        }
      }
    }
    REQUIRE(ring.counter(&collective::ShardCounters::ops_two_step) > 0);
    REQUIRE(ring.drops(wire::Drop::kBadChunk) == 0);
    REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
    for (std::uint16_t rank = 0; rank < layout.nranks; ++rank) ring.leave(rank);
    for (std::uint16_t rank = 0; rank < layout.nranks; ++rank) {
      REQUIRE(ring.run_until([&] { return ring.closed(rank); }));
    }
  }
}

TEST_CASE("small ops take one hop and larger all-reduces two, whatever the ranks", "[direct]") {
  constexpr TimeNs kDelay = 100'000;
  constexpr std::uint16_t kRanks = 16;
  RingOptions options = options_of(kRanks);
  options.shard.direct.two_step_bytes = 64u << 10;
  options.delay_ns = kDelay;
  RingHarness ring(options);
  REQUIRE(ring.form());
  std::uint64_t op_seq = 0;
  for (const Collective collective :
       {Collective::kBarrier, Collective::kBroadcast, Collective::kReduce, Collective::kAllGather,
        Collective::kReduceScatter, Collective::kAllReduce}) {
    const bool two = collective == Collective::kAllReduce;
    const std::uint64_t count = collective == Collective::kBarrier ? 0 : two ? 4000 : 8;
    OpCase op(kRanks, 1,
              {.count = count,
               .seed = ++op_seq,
               .collective = collective,
               .root = has_root(collective) ? 3u : collective::kNoRoot});
    const TimeNs begin = ring.now();
    run_op(ring, op, kRanks, op_seq);
    INFO(name_of(collective) << " took " << ring.now() - begin << " ns");
    REQUIRE(ring.now() - begin < (two ? 4 : 2) * kDelay);
    ring.run_for(1'000'000);
  }
}

TEST_CASE("a direct op of 64 bytes takes one hop, at 4 and at 16 ranks", "[direct]") {
  constexpr TimeNs kDelay = 100'000;
  for (const std::uint16_t nranks : {4, 16}) {
    for (const bool direct : {false, true}) {
      RingOptions options = options_of(nranks, direct ? kDirectBytes : 0);
      options.delay_ns = kDelay;
      RingHarness ring(options);
      REQUIRE(ring.form());
      OpCase op(nranks, 1, {.count = 16, .seed = 5});
      const TimeNs begin = ring.now();
      run_op(ring, op, nranks);
      const TimeNs took = ring.now() - begin;
      INFO(nranks << " ranks, direct " << direct << ": " << took << " ns");
      REQUIRE(direct_ops(ring) == (direct ? nranks : 0u));
      if (direct) {
        REQUIRE(took < 2 * kDelay);
      } else {
        REQUIRE(took > (nranks - 1) * kDelay);
      }
    }
  }
}

TEST_CASE("small ops that follow each other need no packets but their contributions", "[direct]") {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::uint64_t kOps = 200;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  for (std::uint64_t op_seq = 1; op_seq <= kOps; ++op_seq) {
    OpCase op(kRanks, 1, {.count = 16, .seed = op_seq});
    run_op(ring, op, kRanks, op_seq);
  }
  REQUIRE(ring.counter(&collective::ShardCounters::data_packets_sent) ==
          kOps * kRanks * (kRanks - 1));
  REQUIRE(ring.counter(&collective::ShardCounters::retransmissions) == 0);
  // Each rank tells the one before it on the ring of each op that it posts. No receipt goes alone.
  REQUIRE(ring.counter(&collective::ShardCounters::acks_sent) <= kOps * kRanks);
}

TEST_CASE("a rank posts many direct ops while another has posted none", "[direct]") {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::size_t kOps = 100;
  RingOptions options = options_of(kRanks, 4096);
  options.loss = 0.1;
  RingHarness ring(options);
  REQUIRE(ring.form());
  std::deque<OpCase> ops;
  for (std::size_t i = 0; i < kOps; ++i) {
    ops.emplace_back(kRanks, 1, sim::OpPlan{.count = 1 + i % 300, .seed = i});
  }
  for (const std::uint16_t rank : {0, 1}) {
    for (std::size_t i = 0; i < kOps; ++i) ring.post(rank, ops[i].spec(rank, i + 1));
  }
  ring.run_for(500'000'000);
  REQUIRE_FALSE(ring.aborted(0));
  REQUIRE_FALSE(ring.done(0, 1));
  for (std::size_t i = 0; i < kOps; ++i) ring.post(2, ops[i].spec(2, i + 1));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = 0; i < kOps; ++i) {
      REQUIRE(ring.run_until([&] { return ring.done(rank, i + 1); }));
      REQUIRE(ops[i].wrong(rank) == "");
    }
  }
  // No contribution was refused: nobody sends more ahead than there are places.
  REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
}

TEST_CASE("a rank that no ring neighbor misses is found silent by who awaits it", "[direct]") {
  constexpr std::uint16_t kRanks = 5;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  OpCase first(kRanks, 1, {.count = 16, .seed = 1});
  run_op(ring, first, kRanks, 1);
  // Ranks 0 and 2 are no neighbors: the ring sees nothing of this.
  ring.set_down(0, 2, true);
  ring.set_down(2, 0, true);
  OpCase second(kRanks, 1, {.count = 16, .seed = 2});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, second.spec(rank, 2));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(2); }));
  const AbortReason& reason = ring.shard(0).reason();
  REQUIRE(reason.code == AbortCode::kSilence);
  const bool by_name = (reason.culprit_rank == 0 && reason.reporter_rank == 2) ||
                       (reason.culprit_rank == 2 && reason.reporter_rank == 0);
  REQUIRE(by_name);
}

TEST_CASE("a rank that was never heard has the formation limit only while groups form",
          "[direct]") {
  constexpr std::uint16_t kRanks = 5;
  for (const bool is_old : {false, true}) {
    RingOptions options = options_of(kRanks);
    auto& timeouts = options.shard.timeouts;
    timeouts.formation_ns = 4 * timeouts.silence_ns;
    RingHarness ring(options);
    REQUIRE(ring.form());
    if (is_old) ring.run_for(timeouts.formation_ns);
    ring.set_down(0, 2, true);
    ring.set_down(2, 0, true);
    OpCase op(kRanks, 1, {.count = 16, .seed = 1});
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, 1));
    REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(2); }));
    const AbortReason& reason = ring.shard(0).reason();
    REQUIRE(reason.code == AbortCode::kSilence);
    const auto least = static_cast<std::uint64_t>(is_old ? 1 : 4) *
                       static_cast<std::uint64_t>(timeouts.silence_ns);
    CAPTURE(is_old, reason.duration_ns, timeouts.silence_ns);
    REQUIRE(reason.duration_ns >= least);
    REQUIRE(reason.duration_ns < least + 2 * static_cast<std::uint64_t>(timeouts.silence_ns));
  }
}

TEST_CASE("a rank off the ring is asked often before it counts as silent", "[direct]") {
  constexpr std::uint16_t kRanks = 5;
  RingOptions options = options_of(kRanks);
  const TimeNs silence = options.shard.timeouts.silence_ns;
  options.shard.timeouts.ping_interval_ns = silence / 4;
  RingHarness ring(options);
  REQUIRE(ring.form());
  OpCase first(kRanks, 1, {.count = 16, .seed = 1});
  run_op(ring, first, kRanks, 1);
  // Rank 2 has its client's post to wait for, so nobody owes it anything new but op 2.
  OpCase second(kRanks, 1, {.count = 16, .seed = 2});
  for (const std::uint16_t rank : {0, 1, 3, 4}) ring.post(rank, second.spec(rank, 2));
  ring.run_for(silence / 2);
  const std::uint64_t asked = ring.shard(0).counters().probes;
  ring.set_down(2, 0, true);
  REQUIRE(ring.run_until([&] { return ring.aborted(0); }));
  REQUIRE(ring.shard(0).reason().culprit_rank == 2);
  REQUIRE(ring.shard(0).reason().duration_ns >= static_cast<std::uint64_t>(silence));
  REQUIRE(ring.shard(0).reason().duration_ns < static_cast<std::uint64_t>(silence + silence / 10));
  REQUIRE(ring.shard(0).counters().probes - asked >= 16);
}

TEST_CASE("a rank that stood still asks for what was lost as soon as before", "[direct]") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  OpCase first(kRanks, 1, {.count = 16, .seed = 1});
  ring.post(1, first.spec(1, 1));
  ring.post(2, first.spec(2, 1));
  ring.run_for(1'000'000);
  ring.post(0, first.spec(0, 1));
  ring.run_for(100'000);
  // The receipts for what it sent wait for it, and its round-trip time becomes a second.
  ring.freeze(0);
  ring.run_for(1'000'000'000);
  ring.freeze(0, false);
  REQUIRE(ring.run_until([&] { return ring.done(0, 1) && ring.done(1, 1) && ring.done(2, 1); }));
  OpCase second(kRanks, 1, {.count = 16, .seed = 2});
  ring.set_down(0, 1, true);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, second.spec(rank, 2));
  ring.run_for(5'000'000);
  ring.set_down(0, 1, false);
  REQUIRE(ring.run_until([&] { return ring.done(1, 2); }, 500'000'000));
  REQUIRE(second.wrong(1) == "");
}

TEST_CASE("the status names the rank whose contribution is missing", "[direct]") {
  constexpr std::uint16_t kRanks = 5;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  OpCase first(kRanks, 1, {.count = 16, .seed = 1});
  run_op(ring, first, kRanks, 1);
  REQUIRE_FALSE(ring.shard(0).status(ring.now()).is_contribution_missing);
  OpCase second(kRanks, 1, {.count = 16, .seed = 2});
  for (const std::uint16_t rank : {0, 1, 2, 4}) ring.post(rank, second.spec(rank, 2));
  ring.run_for(1'000'000);
  collective::ShardStatus status = ring.shard(0).status(ring.now());
  REQUIRE(status.is_contribution_missing);
  REQUIRE(status.missing_rank == 3);
  REQUIRE_FALSE(status.missing_rank_has_posted);
  ring.set_down(3, 0, true);
  ring.post(3, second.spec(3, 2));
  ring.run_for(200'000'000);
  status = ring.shard(0).status(ring.now());
  REQUIRE(status.missing_rank == 3);
  REQUIRE(status.least_heard_rank == 3);
  REQUIRE(status.least_heard_ns > 150'000'000);
  REQUIRE(status.least_heard_unanswered >= 2);
  REQUIRE(status.least_heard_ip == sim::ip_of(3));
  ring.set_down(3, 0, false);
  REQUIRE(ring.run_until([&] { return ring.done(0, 2); }));
  REQUIRE_FALSE(ring.shard(0).status(ring.now()).is_contribution_missing);
}

TEST_CASE("calls of which one is direct and the other is not are found to differ", "[direct]") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(options_of(kRanks));
  REQUIRE(ring.form());
  OpCase small(kRanks, 1, {.count = 16, .seed = 1});
  OpCase large(kRanks, 1, {.count = 100'000, .seed = 1});
  ring.post(0, small.spec(0, 1));
  ring.post(1, large.spec(1, 1));
  ring.post(2, small.spec(2, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1) && ring.aborted(2); }));
  REQUIRE(ring.shard(0).reason().code == AbortCode::kMismatch);
}

TEST_CASE("a root that only one rank has is found to differ, whenever the ranks post", "[direct]") {
  constexpr std::uint16_t kRanks = 3;
  for (TimeNs late = 0; late < 300'000; late += 1'000) {
    INFO("rank 2 posts " << late << " ns later");
    RingHarness ring(options_of(kRanks));
    REQUIRE(ring.form());
    OpCase first(kRanks, 1, {.count = 16, .seed = 1});
    run_op(ring, first, kRanks, 1);
    const auto reduce_to = [](std::uint32_t root) {
      return OpCase(kRanks, 1,
                    {.count = 16, .seed = 2, .collective = Collective::kReduce, .root = root});
    };
    OpCase common = reduce_to(0);
    OpCase other = reduce_to(1);
    // A word of rank 1, which awaits nothing of rank 2, may be on its way when rank 2 posts.
    for (const std::uint16_t rank : {0, 1}) ring.post(rank, common.spec(rank, 2));
    ring.run_for(late);
    ring.post(2, other.spec(2, 2));
    REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(2); }, 1'000'000'000));
    REQUIRE(ring.shard(0).reason().code == AbortCode::kMismatch);
  }
}
