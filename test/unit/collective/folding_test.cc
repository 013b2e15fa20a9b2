// SPDX-License-Identifier: BSD-3-Clause
// Ranks without members, which sum ops in two steps for the others
// (lib/collective/off_ring/told_ops.h).
#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "ring_sums.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::Shape;
using collective::ShardCounters;
using sim::OpCase;

namespace {

constexpr std::uint64_t kFolded = 2000;  ///< 32 chunks of 256 bytes, as many as an owner may have
constexpr std::uint64_t kFoldedBytes = kFolded * 4;

/// All ops of more than 1 KiB of all ranks' inputs go in two steps.
RingOptions hanging_options(std::uint16_t nranks, std::uint16_t folding_ranks = 1) {
  RingOptions options;
  options.nranks = nranks;
  options.folding_ranks = folding_ranks;
  options.shard.direct.op_bytes = 1024;
  options.shard.direct.two_step_bytes = 64u << 10;
  options.shard.exchange_bytes = 0;
  return options;
}

void leave_and_close(RingHarness& ring, std::uint16_t all_ranks) {
  for (std::uint16_t rank = 0; rank < all_ranks; ++rank) ring.leave(rank);
  for (std::uint16_t rank = 0; rank < all_ranks; ++rank) {
    INFO("rank " << rank);
    REQUIRE(ring.run_until([&] { return ring.closed(rank); }, 1'000'000'000));
    REQUIRE_FALSE(ring.aborted(rank));
  }
}

}  // namespace

TEST_CASE("a rank without members sums, and the others send their bytes once", "[folding]") {
  for (const std::uint16_t nranks : {2, 3, 5}) {
    RingHarness ring(hanging_options(nranks));
    // All send at once when it has said that it has entered the op.
    ring.host(nranks).rx_descriptors = 256;
    REQUIRE(ring.form());
    OpCase op(nranks, 1, {.count = kFolded, .seed = 3});
    run_op(ring, op, nranks);
    CHECK(ring.counter(&ShardCounters::ops_two_step) == nranks + 1u);
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      CHECK(ring.shard(rank).counters().data_bytes_sent == kFoldedBytes);
    }
    CHECK(ring.shard(nranks).counters().data_bytes_sent == nranks * kFoldedBytes);
    leave_and_close(ring, nranks + 1);
  }
}

TEST_CASE("ops of other shapes pass by a rank without members", "[folding]") {
  constexpr std::uint16_t kRanks = 4;
  RingHarness ring(hanging_options(kRanks));
  REQUIRE(ring.form());
  std::uint64_t op_seq = 0;
  const auto run = [&](Collective collective, std::uint64_t count) {
    sim::OpPlan plan{.count = count, .seed = op_seq + 1, .collective = collective};
    if (has_root(collective)) plan.root = 1;
    OpCase op(kRanks, 1, plan);
    run_op(ring, op, kRanks, ++op_seq);
  };
  // More between than descriptors are kept, or as many as may be told of, or none.
  for (const std::uint64_t between : {0, 1, 254, 255, 256, 600}) {
    for (std::uint64_t i = 0; i < between; ++i) run(Collective::kAllReduce, i % 3);
    run(Collective::kAllReduce, kFolded);
  }
  CHECK(ring.shard(kRanks).counters().ops_two_step == 6);
  run(Collective::kAllReduce, 100'000);
  run(Collective::kBroadcast, 100);
  run(Collective::kReduceScatter, 100);
  run(Collective::kAllGather, 100);
  run(Collective::kBarrier, 0);
  run(Collective::kAllReduce, kFolded);
  CHECK(ring.shard(kRanks).counters().ops_two_step == 7);
  CHECK(ring.shard(kRanks).counters().ops_done == 7);
  leave_and_close(ring, kRanks + 1);
}

TEST_CASE("ranks post to any depths before one without members, under loss", "[folding]") {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kOps = 120;
  for (const std::uint16_t folding : {1, 3}) {
    for (const double slow : {0.0, 0.2}) {
      RingOptions options = hanging_options(kRanks, folding);
      options.loss = 0.1;
      options.lanes = 2;
      options.slow_backend = slow;
      options.shard.max_active_ops = 256;
      RingHarness ring(options);
      REQUIRE(ring.form());
      std::deque<OpCase> ops;
      for (std::size_t i = 0; i < kOps; ++i) {
        ops.emplace_back(kRanks, 1, sim::OpPlan{.count = i * 211 % 3900 * (i % 3), .seed = i});
      }
      const auto post_all = [&](std::uint16_t rank) {
        for (std::size_t i = 0; i < kOps; ++i) ring.post(rank, ops[i].spec(rank, i + 1));
      };
      for (const std::uint16_t rank : {0, 2, 3}) post_all(rank);
      ring.run_for(500'000'000);
      REQUIRE_FALSE(ring.aborted(0));
      post_all(1);
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        for (std::size_t i = 0; i < kOps; ++i) {
          REQUIRE(ring.run_until([&] { return ring.done(rank, i + 1) || ring.aborted(rank); }));
          REQUIRE_FALSE(ring.aborted(rank));
          REQUIRE(ops[i].wrong(rank) == "");
        }
      }
      REQUIRE(ring.shard(kRanks).counters().ops_two_step > 10);
      REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
      REQUIRE(ring.drops(wire::Drop::kBadChunk) == 0);
      leave_and_close(ring, kRanks + folding);
    }
  }
}

TEST_CASE("a rank without members that dies is named, also if nothing is to be summed",
          "[folding]") {
  constexpr std::uint16_t kRanks = 4;
  for (const bool idle : {true, false}) {
    for (const std::uint16_t dead : {4, 5}) {
      RingHarness ring(hanging_options(kRanks, 2));
      REQUIRE(ring.form());
      OpCase first(kRanks, 1, {.count = kFolded, .seed = 1});
      run_op(ring, first, kRanks, 1);
      ring.freeze(dead);
      OpCase second(kRanks, 1, {.count = kFolded, .seed = 2});
      for (std::uint16_t rank = 0; rank < kRanks && !idle; ++rank) {
        ring.post(rank, second.spec(rank, 2));
      }
      const std::uint16_t other = 9 - dead;
      for (const std::uint16_t rank : {0, 1, 2, 3, int{other}}) {
        REQUIRE(ring.run_until([&] { return ring.aborted(rank); }));
        CHECK(ring.shard(rank).reason().code == AbortCode::kSilence);
        CHECK(ring.shard(rank).reason().culprit_rank == dead);
      }
    }
  }
}

TEST_CASE("a rank without members hears of an abort, and that its rank of the ring is gone",
          "[folding]") {
  constexpr std::uint16_t kRanks = 4;
  for (const std::uint16_t dead : {0, 2}) {
    RingHarness ring(hanging_options(kRanks));
    REQUIRE(ring.form());
    ring.freeze(dead);
    REQUIRE(ring.run_until([&] { return ring.aborted(kRanks); }));
    CHECK(ring.shard(kRanks).reason().culprit_rank == dead);
  }
  RingHarness ring(hanging_options(kRanks));
  REQUIRE(ring.form());
  ring.abort(2, {.code = AbortCode::kClientAbort, .culprit_rank = 2, .reporter_rank = 2});
  REQUIRE(ring.run_until([&] { return ring.aborted(kRanks); }));
  CHECK(ring.shard(kRanks).reason().code == AbortCode::kClientAbort);
}

TEST_CASE("a rank without members vouches for no way to the next rank", "[folding]") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(hanging_options(kRanks));
  REQUIRE(ring.form());
  ring.run_for(100'000'000);
  ring.freeze(1);
  ring.run_for(1'000'000);
  const auto heard = [&] { return ring.shard(0).status(ring.now()).counters.acks_received; };
  const std::uint64_t before = heard();
  ring.run_for(200'000'000);
  REQUIRE_FALSE(ring.aborted(0));
  REQUIRE(heard() == before);
  // But it is missed itself, before the group ends for it.
  ring.freeze(1, false);
  ring.freeze(kRanks);
  REQUIRE(ring.run_until([&] {
    const collective::ShardStatus status = ring.shard(0).status(ring.now());
    return status.least_heard_rank == kRanks && status.least_heard_ns > 200'000'000;
  }));
  REQUIRE_FALSE(ring.aborted(0));
}

TEST_CASE("a rank without members that is ended ends the group, by name", "[folding]") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(hanging_options(kRanks));
  REQUIRE(ring.form());
  ring.abort(kRanks,
             {.code = AbortCode::kClientDied, .culprit_rank = kRanks, .reporter_rank = kRanks});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.aborted(rank); }));
    CHECK(ring.shard(rank).reason().code == AbortCode::kClientDied);
    CHECK(ring.shard(rank).reason().culprit_rank == kRanks);
  }
}

TEST_CASE("what tells a rank without members of an op is sent until it comes", "[folding]") {
  constexpr std::uint16_t kRanks = 3;
  // One chunk of each rank, or as many as may go ahead, or more.
  for (const std::uint64_t count : {128, 192, 2000}) {
    for (const int lost : {3, 6, 9}) {
      RingOptions options = hanging_options(kRanks);
      options.payload_bytes = count == 128 ? 1024 : 256;
      RingHarness ring(options);
      REQUIRE(ring.form());
      int left = lost;
      ring.lose([&](std::uint16_t, std::uint16_t to, wire::PacketType type) {
        return to == kRanks && type == wire::PacketType::kContribution && left-- > 0;
      });
      std::deque<OpCase> ops;
      for (std::uint64_t op_seq = 1; op_seq <= 3; ++op_seq) {
        ops.emplace_back(kRanks, 1, sim::OpPlan{.count = count, .seed = op_seq});
        for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
          ring.post(rank, ops.back().spec(rank, op_seq));
        }
      }
      INFO(count << " elements, " << lost << " packets lost");
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        REQUIRE(ring.run_until([&] { return ring.done(rank, 3); }, 1'000'000'000));
        REQUIRE(ops[2].wrong(rank) == "");
      }
      REQUIRE(left < 0);
      REQUIRE(ring.drops(wire::Drop::kEagerOverflow) == 0);
    }
  }
}

TEST_CASE("ranks of a ring hear each other while one without members is late", "[folding]") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(hanging_options(kRanks));
  ring.freeze(kRanks);
  REQUIRE_FALSE(ring.form(4'000'000'000));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) REQUIRE_FALSE(ring.aborted(rank));
  ring.freeze(kRanks, false);
  REQUIRE(ring.run_until([&] { return ring.formed(0) && ring.formed(kRanks); }));
  OpCase op(kRanks, 1, {.count = kFolded, .seed = 3});
  run_op(ring, op, kRanks);
}

TEST_CASE("a rank without members is reached by another rail", "[folding]") {
  constexpr std::uint16_t kRanks = 3;
  for (const bool later : {false, true}) {
    RingOptions options = hanging_options(kRanks);
    options.rails = 2;
    RingHarness ring(options);
    const auto cut = [&] {
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.cut_rail(rank, kRanks, 0, true);
    };
    if (!later) cut();
    REQUIRE(ring.form());
    if (later) cut();
    ring.run_for(3'000'000'000);
    for (std::uint64_t op_seq = 1; op_seq <= 3; ++op_seq) {
      OpCase op(kRanks, 1, {.count = kFolded, .seed = op_seq});
      run_op(ring, op, kRanks, op_seq);
    }
    leave_and_close(ring, kRanks + 1);
  }
}

TEST_CASE("a rank without members stays until the others leave", "[folding]") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(hanging_options(kRanks));
  REQUIRE(ring.form());
  ring.leave(kRanks);
  ring.run_for(5'000'000'000);
  REQUIRE_FALSE(ring.closed(kRanks));
  OpCase op(kRanks, 1, {.count = kFolded, .seed = 3});
  run_op(ring, op, kRanks);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.leave(rank);
  for (std::uint16_t rank = 0; rank <= kRanks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.closed(rank); }, 1'000'000'000));
    REQUIRE_FALSE(ring.aborted(rank));
  }
}

TEST_CASE("a rank that calls another op is found by one without members", "[folding]") {
  constexpr std::uint16_t kRanks = 4;
  for (const std::uint64_t count : {kFolded - 100, std::uint64_t{50}}) {
    RingHarness ring(hanging_options(kRanks));
    REQUIRE(ring.form());
    OpCase common(kRanks, 1, {.count = kFolded, .seed = 1});
    OpCase other(kRanks, 1, {.count = count, .seed = 1});
    for (const std::uint16_t rank : {0, 1, 3}) ring.post(rank, common.spec(rank, 1));
    ring.post(2, other.spec(2, 1));
    for (std::uint16_t rank = 0; rank <= kRanks; ++rank) {
      REQUIRE(ring.run_until([&] { return ring.aborted(rank); }, 5'000'000'000));
    }
    CHECK(ring.shard(1).reason().code == AbortCode::kMismatch);
    CHECK(ring.shard(1).reason().culprit_rank < kRanks);
  }
}

TEST_CASE("a rank without members that was told of a later op says who called what", "[folding]") {
  // Rank 0 calls an op in two steps where all others call none, and then all call one.
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(hanging_options(kRanks));
  REQUIRE(ring.form());
  // Nothing goes between those with members: what the ring would find out first is not seen.
  for (std::uint16_t a = 0; a < kRanks; ++a) {
    for (std::uint16_t b = 0; b < kRanks; ++b) {
      if (a != b) ring.set_down(a, b, true);
    }
  }
  ring.delay_rail(0, kRanks, 0, 2'000'000);
  OpCase none(kRanks, 1, {.count = 0});
  OpCase sum(kRanks, 1, {.count = kFolded, .seed = 1});
  for (const std::uint16_t rank : {1, 2}) {
    ring.post(rank, none.spec(rank, 1));
    ring.post(rank, sum.spec(rank, 2));
  }
  ring.post(0, sum.spec(0, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(kRanks); }, 1'000'000'000));
  const AbortReason& reason = ring.shard(kRanks).reason();
  CHECK(reason.code == AbortCode::kMismatch);
  CHECK(reason.culprit_rank == 0);
  CHECK(std::string(reason.detail).find("rank 0 called all-reduce sum of 2000 fp32") !=
        std::string::npos);
}

TEST_CASE("what a group with ranks without members needs is checked", "[folding]") {
  collective::ShardConfig config;
  config.nranks = 2;
  config.folding_ranks = 3;
  config.payload_bytes = 256;
  const auto backend = reduce::make_cpu_backend(8);
  const auto refused = check(config, backend.get());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("3 ranks without members beside 2 with") == 0);
}

TEST_CASE("a group of two ranks and one without members has ops in two steps", "[folding]") {
  const collective::Owners owners({2}, 3);
  const collective::ShapeGroup two{.nranks = 2,
                                   .direct_bytes = 1024,
                                   .payload_bytes = 8192,
                                   .two_step_bytes = 64u << 10,
                                   .owners = &owners};
  CHECK(shape_for(two, kFoldedBytes, {.count = kFolded}) == Shape::kTwoStep);
}
