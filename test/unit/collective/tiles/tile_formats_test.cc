// SPDX-License-Identifier: BSD-3-Clause
// Ops with a wire format, by shards: bits are the reference's under loss, with many tiles and few
// places; what no format is for is refused, and calls that differ in it are told apart.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::PostResult;
using sim::OpCase;
using sim::OpPlan;

namespace {

/// Room for one block of `int8`.
constexpr std::uint32_t kPayload = 320;

RingOptions with_tiles(std::uint16_t nranks) {
  RingOptions options;
  options.nranks = nranks;
  options.payload_bytes = kPayload;
  options.shard.tiles.used = true;
  // Two chunks a tile, and the fewest places.
  options.shard.tiles.tile_bytes = 32 * kPayload;
  options.shard.tiles.scratch_bytes = 1024;
  return options;
}

/// In which rank each process is: uneven, and in an order of their own.
std::vector<std::uint16_t> uneven(std::uint16_t nranks) {
  std::vector<std::uint16_t> ranks;
  for (std::uint16_t i = 0; i < nranks; ++i) ranks.push_back((i * 2 + 1) % nranks);
  ranks.push_back(nranks / 2);
  ranks.push_back(0);
  return ranks;
}

void run(RingHarness& ring, OpCase& op, std::uint16_t nranks, std::uint64_t op_seq) {
  for (std::uint16_t rank = 0; rank < nranks; ++rank) ring.post(rank, op.spec(rank, op_seq));
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, op_seq) || ring.aborted(rank); }));
    REQUIRE_FALSE(ring.aborted(rank));
    REQUIRE(op.wrong(rank) == "");
  }
}

void run_all(std::uint16_t nranks, WireFormat format, DataType datatype) {
  RingOptions options = with_tiles(nranks);
  if (nranks % 2 != 0) options.ranks = uneven(nranks);
  options.members = options.ranks.empty() ? 1 : 3;
  options.lanes = nranks == 4 ? 2 : 1;
  options.loss = 0.02;
  RingHarness ring(options);
  REQUIRE(ring.form());
  const auto processes =
      options.ranks.empty() ? std::uint32_t{nranks} : std::uint32_t(options.ranks.size());
  std::uint64_t op_seq = 0;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
    for (const std::uint64_t count : {0, 1, 255, 256, 257, 1000, 2600}) {
      OpPlan plan{.count = count,
                  .datatype = datatype,
                  .redop = count % 2 == 0 ? RedOp::kSum : RedOp::kAvg,
                  .in_place = count % 5 == 0,
                  .seed = ++op_seq,
                  .collective = collective,
                  .wire = format,
                  .feeds_back = count % 3 != 0};
      if (has_root(collective)) plan.root = static_cast<std::uint32_t>(count % processes);
      OpCase op =
          options.ranks.empty() ? OpCase(nranks, 1, plan) : OpCase(nranks, options.ranks, plan);
      INFO(nranks << " ranks, " << name_of(collective) << " of " << count << " "
                  << name_of(datatype) << " as " << name_of(format));
      run(ring, op, nranks, op_seq);
    }
  }
  CHECK(ring.drops(wire::Drop::kBadChunk) == 0);
  CHECK(ring.counter(&collective::ShardCounters::ops_tiles) > 0);
}

PostResult post(RingHarness& ring, const OpPlan& plan, std::uint16_t nranks) {
  OpCase op(nranks, 1, plan);
  return ring.shard(0).post(op.spec(0, 1), ring.now());
}

}  // namespace

TEST_CASE("ops with a format have the reference's bits at every rank and member, under loss") {
  for (const std::uint16_t nranks : {2, 3, 4, 5}) {
    run_all(nranks, WireFormat::kBf16, DataType::kFloat32);
    run_all(nranks, WireFormat::kInt8, DataType::kFloat32);
    run_all(nranks, WireFormat::kInt8, DataType::kBfloat16);
  }
}

TEST_CASE("bits of a format do not depend on payload, lanes, tiles and places") {
  for (const std::uint32_t payload : {320u, 576u, 1408u}) {
    RingOptions options = with_tiles(3);
    options.payload_bytes = payload;
    options.lanes = payload == 576 ? 3 : 1;
    options.shard.tiles.tile_bytes = payload == 1408 ? collective::kTileBytes : 48 * payload;
    RingHarness ring(options);
    REQUIRE(ring.form());
    OpCase op(3, 1, {.count = 20'011, .seed = 7, .wire = WireFormat::kInt8});
    run(ring, op, 3, 1);
  }
}

TEST_CASE("an op whose results are encoded ends though a rank lacks them, and it gets them still") {
  RingOptions options = with_tiles(2);
  RingHarness ring(options);
  REQUIRE(ring.form());
  OpCase first(2, 1, {.count = 300, .seed = 1, .wire = WireFormat::kInt8});
  // Of rank 0 only its part gets through, which is one chunk.
  std::uint32_t pieces = 0;
  ring.lose([&](sim::HostId from, sim::HostId, wire::PacketType type) {
    return from == 0 && type == wire::PacketType::kTilePiece && ++pieces > 1;
  });
  ring.post(0, first.spec(0, 1));
  ring.post(1, first.spec(1, 1));
  REQUIRE(ring.run_until([&] { return ring.done(0, 1); }));
  CHECK_FALSE(ring.done(1, 1));
  CHECK(first.wrong(0) == "");
  first.retire(0);
  ring.lose({});
  REQUIRE(ring.run_until([&] { return ring.done(1, 1); }));
  CHECK(first.wrong(1) == "");
  ring.leave(0);
  ring.leave(1);
  CHECK(ring.run_until([&] { return ring.closed(0) && ring.closed(1); }));
  CHECK(first.touched(0) == "");
}

TEST_CASE("what a format is not for is refused, and one rank's processes need none") {
  RingHarness ring(with_tiles(2));
  REQUIRE(ring.form());
  const OpPlan right{.count = 1000, .wire = WireFormat::kInt8};
  OpPlan plan = right;
  plan.redop = RedOp::kMax;
  CHECK(post(ring, plan, 2) == PostResult::kUnsupported);
  plan = right;
  plan.datatype = DataType::kFloat64;
  CHECK(post(ring, plan, 2) == PostResult::kUnsupported);
  plan = right;
  plan.collective = Collective::kAllGather;
  CHECK(post(ring, plan, 2) == PostResult::kUnsupported);
  plan = {.count = 1000, .datatype = DataType::kBfloat16, .wire = WireFormat::kBf16};
  CHECK(post(ring, plan, 2) == PostResult::kUnsupported);
  plan.count = 0;
  CHECK(post(ring, plan, 2) == PostResult::kUnsupported);
  CHECK(post(ring, right, 2) == PostResult::kOk);

  RingOptions without = with_tiles(2);
  without.shard.tiles.used = false;
  RingHarness no_tiles(without);
  REQUIRE(no_tiles.form());
  CHECK(post(no_tiles, right, 2) == PostResult::kUnsupported);

  RingOptions small = with_tiles(2);
  small.payload_bytes = 256;
  RingHarness no_block(small);
  REQUIRE(no_block.form());
  CHECK(post(no_block, right, 2) == PostResult::kUnsupported);
  CHECK(post(no_block, {.count = 1000, .wire = WireFormat::kBf16}, 2) == PostResult::kOk);

  RingHarness alone(with_tiles(1));
  REQUIRE(alone.form());
  OpCase op(1, 1, right);
  run(alone, op, 1, 1);
}

TEST_CASE("ranks that differ in the format alone hear of it by name") {
  for (const std::uint64_t count : {0, 10, 5000}) {
    INFO(count);
    RingHarness ring(with_tiles(3));
    REQUIRE(ring.form());
    OpCase same(3, 1, {.count = count});
    OpCase other(3, 1, {.count = count, .wire = WireFormat::kInt8});
    ring.post(0, same.spec(0, 1));
    ring.post(1, other.spec(1, 1));
    ring.post(2, same.spec(2, 1));
    for (const std::uint16_t rank : {0, 1, 2}) {
      REQUIRE(ring.run_until([&] { return ring.aborted(rank); }));
      const AbortReason reason = ring.shard(rank).reason();
      CHECK(reason.code == AbortCode::kMismatch);
      INFO(reason.detail);
      CHECK(std::string(reason.detail).find(" as int8") != std::string::npos);
    }
  }
}
