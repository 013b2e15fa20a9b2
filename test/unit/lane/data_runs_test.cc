// SPDX-License-Identifier: BSD-3-Clause
// What a lane remembers of the data that came last: it counts as flow, and it is of the group that
// is there.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "lane/lane.h"
#include "two_ranks.h"

using namespace gradwire;
using namespace gradwire::lane;

namespace {

void post_broadcast(TwoRanks& ranks, std::uint16_t r, std::vector<float>& memory) {
  TwoRanks::Rank& rank = ranks.rank(r);
  ipc::CommandEntry command;
  command.request_id = 1'000 + rank.next_op++;
  command.group_handle = TwoRanks::kGroup;
  command.count = memory.size();
  command.collective = Collective::kBroadcast;
  command.root = 0;
  command.datatype = static_cast<std::uint8_t>(DataType::kFloat32);
  command.input_memory = command.output_memory = rank.next_memory++;
  ranks.add_memory(r, command.input_memory, reinterpret_cast<std::byte*>(memory.data()),
                   memory.size() * sizeof(float));
  REQUIRE(rank.client->queue.push_command(command));
}

}  // namespace

// It sends no data itself, whose going would show that something flows.
TEST_CASE("a rank that only receives spins while data flows") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  for (int i = 0; i < 200; ++i) ranks.round();
  std::vector<float> root(256 * 5'000, 3);
  std::vector<float> leaf(root.size(), 0);
  post_broadcast(ranks, 0, root);
  post_broadcast(ranks, 1, leaf);
  Lane& sends = ranks.rank(0).datapath->lane(0);
  Lane& receives = ranks.rank(1).datapath->lane(0);
  const collective::Shard& shard = *ranks.rank(1).plan.shards[0].shard;
  int rounds_with_data = 0;
  int sleeps = 0;
  std::optional<ipc::CompletionEntry> done;
  for (int i = 0; i < 100'000 && !done; ++i) {
    if (i % 2 == 0) sends.poll_once(ranks.now);
    const std::uint64_t before = shard.counters().data_packets_received;
    const bool worked = receives.poll_once(ranks.now);
    const IdleStep step = receives.after_round(ranks.now, worked);
    rounds_with_data += shard.counters().data_packets_received != before;
    sleeps += rounds_with_data > 0 && step.action == IdleAction::kSleep;
    done = ranks.rank(1).client->completion();
    for (std::uint16_t r = 0; r < 2; ++r) ranks.take_notices(r);
    ranks.now += 5'000;
  }
  REQUIRE(done);
  CHECK(leaf == root);
  CHECK(rounds_with_data > 100);
  CHECK(sleeps == 0);
  REQUIRE(ranks.run_until([&] { return ranks.rank(0).client->completion().has_value(); }));
  ranks.leave_and_check();
}

TEST_CASE("data of two groups that comes in one burst is each group's") {
  TwoRanksOptions options;
  options.max_groups = 3;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  const auto sums = [&](std::uint64_t last_group, unsigned seed) {
    std::vector<std::unique_ptr<test::AllReduceCase>> cases;
    for (std::uint64_t group = TwoRanks::kGroup; group <= last_group; ++group) {
      cases.push_back(std::make_unique<test::AllReduceCase>(2, 1, 256 * 300, DataType::kFloat32,
                                                            RedOp::kSum, seed + group, false));
      for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, *cases.back(), group);
    }
    std::size_t open = 2 * cases.size();
    REQUIRE(ranks.run_until([&] {
      for (std::uint16_t r = 0; r < 2; ++r) open -= ranks.rank(r).client->completion() ? 1 : 0;
      return open == 0;
    }));
    for (const auto& each : cases) {
      CHECK(each->wrong(0) == "");
      CHECK(each->wrong(1) == "");
    }
  };
  sums(TwoRanks::kGroup, 1);
  // Another group is there after the lane has remembered data of the first.
  REQUIRE(ranks.form_another());
  for (unsigned round = 0; round < 4; ++round) sums(TwoRanks::kGroup + 1, 10 * round);
  ranks.leave_and_check();
}
