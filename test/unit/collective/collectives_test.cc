// SPDX-License-Identifier: BSD-3-Clause
// All collectives but all-reduce, of production shards in the simulator's world, against the
// reference (lib/sim/reference/collective_reference.h).
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

namespace {

constexpr Collective kOthers[] = {Collective::kReduce, Collective::kBroadcast,
                                  Collective::kAllGather, Collective::kReduceScatter,
                                  Collective::kBarrier};

sim::OpPlan plan_of(Collective collective, std::uint64_t count, std::uint32_t root,
                    bool in_place = false, DataType datatype = DataType::kFloat32,
                    RedOp redop = RedOp::kSum) {
  sim::OpPlan plan{.count = collective == Collective::kBarrier ? 0 : count,
                   .datatype = datatype,
                   .redop = redop,
                   .in_place = in_place,
                   .seed = count + root + 7,
                   .collective = collective};
  if (has_root(collective)) plan.root = root;
  if (datatype == DataType::kBytes) plan.element_bytes = 5;
  return plan;
}

/// Ops 1, 2, ... of a ring, posted and checked.
class Ops {
 public:
  explicit Ops(const RingOptions& options) : options_(options), ring_(options) {
    REQUIRE(ring_.form());
  }
  void add(const sim::OpPlan& plan) {
    if (options_.ranks.empty()) {
      cases_.emplace_back(options_.nranks, options_.members, plan);
    } else {
      cases_.emplace_back(options_.nranks, options_.ranks, plan);
    }
  }
  void post(std::uint16_t rank, std::size_t op) { ring_.post(rank, cases_[op].spec(rank, op + 1)); }
  void post_all() {
    for (std::uint16_t rank = 0; rank < options_.nranks; ++rank) {
      for (std::size_t op = 0; op < cases_.size(); ++op) post(rank, op);
    }
  }
  void check() {
    for (std::uint16_t rank = 0; rank < options_.nranks; ++rank) {
      for (std::size_t op = 0; op < cases_.size(); ++op) {
        const sim::OpPlan& plan = cases_[op].plan();
        INFO("rank " << rank << " op " << op + 1 << ": " << name_of(plan.collective) << " of "
                     << plan.count << " " << name_of(plan.datatype) << ", " << options_.nranks
                     << " ranks of " << options_.members << ", root " << plan.root);
        REQUIRE(ring_.run_until([&] { return ring_.done(rank, op + 1) || ring_.aborted(rank); }));
        REQUIRE_FALSE(ring_.aborted(rank));
        REQUIRE(cases_[op].wrong(rank) == "");
      }
    }
  }
  [[nodiscard]] RingHarness& ring() { return ring_; }

 private:
  RingOptions options_;
  RingHarness ring_;
  std::deque<OpCase> cases_;
};

}  // namespace

TEST_CASE("each collective gives what it has to, at awkward counts, ranks, members and roots") {
  for (const std::uint16_t nranks : {1, 2, 3, 5}) {
    for (const std::uint16_t members : {1, 3}) {
      RingOptions options;
      options.nranks = nranks;
      options.members = members;
      options.lanes = nranks == 3 ? 2 : 1;
      Ops ops(options);
      std::uint32_t root = 0;
      for (const Collective collective : kOthers) {
        for (const std::uint64_t count : {0, 1, 63, 64, 65, 129, 500}) {
          for (const bool in_place : {false, true}) {
            ops.add(plan_of(collective, count, root++ % (nranks * members), in_place));
          }
        }
      }
      ops.post_all();
      ops.check();
      CHECK(ops.ring().leaked_mbufs() == 0);
    }
  }
}

TEST_CASE("ranks of different size and processes in any order get what they have to") {
  const std::vector<std::vector<std::uint16_t>> layouts = {
      {0, 1, 1, 1},           // one process beside three
      {1, 0, 1, 1},           // the same, in another order
      {2, 0, 1},              // one each, in another order
      {1, 1, 0, 0},           // two each, the other way round
      {2, 0, 2, 1, 2, 0, 0},  // neither
      {0, 0, 0},              // one rank alone
      {4, 1, 3, 3, 0, 2, 1, 4, 4, 4},
  };
  for (const std::vector<std::uint16_t>& ranks : layouts) {
    for (const std::uint8_t lanes : {1, 3}) {
      RingOptions options;
      options.nranks = static_cast<std::uint16_t>(*std::ranges::max_element(ranks) + 1);
      options.ranks = ranks;
      options.lanes = lanes;
      options.loss = lanes > 1 ? 0.05 : 0.0;
      Ops ops(options);
      const auto processes = static_cast<std::uint32_t>(ranks.size());
      std::uint32_t root = 0;
      for (const std::uint64_t count : {0, 1, 64, 65, 300}) {
        for (const bool in_place : {false, true}) {
          ops.add(plan_of(Collective::kAllReduce, count, 0, in_place, DataType::kBfloat16,
                          RedOp::kAvg));
          for (const Collective collective : kOthers) {
            const bool folds = reduces(collective);
            ops.add(plan_of(collective, count, root++ % processes, in_place,
                            folds ? DataType::kFloat16 : DataType::kInt32,
                            folds ? RedOp::kAvg : RedOp::kSum));
          }
        }
      }
      ops.post_all();
      ops.check();
      CHECK(ops.ring().leaked_mbufs() == 0);
    }
  }
}

TEST_CASE("a status says whether a barrier waits for posts, and where they are missing") {
  RingOptions options;
  options.nranks = 4;
  OpCase op(4, 1, {.count = 0, .collective = Collective::kBarrier});
  RingHarness ring(options);
  REQUIRE(ring.form());
  for (const std::uint16_t rank : {0, 1, 3}) ring.post(rank, op.spec(rank, 1));
  ring.run_for(10'000'000);
  for (const std::uint16_t rank : {0, 1, 3}) {
    const collective::ShardStatus status = ring.shard(rank).status(ring.now());
    INFO("rank " << rank);
    CHECK(status.waits_for_posts);
    CHECK_FALSE(status.posted_onwards);
    CHECK(status.downstream_posted_op_seq == (rank == 1 ? 0 : 1));
  }
  ring.post(2, op.spec(2, 1));
  REQUIRE(ring.run_until([&] { return ring.done(0, 1); }));
  CHECK_FALSE(ring.shard(0).status(ring.now()).waits_for_posts);
}

TEST_CASE("roots that differ so that no rank begins are named") {
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    RingOptions options;
    options.nranks = 3;
    std::deque<OpCase> ops;
    RingHarness ring(options);
    REQUIRE(ring.form());
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      // Each names the rank before it, or that for which the rank before it begins.
      const std::uint32_t root = (rank + (collective == Collective::kReduce ? 1u : 2u)) % 3;
      ops.emplace_back(3, 1, sim::OpPlan{.count = 100, .collective = collective, .root = root});
      ring.post(rank, ops.back().spec(rank, 1));
    }
    REQUIRE(ring.run_until([&] { return ring.aborted(0); }, 1'000'000'000));
    CHECK(ring.shard(0).reason().code == AbortCode::kMismatch);
    CHECK(ring.counter(&collective::ShardCounters::data_packets_sent) == 0);
  }
}

TEST_CASE("each datatype and redop of the collectives that reduce, and bytes of those that move") {
  for (const std::uint16_t nranks : {2, 3}) {
    RingOptions options;
    options.nranks = nranks;
    options.members = 2;
    Ops ops(options);
    for (int type = 0; type < kDataTypeCount; ++type) {
      for (int redop = 0; redop < kRedOpCount; ++redop) {
        if (!fits(static_cast<RedOp>(redop), static_cast<DataType>(type))) continue;
        for (const Collective collective : {Collective::kReduce, Collective::kReduceScatter}) {
          ops.add(plan_of(collective, 70, 1, false, static_cast<DataType>(type),
                          static_cast<RedOp>(redop)));
        }
      }
    }
    for (const Collective collective : {Collective::kBroadcast, Collective::kAllGather}) {
      ops.add(plan_of(collective, 101, 2, true, DataType::kBytes));
      ops.add(plan_of(collective, 101, 2, true, DataType::kFloat16));
    }
    ops.post_all();
    ops.check();
  }
}

TEST_CASE("with next to no buffers, loss and late ranks the bits stay the same") {
  for (const std::uint16_t nranks : {2, 3, 4, 7}) {
    for (const double loss : {0.0, 0.05}) {
      RingOptions options;
      options.nranks = nranks;
      options.loss = options.duplication = loss;
      options.jitter_ns = loss > 0 ? 30'000 : 0;
      options.shard.window_packets = 4;
      options.shard.transit_packets = 1;
      options.shard.eager_packets = 1;
      Ops ops(options);
      for (std::uint32_t i = 0; i < 20; ++i) {
        ops.add(plan_of(kOthers[i % 5], 1500, i % nranks, i % 2 == 0));
      }
      for (std::uint16_t rank = 0; rank < nranks; ++rank) {
        const auto at = static_cast<std::uint16_t>((rank * 3 + 1) % nranks);
        const bool each_once = nranks % 3 != 0;
        for (std::size_t op = 0; op < 20; ++op) ops.post(each_once ? at : rank, op);
        ops.ring().run_for(2'000'000);
      }
      INFO(nranks << " ranks, loss " << loss);
      ops.check();
    }
  }
}

TEST_CASE("a reduce-scatter waits in its packets if what goes on has no room, and spills nothing") {
  RingOptions options;
  options.nranks = 4;
  options.shard.transit_packets = 1;
  options.shard.window_packets = 8;
  Ops ops(options);
  ops.add(plan_of(Collective::kReduceScatter, 20'000, 0));
  ops.post_all();
  ops.check();
  CHECK(ops.ring().counter(&collective::ShardCounters::spills) == 0);
  CHECK(ops.ring().drops(wire::Drop::kNoBuffer) == 0);
}

TEST_CASE("a barrier is done nowhere before all have posted it") {
  for (const std::uint16_t nranks : {2, 3, 6}) {
    for (std::uint16_t late = 0; late < nranks; ++late) {
      RingOptions options;
      options.nranks = nranks;
      options.lanes = 2;
      options.loss = 0.1;
      Ops ops(options);
      ops.add(plan_of(Collective::kBarrier, 0, 0));
      for (std::uint16_t rank = 0; rank < nranks; ++rank) {
        if (rank != late) ops.post(rank, 0);
      }
      ops.ring().run_for(50'000'000);
      for (std::uint16_t rank = 0; rank < nranks; ++rank) CHECK_FALSE(ops.ring().done(rank, 1));
      ops.post(late, 0);
      ops.check();
    }
  }
}

TEST_CASE("a broadcast is done at the root before ranks further on have posted it") {
  RingOptions options;
  options.nranks = 3;
  Ops ops(options);
  ops.add(plan_of(Collective::kBroadcast, 1000, 0));
  ops.post(0, 0);
  ops.post(1, 0);
  REQUIRE(ops.ring().run_until([&] { return ops.ring().done(0, 1); }));
  CHECK_FALSE(ops.ring().done(2, 1));
  ops.post(2, 0);
  ops.check();
}

TEST_CASE("ranks that call different collectives or roots abort, naming both") {
  const auto reason = [](const sim::OpPlan& first, const sim::OpPlan& second) {
    RingOptions options;
    options.nranks = 2;
    RingHarness ring(options);
    REQUIRE(ring.form());
    OpCase mine(2, 1, first);
    OpCase theirs(2, 1, second);
    ring.post(0, mine.spec(0, 1));
    ring.post(1, theirs.spec(1, 1));
    REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1); }));
    CHECK(ring.shard(0).reason().code == AbortCode::kMismatch);
    return std::string(ring.shard(0).reason().detail);
  };
  CHECK(reason(plan_of(Collective::kAllReduce, 100, 0),
               plan_of(Collective::kReduceScatter, 100, 0)) ==
        "rank 0 called all-reduce sum of 100 fp32 with tag 99, rank 1 called reduce-scatter sum of "
        "100 fp32 with tag 99");
  CHECK(reason(plan_of(Collective::kBroadcast, 8, 0), plan_of(Collective::kBroadcast, 8, 1)) ==
        "rank 0 called broadcast of 8 fp32 from process 0 with tag 99, rank 1 called broadcast of "
        "8 fp32 from process 1 with tag 99");
}

TEST_CASE("what no rank can do is refused when it is posted") {
  RingOptions options;
  options.nranks = 2;
  RingHarness ring(options);
  REQUIRE(ring.form());
  collective::OpSpec spec;
  spec.op_seq = 1;
  spec.count = 1;
  spec.collective = Collective::kBroadcast;
  spec.root = 2;
  CHECK(ring.shard(0).post(spec, ring.now()) == collective::PostResult::kUnsupported);
  spec.collective = static_cast<Collective>(6);
  CHECK(ring.shard(0).post(spec, ring.now()) == collective::PostResult::kUnsupported);
  spec.collective = Collective::kAllGather;
  spec.count = std::uint64_t{1} << 60;
  CHECK(ring.shard(0).post(spec, ring.now()) == collective::PostResult::kTooLarge);
}

TEST_CASE("an all-gather without a chunk of the next rank's block on a lane waits for that rank") {
  // Lane 1 has the blocks of ranks 1 and 3 alone, so rank 4 has all of them before rank 0 posts.
  RingOptions options;
  options.nranks = 5;
  options.lanes = 2;
  options.shard.eager_packets = 4;
  options.shard.transit_packets = 4;
  Ops ops(options);
  constexpr std::size_t kOps = 60;
  for (std::size_t op = 0; op < kOps; ++op) ops.add(plan_of(Collective::kAllGather, 3, 0));
  for (std::uint16_t rank = 1; rank < 5; ++rank) {
    for (std::size_t op = 0; op < kOps; ++op) ops.post(rank, op);
  }
  ops.ring().run_for(100'000'000);
  // The first op frees a place for early chunks; a place that is given back before rank 0 has
  // posted its op would let the others go one after the other.
  ops.post(0, 0);
  ops.ring().run_for(100'000'000);
  CHECK(ops.ring().drops(wire::Drop::kEagerOverflow) == 0);
  for (std::size_t op = 1; op < kOps; ++op) ops.post(0, op);
  ops.check();
}
