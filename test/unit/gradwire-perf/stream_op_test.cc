// SPDX-License-Identifier: BSD-3-Clause
// Both ops of the TCP ring, the bytes carried by hand: pieces of any size, pipes that fill up,
// ranks that run at any moment.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "exchange_op.h"
#include "pattern.h"
#include "ring_op.h"
#include "sim/reference/ring_reference.h"

using namespace gradwire;
using namespace gradwire::perf;

namespace {

using Bytes = std::vector<std::byte>;

struct World {
  std::uint16_t nranks;
  std::uint64_t count;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  RingShape shape{64, 2};
  bool exchange = false;
  bool in_place = false;
  std::size_t pipe_bytes = 1 << 20;  ///< that one stream holds

  [[nodiscard]] std::size_t bytes() const { return count * element_bytes(datatype); }
};

/// Runs the op on all ranks. @return the outputs; fails if no rank can go on.
std::vector<Bytes> run(const World& world, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Folder folder;
  std::vector<Bytes> inputs, outputs, spaces;
  std::vector<std::unique_ptr<StreamOp>> ops;
  std::vector<std::deque<std::byte>> pipes(world.nranks);  // from rank i to the next
  for (std::uint16_t rank = 0; rank < world.nranks; ++rank) {
    inputs.emplace_back(world.bytes());
    fill_pattern(world.datatype, world.redop, rank, seed, 0, world.count, inputs[rank].data());
    outputs.push_back(world.in_place ? inputs[rank] : Bytes(world.bytes(), std::byte{0xa5}));
    spaces.emplace_back(world.exchange ? world.nranks * world.bytes() : world.shape.chunk_bytes);
  }
  for (std::uint16_t rank = 0; rank < world.nranks; ++rank) {
    const OpSpec spec{rank,
                      world.nranks,
                      world.count,
                      world.datatype,
                      world.redop,
                      world.in_place ? outputs[rank].data() : inputs[rank].data(),
                      outputs[rank].data()};
    if (world.exchange) {
      ops.push_back(std::make_unique<ExchangeOp>(spec, spaces[rank], folder));
    } else {
      ops.push_back(std::make_unique<RingOp>(spec, world.shape, spaces[rank], folder));
    }
  }
  const auto move = [&](std::uint16_t rank) {
    bool moved = false;
    auto& down = pipes[rank];
    const auto out = ops[rank]->to_send();
    if (const std::size_t room = std::min(out.size(), world.pipe_bytes - down.size()); room > 0) {
      const std::size_t part = 1 + random() % room;
      down.insert(down.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(part));
      ops[rank]->sent(part);
      moved = true;
    }
    auto& up = pipes[(rank + world.nranks - 1) % world.nranks];
    const auto in = ops[rank]->to_receive();
    if (const std::size_t there = std::min(in.size(), up.size()); there > 0) {
      const auto part = static_cast<std::ptrdiff_t>(1 + random() % there);
      std::copy(up.begin(), up.begin() + part, in.begin());
      up.erase(up.begin(), up.begin() + part);
      ops[rank]->received(static_cast<std::size_t>(part));
      moved = true;
    }
    return moved;
  };
  const auto all_finished = [&] {
    return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->finished(); });
  };
  while (!all_finished()) {
    bool moved = false;
    for (std::uint16_t rank = 0; rank < world.nranks; ++rank) {
      // Some rest while others run.
      if (random() % 3 != 0) moved = move(rank) || moved;
    }
    for (std::uint16_t rank = 0; !moved && rank < world.nranks; ++rank) moved = move(rank);
    REQUIRE(moved);
  }
  for (const auto& pipe : pipes) REQUIRE(pipe.empty());
  return outputs;
}

Bytes expected(const World& world, std::uint64_t seed) {
  std::vector<Bytes> inputs;
  std::vector<const std::byte*> pointers;
  for (std::uint16_t rank = 0; rank < world.nranks; ++rank) {
    inputs.emplace_back(world.bytes());
    fill_pattern(world.datatype, world.redop, rank, seed, 0, world.count, inputs.back().data());
  }
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  Bytes output(world.bytes());
  sim::ring_all_reduce(world.datatype, world.redop, pointers, world.nranks, 1, world.count,
                       output.data());
  return output;
}

void check(const World& world, std::uint64_t seed) {
  INFO(world.nranks << " ranks, " << world.count << " of " << name_of(world.datatype) << ", "
                    << name_of(world.redop) << ", chunk " << world.shape.chunk_bytes << ", lag "
                    << world.shape.lag << (world.exchange ? ", exchanged" : "")
                    << (world.in_place ? ", in place" : "") << ", pipe " << world.pipe_bytes);
  const Bytes right = expected(world, seed);
  for (const Bytes& output : run(world, seed)) REQUIRE((output == right));
}

}  // namespace

TEST_CASE("both give the reference's bits on every rank, at awkward counts") {
  std::uint64_t seed = 1;
  for (const std::uint16_t nranks : {2, 3, 4, 7}) {
    for (const std::uint64_t count : {0, 1, 15, 16, 17, 63, 64, 100, 1000, 1537}) {
      for (const std::uint32_t lag : {1u, 2u, 5u}) {
        for (const bool in_place : {false, true}) {
          World world{nranks, count};
          world.shape = {64, lag};
          world.in_place = in_place;
          check(world, seed++);
          world.shape.chunk_bytes = 256;
          check(world, seed++);
          world.exchange = true;
          check(world, seed++);
        }
      }
    }
  }
}

TEST_CASE("every datatype and redop") {
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      if (!fits(static_cast<RedOp>(redop), static_cast<DataType>(type))) continue;
      for (const std::uint16_t nranks : {2, 3, 5}) {
        World world{nranks, 333, static_cast<DataType>(type), static_cast<RedOp>(redop)};
        world.in_place = nranks == 3;
        check(world, 7);
        world.exchange = true;
        check(world, 7);
      }
    }
  }
}

TEST_CASE("pipes that hold a byte are enough") {
  for (const std::size_t pipe_bytes : {1u, 63u, 100u}) {
    World world{3, 200};
    world.pipe_bytes = pipe_bytes;
    check(world, 11);
    world.exchange = true;
    check(world, 11);
  }
}

TEST_CASE("a stream carries every chunk of every hop once, each after it has arrived") {
  for (const std::uint16_t nranks : {2, 3, 6}) {
    for (const std::uint64_t count : {1, 16, 300, 999}) {
      const std::uint32_t lag = 3;
      const collective::Partition partition(count, DataType::kFloat32, nranks, 64);
      std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint16_t> senders;
      for (std::uint16_t rank = 0; rank < nranks; ++rank) {
        std::uint64_t tick = 0;
        for (StreamCursor at(partition, rank, nranks, lag); !at.at_end(); at.advance()) {
          const StreamItem& item = at.item();
          REQUIRE(item.tick >= tick);
          tick = item.tick;
          // The reference's rule: the sender of hop h is rank segment + h.
          REQUIRE((partition.segment_of(item.chunk) + item.hop) % nranks == rank);
          REQUIRE(senders.emplace(std::pair(item.chunk, item.hop), rank).second);
        }
      }
      REQUIRE(senders.size() == partition.total_chunks() * (2u * nranks - 2));
    }
  }
}

TEST_CASE("nothing is to be sent before it came, and own chunks need nothing") {
  const World world{2, 64};
  Folder folder;
  Bytes input(world.bytes()), output(world.bytes()), staging(64);
  RingOp op({0, 2, 64, DataType::kFloat32, RedOp::kSum, input.data(), output.data()}, {64, 1},
            staging, folder);
  REQUIRE(op.to_send().data() == input.data());  // tick 0: hop 0 of chunk 0
  op.sent(64);
  CHECK(op.to_send().empty());  // tick 1: hop 1, of what has not come
  REQUIRE(op.to_receive().size() == 64);
  op.received(63);
  CHECK(op.to_send().empty());
  op.received(1);
  CHECK(op.to_send().data() == output.data() + 128);  // reduced, of segment 1
  CHECK_FALSE(op.finished());
}
