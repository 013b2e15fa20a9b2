// SPDX-License-Identifier: BSD-3-Clause
// The same calls by each shape: the bits are the same, whatever the ranks, members, counts and
// datatypes, under loss.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

namespace {

constexpr std::uint32_t kPayload = 256;

struct ForcedShape {
  const char* name;
  std::uint64_t direct_bytes;
  std::uint64_t two_step_bytes;
  std::uint64_t gathered_bytes;
  std::uint64_t collective::ShardCounters::*counter;  ///< of ops of that shape; none: the ring's
  std::uint16_t owners = 0;                           ///< so many of the last ranks; 0: all
  std::uint16_t folding = 0;                          ///< ranks without members beside the others
};

constexpr std::uint64_t kBytes = 64u << 10;
/// Of the two-step shape all that is no longer than 1 KiB of all ranks is direct.
constexpr std::array kShapes = {
    ForcedShape{"ring", 0, 0, 0, nullptr},
    ForcedShape{"direct", kBytes, 0, 0, &collective::ShardCounters::ops_direct},
    ForcedShape{"two-step", 1024, kBytes, 0, &collective::ShardCounters::ops_two_step},
    ForcedShape{"two-step of one", 1024, kBytes, 0, &collective::ShardCounters::ops_two_step, 1},
    ForcedShape{"two-step of two", 1024, kBytes, 0, &collective::ShardCounters::ops_two_step, 2},
    ForcedShape{.name = "two-step of one without members",
                .direct_bytes = 1024,
                .two_step_bytes = kBytes,
                .gathered_bytes = 0,
                .counter = &collective::ShardCounters::ops_two_step,
                .folding = 1},
    ForcedShape{"two-step of one and two without members", 1024, kBytes, 0,
                &collective::ShardCounters::ops_two_step, 1, 2},
    ForcedShape{"gathered", kBytes, 0, kBytes, &collective::ShardCounters::ops_gathered}};

constexpr std::array kRingCollectives = {Collective::kAllReduce,     Collective::kReduce,
                                         Collective::kReduceScatter, Collective::kBroadcast,
                                         Collective::kAllGather,     Collective::kBarrier};

/// In which rank each process is: of odd numbers of ranks uneven and in an order of their own.
std::vector<std::uint16_t> layout_of(std::uint16_t nranks) {
  std::vector<std::uint16_t> ranks;
  if (nranks % 2 == 0 || nranks == 1) return ranks;
  for (std::uint16_t i = 0; i < nranks; ++i) ranks.push_back((i * 2 + 1) % nranks);
  ranks.push_back(nranks / 2);
  ranks.push_back(0);
  ranks.push_back(0);
  return ranks;
}

/// All ops of one shape, each compared with the reference.
void run_all(std::uint16_t nranks, const ForcedShape& shape) {
  RingOptions options;
  options.nranks = nranks;
  if (nranks > 1) options.folding_ranks = shape.folding;
  options.ranks = layout_of(nranks);
  options.members = options.ranks.empty() ? 1 : 3;
  for (std::uint16_t i = 0; i < std::min(shape.owners, nranks); ++i) {
    options.owners.push_back(nranks - 1u - i);
  }
  options.lanes = nranks % 3 == 0 ? 2 : 1;
  options.payload_bytes = kPayload;
  options.loss = 0.02;
  options.shard.exchange_bytes = 0;
  options.shard.direct.op_bytes = shape.direct_bytes;
  options.shard.direct.two_step_bytes = shape.two_step_bytes;
  options.shard.direct.gathered_bytes = shape.gathered_bytes;
  options.shard.direct.gathered_ranks = 2;
  RingHarness ring(options);
  REQUIRE(ring.form());
  const auto processes =
      options.ranks.empty() ? std::uint32_t{nranks} : std::uint32_t(options.ranks.size());
  std::uint64_t op_seq = 0;
  for (const Collective collective : kRingCollectives) {
    // None, one, odd, a payload of 4 bytes each and around it, several.
    for (const std::uint64_t count : {0, 1, 7, 63, 64, 65, 300}) {
      if (collective == Collective::kBarrier && count != 0) continue;
      sim::OpPlan plan{.count = count, .in_place = count % 2 != 0, .collective = collective};
      plan.seed = ++op_seq;
      // Every datatype and redop comes with some count and collective.
      plan.datatype = static_cast<DataType>((op_seq + nranks) % kDataTypeCount);
      if (reduces(collective)) plan.redop = static_cast<RedOp>(op_seq * 5 / 3 % kRedOpCount);
      if (!fits(plan.redop, plan.datatype)) plan.redop = RedOp::kAvg;
      if (collective == Collective::kBarrier) plan.datatype = DataType::kFloat32;
      plan.root = has_root(collective) ? static_cast<std::uint32_t>(count % processes)
                                       : collective::kNoRoot;
      OpCase op =
          options.ranks.empty() ? OpCase(nranks, 1, plan) : OpCase(nranks, options.ranks, plan);
      INFO(nranks << " ranks, " << shape.name << ", " << name_of(collective) << " of " << count
                  << " " << name_of(plan.datatype) << " " << name_of(plan.redop));
      for (std::uint16_t rank = 0; rank < nranks; ++rank) ring.post(rank, op.spec(rank, op_seq));
      for (std::uint16_t rank = 0; rank < nranks; ++rank) {
        REQUIRE(ring.run_until([&] { return ring.done(rank, op_seq) || ring.aborted(rank); }));
        REQUIRE_FALSE(ring.aborted(rank));
        REQUIRE(op.wrong(rank) == "");
      }
    }
  }
  REQUIRE(ring.drops(wire::Drop::kBadChunk) == 0);
  if (shape.counter != nullptr && nranks + options.folding_ranks >= 3)
    REQUIRE(ring.counter(shape.counter) > 0);
}

}  // namespace

TEST_CASE("each shape gives the reference's bits at 1 to 9 ranks, uneven and in any order") {
  for (std::uint16_t nranks = 1; nranks <= 9; ++nranks) {
    for (const ForcedShape& shape : kShapes) run_all(nranks, shape);
  }
}
