// SPDX-License-Identifier: BSD-3-Clause
// Ranks without members own a share of all-reduces by tiles (doc/protocol/tiles.md, A rank without
// members). Others tell them of ops.
#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <vector>

#include "ring_sums.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::ShardCounters;
using sim::OpCase;
using sim::OpPlan;
using wire::PacketType;

namespace {

constexpr TimeNs kMillis = 1'000'000;
constexpr std::uint64_t kLarge = 20'000;  ///< elements that go by tiles

RingOptions hanging_options(std::uint16_t nranks, std::uint16_t folding_ranks) {
  RingOptions options;
  options.nranks = nranks;
  options.folding_ranks = folding_ranks;
  options.payload_bytes = 576;
  options.shard.tiles.used = true;
  options.shard.direct.op_bytes = 1024;
  options.shard.direct.two_step_bytes = 8u << 10;
  options.shard.exchange_bytes = 0;
  options.shard.tiles.tile_bytes = 16 * 2 * options.payload_bytes;
  options.shard.tiles.scratch_bytes = 64u << 10;
  options.shard.timeouts.silence_ns = 500 * kMillis;
  options.shard.timeouts.ping_interval_ns = 20 * kMillis;
  return options;
}

/// The ports of ranks with members have no room for others' parts: those without own all.
RingOptions where_hosts_own_all(std::uint16_t nranks, std::uint16_t folding_ranks) {
  RingOptions options = hanging_options(nranks, folding_ranks);
  options.rates.assign(nranks, 1);
  options.rates.resize(nranks + folding_ranks, 1000);
  return options;
}

void leave_and_close(RingHarness& ring, std::uint16_t all_ranks) {
  for (std::uint16_t rank = 0; rank < all_ranks; ++rank) ring.leave(rank);
  for (std::uint16_t rank = 0; rank < all_ranks; ++rank) {
    INFO("rank " << rank);
    REQUIRE(ring.run_until([&] { return ring.closed(rank); }, 1'000 * kMillis));
    REQUIRE_FALSE(ring.aborted(rank));
  }
}

}  // namespace

TEST_CASE("ranks without members sum their share of all-reduces by tiles") {
  for (const std::uint16_t nranks : {2, 3, 5}) {
    for (std::uint16_t folding = 1; folding <= 2; ++folding) {
      RingOptions options = hanging_options(nranks, folding);
      options.lanes = folding;
      RingHarness ring(options);
      REQUIRE(ring.form());
      std::uint64_t op_seq = 0;
      const auto run = [&](OpPlan plan) {
        INFO(nranks << " ranks, " << folding << " without members, " << name_of(plan.datatype)
                    << " by " << name_of(plan.redop) << " as " << name_of(plan.wire));
        plan.seed = op_seq + 1;
        OpCase op(nranks, 1, plan);
        run_op(ring, op, nranks, ++op_seq);
      };
      for (const bool in_place : {false, true}) {
        run({.count = kLarge, .in_place = in_place});
        run({.count = kLarge + 3, .redop = RedOp::kAvg, .in_place = in_place});
        run({.count = kLarge, .redop = RedOp::kPremulSum, .in_place = in_place});
        run({.count = kLarge, .datatype = DataType::kBfloat16, .in_place = in_place});
        run({.count = kLarge, .datatype = DataType::kInt8, .redop = RedOp::kMax});
        run({.count = kLarge, .in_place = in_place, .wire = WireFormat::kBf16});
        run({.count = kLarge - 1,
             .redop = RedOp::kAvg,
             .in_place = in_place,
             .wire = WireFormat::kInt8});
      }
      for (std::uint16_t host = nranks; host < nranks + folding; ++host) {
        CHECK(ring.shard(host).counters().ops_tiles == op_seq);
        CHECK(ring.shard(host).counters().ops_done == op_seq);
      }
      leave_and_close(ring, nranks + folding);
    }
  }
}

TEST_CASE("a rank sends less if ranks without members own a share by their ports' rates") {
  constexpr std::uint16_t kRanks = 4;
  const auto sent = [](std::uint16_t folding) {
    RingOptions options = hanging_options(kRanks, folding);
    options.rates.assign(kRanks + folding, 10);
    RingHarness ring(options);
    REQUIRE(ring.form());
    OpCase op(kRanks, 1, {.count = kLarge});
    run_op(ring, op, kRanks);
    return ring.shard(0).counters().tile_pieces_sent;
  };
  const auto alone = static_cast<double>(sent(0));
  // 6/5 of the op each way, and 13/12, where it is 3/2 without; tiles are long beside that.
  CHECK(static_cast<double>(sent(2)) / alone == Approx(0.8).margin(0.04));
  CHECK(static_cast<double>(sent(4)) / alone == Approx(2.0 / 3).margin(0.06));
}

TEST_CASE("ops of all shapes pass by a rank without members in the order in which it is told") {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kOps = 90;
  for (const std::uint16_t folding : {1, 3}) {
    for (const bool hosts_own_all : {false, true}) {
      RingOptions options =
          hosts_own_all ? where_hosts_own_all(kRanks, folding) : hanging_options(kRanks, folding);
      options.loss = 0.1;
      options.lanes = 2;
      options.shard.max_active_ops = 256;
      RingHarness ring(options);
      REQUIRE(ring.form());
      std::deque<OpCase> ops;
      for (std::size_t i = 0; i < kOps; ++i) {
        // Of no elements, direct, in two steps, by tiles; and others' collectives.
        const std::uint64_t counts[] = {0, 20, 400, 5000, 6000};
        OpPlan plan{.count = counts[i * 7 % 5], .seed = i + 1};
        if (i % 11 == 3) plan.collective = Collective::kAllGather;
        if (i % 13 == 5) plan.collective = Collective::kReduceScatter;
        if (i % 4 == 1 && plan.collective == Collective::kAllReduce) plan.wire = WireFormat::kBf16;
        ops.emplace_back(kRanks, 1, plan);
      }
      const auto post_all = [&](std::uint16_t rank) {
        for (std::size_t i = 0; i < kOps; ++i) ring.post(rank, ops[i].spec(rank, i + 1));
      };
      for (const std::uint16_t rank : {0, 2, 3}) post_all(rank);
      ring.run_for(500 * kMillis);
      REQUIRE_FALSE(ring.aborted(0));
      post_all(1);
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        for (std::size_t i = 0; i < kOps; ++i) {
          INFO("rank " << rank << " op " << i + 1);
          REQUIRE(ring.run_until([&] { return ring.done(rank, i + 1) || ring.aborted(rank); }));
          REQUIRE_FALSE(ring.aborted(rank));
          REQUIRE(ops[i].wrong(rank) == "");
        }
      }
      const ShardCounters& host = ring.shard(kRanks).counters();
      CHECK(host.ops_tiles > 20);
      CHECK(host.ops_two_step > 5);
      REQUIRE(ring.drops(wire::Drop::kBadChunk) == 0);
      leave_and_close(ring, kRanks + folding);
    }
  }
}

TEST_CASE("an owner without members is told of two ops at most that it has not entered") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(hanging_options(kRanks, 1));
  REQUIRE(ring.form());
  std::size_t calls = 0;
  ring.lose([&](sim::HostId from, sim::HostId to, PacketType type) {
    calls += from == 1 && to == kRanks && type == PacketType::kTileCall ? 1 : 0;
    return false;
  });
  ring.freeze(kRanks);
  std::deque<OpCase> ops;
  for (std::uint64_t op_seq = 1; op_seq <= 5; ++op_seq) {
    ops.emplace_back(kRanks, 1, OpPlan{.count = kLarge, .seed = op_seq});
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      ring.post(rank, ops.back().spec(rank, op_seq));
    }
  }
  // Less than a probe timeout: nothing is repeated.
  ring.run_for(200'000);
  CHECK(calls == 2);
  ring.freeze(kRanks, false);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 5); }));
    for (OpCase& op : ops) REQUIRE(op.wrong(rank) == "");
  }
}

TEST_CASE("the call that tells an owner without members of an op is sent until it is pulled") {
  constexpr std::uint16_t kRanks = 3;
  for (const PacketType lost : {PacketType::kTileCall, PacketType::kTilePull}) {
    for (const int many : {3, 6, 9}) {
      RingHarness ring(where_hosts_own_all(kRanks, 1));
      REQUIRE(ring.form());
      int left = many;
      ring.lose([&](sim::HostId from, sim::HostId to, PacketType type) {
        return type == lost && (from == kRanks || to == kRanks) && left-- > 0;
      });
      std::deque<OpCase> ops;
      for (std::uint64_t op_seq = 1; op_seq <= 3; ++op_seq) {
        ops.emplace_back(kRanks, 1, OpPlan{.count = kLarge, .seed = op_seq});
        for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
          ring.post(rank, ops.back().spec(rank, op_seq));
        }
      }
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        REQUIRE(ring.run_until([&] { return ring.done(rank, 3); }, 2'000 * kMillis));
        REQUIRE(ops[2].wrong(rank) == "");
      }
      REQUIRE(left < 0);
    }
  }
}

TEST_CASE("an owner without members that dies is named within the silence limit") {
  constexpr std::uint16_t kRanks = 3;
  for (const std::uint16_t dead : {3, 4}) {
    for (const TimeNs after : {0, 100'000, 400'000}) {
      RingOptions options = hanging_options(kRanks, 2);
      options.delay_ns = 100'000;
      RingHarness ring(options);
      REQUIRE(ring.form());
      OpCase first(kRanks, 1, {.count = kLarge});
      run_op(ring, first, kRanks);
      OpCase second(kRanks, 1, {.count = kLarge});
      if (after == 0) ring.freeze(dead);
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, second.spec(rank, 2));
      ring.run_for(after);
      ring.freeze(dead);
      const TimeNs since = ring.now();
      const std::uint16_t other = 7 - dead;
      for (const std::uint16_t rank : {0, 1, 2, int{other}}) {
        REQUIRE(ring.run_until([&] { return ring.aborted(rank); }));
        CHECK(ring.shard(rank).reason().code == AbortCode::kSilence);
        CHECK(ring.shard(rank).reason().culprit_rank == dead);
      }
      CHECK(ring.now() - since < options.shard.timeouts.silence_ns * 5 / 4);
    }
  }
}

TEST_CASE("an owner without members waits for no rank that is dead") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(where_hosts_own_all(kRanks, 1));
  REQUIRE(ring.form());
  OpCase op(kRanks, 1, {.count = kLarge});
  for (const std::uint16_t rank : {0, 1, 2}) ring.post(rank, op.spec(rank, 1));
  // Only the owner needs anything of it; it is no neighbor of the owner's.
  for (const std::uint16_t rank : {0, 1}) {
    ring.set_down(rank, 2, true);
    ring.set_down(2, rank, true);
  }
  ring.freeze(2);
  REQUIRE(ring.run_until([&] { return ring.aborted(kRanks); }));
  CHECK(ring.shard(kRanks).reason().code == AbortCode::kSilence);
  CHECK(ring.shard(kRanks).reason().culprit_rank == 2);
}

TEST_CASE("calls that differ are found by the owner without members alone, which names them") {
  constexpr std::uint16_t kRanks = 3;
  struct Differs {
    OpPlan plan;
    const char* text;
  };
  const Differs cases[] = {
      {{.count = kLarge - 16}, "all-reduce sum of 19984 fp32"},
      {{.count = kLarge, .redop = RedOp::kMax}, "all-reduce max of 20000 fp32"},
      {{.count = kLarge, .wire = WireFormat::kBf16}, "bf16"},
      {{.count = 500}, "all-reduce sum of 500 fp32"},  // in two steps, whose owners are all
  };
  for (const Differs& differs : cases) {
    INFO(differs.text);
    RingHarness ring(where_hosts_own_all(kRanks, 1));
    REQUIRE(ring.form());
    // What the ring would find out first is not seen.
    for (std::uint16_t a = 0; a < kRanks; ++a) {
      for (std::uint16_t b = 0; b < kRanks; ++b) {
        if (a != b) ring.set_down(a, b, true);
      }
    }
    OpCase common(kRanks, 1, {.count = kLarge});
    OpCase other(kRanks, 1, differs.plan);
    for (const std::uint16_t rank : {0, 1}) ring.post(rank, common.spec(rank, 1));
    ring.post(2, other.spec(2, 1));
    REQUIRE(ring.run_until([&] { return ring.aborted(kRanks); }, 400 * kMillis));
    const AbortReason& reason = ring.shard(kRanks).reason();
    CHECK(reason.code == AbortCode::kMismatch);
    CHECK(std::string(reason.detail).find(differs.text) != std::string::npos);
    CHECK(std::string(reason.detail).find("20000") != std::string::npos);
  }
}

TEST_CASE("a call of an op that an owner without members passed over is a mismatch") {
  constexpr std::uint16_t kRanks = 3;
  RingHarness ring(where_hosts_own_all(kRanks, 1));
  REQUIRE(ring.form());
  for (std::uint16_t a = 0; a < kRanks; ++a) {
    for (std::uint16_t b = 0; b < kRanks; ++b) {
      if (a != b) ring.set_down(a, b, true);
    }
  }
  ring.delay_rail(0, kRanks, 0, 2 * kMillis);
  OpCase none(kRanks, 1, {.count = 0});
  OpCase sum(kRanks, 1, {.count = kLarge});
  for (const std::uint16_t rank : {1, 2}) {
    ring.post(rank, none.spec(rank, 1));
    ring.post(rank, sum.spec(rank, 2));
  }
  ring.post(0, sum.spec(0, 1));
  REQUIRE(ring.run_until([&] { return ring.aborted(kRanks); }, 400 * kMillis));
  const AbortReason& reason = ring.shard(kRanks).reason();
  CHECK(reason.code == AbortCode::kMismatch);
  CHECK(reason.culprit_rank == 0);
  CHECK(std::string(reason.detail).find("rank 0 called all-reduce sum of 20000 fp32") !=
        std::string::npos);
}

TEST_CASE("results of an owner without members stay bounded while one rank takes none") {
  constexpr std::uint16_t kRanks = 3;
  RingOptions options = where_hosts_own_all(kRanks, 1);
  options.shard.tiles.scratch_bytes = 1;  // places for four results
  RingHarness ring(options);
  REQUIRE(ring.form());
  bool held = true;
  ring.lose([&](sim::HostId from, sim::HostId to, PacketType type) {
    return held && from == kRanks && to == 2 && type == PacketType::kTilePiece;
  });
  OpCase op(kRanks, 1, {.count = kLarge});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, op.spec(rank, 1));
  ring.run_for(100 * kMillis);
  // Each rank may have got four results of two chunks.
  CHECK(ring.shard(0).counters().tile_pieces_received <= 8);
  CHECK_FALSE(ring.done(0, 1));
  held = false;
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, 1); }));
    REQUIRE(op.wrong(rank) == "");
  }
}

TEST_CASE("a group with tiles and ranks without members needs everybody's share") {
  collective::ShardConfig config;
  config.nranks = 2;
  config.tiles.used = true;
  config.payload_bytes = 256;
  const auto backend = reduce::make_cpu_backend(16);
  std::vector<std::uint32_t> rates(3);
  config.tiles.shares =
      std::make_shared<const collective::TileShares>(*collective::TileShares::make(rates, 2));
  const auto checked = check(config, backend.get());
  REQUIRE_FALSE(checked.has_value());
}
