// SPDX-License-Identifier: BSD-3-Clause
// What packets cost that do not go round the ring, and short runs of those that do, for
// instructions.py: it counts what off_ring_rounds() does. Each test does one thing over and over,
// after once that is not counted.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "two_ranks.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

namespace {

constexpr std::uint32_t kPayloadBytes = 1408;

/// Callgrind counts this function.
[[gnu::noinline]] bool off_ring_rounds(TwoRanks& ranks) {
  return ranks.run_until_completed(2, 2'000);
}
bool rounds_that_do_not_count(TwoRanks& ranks) { return ranks.run_until_completed(2, 5'000); }

/// All-reduces of so many chunks, one after the other.
void all_reduces(TwoRanks& ranks, int ops, std::uint64_t chunks) {
  for (int op = 0; op <= ops; ++op) {
    AllReduceCase sum(2, 1, chunks * kPayloadBytes / 4, DataType::kFloat32, RedOp::kSum, 7 + op,
                      false);
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, sum);
    REQUIRE((op == 0 ? rounds_that_do_not_count(ranks) : off_ring_rounds(ranks)));
    REQUIRE(sum.wrong(0) == "");
    REQUIRE(sum.wrong(1) == "");
  }
  ranks.leave_and_check();
}

/// A send of rank 0 to rank 1, and its receive.
void post_transfer(TwoRanks& ranks, std::uint16_t r, std::byte* memory, std::uint64_t bytes) {
  TwoRanks::Rank& rank = ranks.rank(r);
  ipc::CommandEntry command;
  command.request_id = 1'000 + rank.next_op++;
  command.group_handle = TwoRanks::kGroup;
  command.count = bytes;
  command.datatype = static_cast<std::uint8_t>(DataType::kUint8);
  command.collective = r == 0 ? Collective::kSend : Collective::kRecv;
  command.root = static_cast<std::uint8_t>(1 - r);
  const std::uint32_t handle = rank.next_memory++;
  (r == 0 ? command.input_memory : command.output_memory) = handle;
  ranks.add_memory(r, handle, memory, bytes);
  REQUIRE(rank.client->queue.push_command(command));
}

/// Twice 4,000 chunks by tiles: half of them are owned by rank 0, half by rank 1.
void all_reduces_by_tiles(std::uint32_t payload_bytes) {
  TwoRanksOptions options;
  options.payload_bytes = payload_bytes;
  if (payload_bytes > 1'408) options.mtu = 9'000;
  options.window_packets = 64;
  options.exchange_bytes = 0;
  options.tiles = true;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  for (int op = 0; op < 2; ++op) {
    AllReduceCase sum(2, 1, 4'000ull * payload_bytes / 4, DataType::kFloat32, RedOp::kSum, 7 + op,
                      false);
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, sum);
    REQUIRE((op == 0 ? rounds_that_do_not_count(ranks) : off_ring_rounds(ranks)));
    REQUIRE(sum.wrong(0) == "");
    REQUIRE(sum.wrong(1) == "");
  }
  CHECK(ranks.rank(0).plan.shards[0].shard->counters().tile_pieces_received > 0);
  ranks.leave_and_check();
}

}  // namespace

// 16 chunks each way an op, 100 ops: 3,200 contributions with their receipts.
TEST_CASE("contributions of 1408 bytes") {
  TwoRanksOptions options;
  options.payload_bytes = kPayloadBytes;
  options.exchange_bytes = 0;
  options.direct_bytes = 256 << 10;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  all_reduces(ranks, 100, 16);
}

// 2,000 pieces with their pulls, after as many.
TEST_CASE("pieces of 1408 bytes") {
  TwoRanksOptions options;
  options.payload_bytes = kPayloadBytes;
  options.pairs_max = 4;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  const std::uint64_t bytes = 2'000 * kPayloadBytes;
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<std::byte> from(bytes);
    std::vector<std::byte> to(bytes);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + turn);
    post_transfer(ranks, 0, from.data(), bytes);
    post_transfer(ranks, 1, to.data(), bytes);
    REQUIRE((turn == 0 ? rounds_that_do_not_count(ranks) : off_ring_rounds(ranks)));
    REQUIRE(from == to);
  }
  ranks.leave_and_check();
}

// Two chunks an op on the ring, one of each rank's, 500 ops: runs of one packet.
TEST_CASE("runs of one chunk of 1408 bytes") {
  TwoRanksOptions options;
  options.payload_bytes = kPayloadBytes;
  options.exchange_bytes = 0;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  all_reduces(ranks, 500, 2);
}

// 4,000 chunks, each of which goes to its owner as a part and comes back as a result.
TEST_CASE("by tiles chunks of 1408 bytes") { all_reduces_by_tiles(1'408); }
TEST_CASE("by tiles chunks of 8192 bytes") { all_reduces_by_tiles(8'192); }
