// SPDX-License-Identifier: BSD-3-Clause
// Groups that rest, lanes that are full, and faults on the way.
#include "lane/lane.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "lane_frames.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

TEST_CASE("groups that rest are woken by whatever they can wait for") {
  TwoRanksOptions options;
  options.max_groups = 3;
  options.window_packets = 8;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  REQUIRE(ranks.form_another());
  REQUIRE(ranks.form_another());
  // Rounds so close together that no timer of a shard comes due.
  const auto rest = [&] {
    for (int round = 0; round < 10'000; ++round) ranks.round(20);
  };
  const auto completed = [&](std::uint16_t r) { return ranks.rank(r).client->completion(); };
  for (int op = 0; op < 4; ++op) {
    // By a command here, by packets there, at ranks that call at different times.
    const auto first = static_cast<std::uint16_t>(op % 2);
    AllReduceCase sum(2, 1, op % 2 == 0 ? 5'000 : 7, DataType::kFloat32, RedOp::kSum, 3 + op,
                      op == 3);
    rest();
    ranks.post(first, sum);
    rest();
    ranks.post(static_cast<std::uint16_t>(1 - first), sum);
    for (std::uint16_t r = 0; r < 2; ++r) {
      std::optional<ipc::CompletionEntry> entry;
      // Far sooner than a group that rests is asked in any case.
      REQUIRE(ranks.run_until([&] { return (entry = completed(r)).has_value(); }, 1'000'000, 200));
      CHECK(static_cast<ErrorCode>(entry->status) == ErrorCode::kOk);
      CHECK(sum.wrong(r) == "");
    }
  }
  // Pings go on meanwhile: silence of neighbors that rest is none.
  REQUIRE_FALSE(ranks.run_until(
      [&] { return ranks.count_notices(0, command::NoticeType::kGroupAborted) > 0; },
      5'000'000'000));
  // By a request, and by what a neighbor says of it.
  rest();
  ranks.abort(0);
  for (std::uint16_t r = 0; r < 2; ++r) {
    REQUIRE(ranks.run_until(
        [&] { return ranks.count_notices(r, command::NoticeType::kGroupAborted) == 1; }, 1'000'000,
        200));
  }
  rest();
  ranks.leave_and_check();
}

TEST_CASE("what is forged in a neighbor's name wakes no group that rests") {
  TwoRanksOptions options;
  options.token = 0x1122334455667788;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  const auto rest = [&] {
    for (int round = 0; round < 10'000; ++round) ranks.round(20);
  };
  rest();
  Lane& lane = ranks.rank(1).datapath->lane(0);
  REQUIRE(lane.groups_awake() == 0);
  const collective::Shard& shard = *ranks.rank(1).plan.shards[0].shard;
  const auto dropped = [&] {
    return shard.counters().drops[static_cast<std::size_t>(wire::Drop::kToken)];
  };
  const std::uint32_t id = wire::group_tag(shard.config().key);
  // Right in all but the token.
  inject(ranks, ping_frame(ranks, id));
  lane.poll_once(ranks.now += 20);
  CHECK(dropped() == 1);
  CHECK(lane.groups_awake() == 0);
  // By another source with the token.
  inject(ranks, ping_frame(ranks, id, TwoRanks::kPort, "10.0.0.2", options.token, "10.0.0.66"));
  lane.poll_once(ranks.now += 20);
  CHECK(lane.groups_awake() == 0);
  CHECK(shard.counters().drops[static_cast<std::size_t>(wire::Drop::kForeign)] == 1);
  // With both it is the neighbor's.
  inject(ranks, ping_frame(ranks, id, TwoRanks::kPort, "10.0.0.2", options.token));
  lane.poll_once(ranks.now += 20);
  CHECK(lane.groups_awake() == 1);
  ranks.leave_and_check();
}

TEST_CASE("the silence of a neighbor is counted in full while the group rests") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  ranks.run_until([] { return false; }, 100'000'000);
  // Rank 1 is gone: only rank 0's lane goes on.
  const TimeNs gone_at = ranks.now;
  while (ranks.count_notices(0, command::NoticeType::kGroupAborted) == 0 &&
         ranks.now < gone_at + 10'000'000'000) {
    ranks.rank(0).datapath->lane(0).poll_once(ranks.now);
    ranks.take_notices(0);
    ranks.now += 5'000;
  }
  CHECK(ranks.now - gone_at < 2'000'000'000 + 60'000'000);
  CHECK(ranks.now - gone_at > 2'000'000'000 - 60'000'000);
  ranks.leave_and_check();
}

TEST_CASE("a lane that sleeps counts silence in full, however many groups rest") {
  constexpr int kGroups = 250;
  TwoRanksOptions options;
  options.max_groups = kGroups;
  options.window_packets = 8;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  for (int i = 1; i < kGroups; ++i) REQUIRE(ranks.form_another());
  ranks.run_until([] { return false; }, 10'000'000);
  // Rank 1 is gone, and what goes there. Rank 0's lane sleeps whenever it may.
  Lane& lane = ranks.rank(0).datapath->lane(0);
  const TimeNs gone_at = ranks.now;
  const auto aborted = [&] { return ranks.count_notices(0, command::NoticeType::kGroupAborted); };
  while (aborted() < kGroups && ranks.now < gone_at + 10'000'000'000) {
    const bool worked = lane.poll_once(ranks.now);
    const IdleStep step = lane.after_round(ranks.now, worked);
    ranks.take_notices(0);
    ranks.ports().drain();
    ranks.now += step.action == IdleAction::kSleep ? std::max<TimeNs>(step.sleep_ns, 5'000) : 5'000;
  }
  CHECK(aborted() == kGroups);
  CHECK(ranks.now - gone_at < 2'000'000'000 + 60'000'000);
}

TEST_CASE("a round publishes some groups' statuses, and the next ones the rest") {
  constexpr std::size_t kGroups = 150;
  TwoRanksOptions options;
  options.max_groups = kGroups;
  options.window_packets = 8;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  for (std::size_t i = 1; i < kGroups; ++i) REQUIRE(ranks.form_another());
  Lane& lane = ranks.rank(0).datapath->lane(0);
  // Rank 1 says nothing any more, so the silence of each group's neighbor grows.
  const auto changed = [&, before = lane.published()] {
    const auto after = lane.published();
    REQUIRE(after.size() == kGroups);
    std::size_t count = 0;
    for (std::size_t i = 0; i < kGroups; ++i) {
      count += after[i].status.upstream_silence_ns != before[i].status.upstream_silence_ns ? 1 : 0;
    }
    return count;
  };
  ranks.now += 2 * Publications::kSpacingNs;
  for (std::size_t done = 0; done < kGroups;) {
    lane.poll_once(ranks.now);
    ranks.take_notices(0);
    ranks.ports().drain();
    CHECK(changed() == std::min(kGroups, done + Publications::kPerRound));
    REQUIRE(changed() > done);
    done = changed();
    ranks.now += 5'000;
  }
  ranks.run_until([] { return false; }, 10'000'000);
  ranks.leave_and_check();
}

TEST_CASE("a lane that has as many groups as it can hold says so") {
  TwoRanks ranks;  // two groups at most
  {
    command::GroupPlan empty;
    empty.group_handle = 55;
    command::Request group;
    group.type = command::RequestType::kAddGroup;
    group.group_handle = 55;
    group.plan = &empty;
    ranks.send(0, 0, group);
    REQUIRE(ranks.run_until([&] { return ranks.all_back(0); }));
    REQUIRE(ranks.count_notices(0, command::NoticeType::kGroupAborted) == 1);
    CHECK(ranks.rank(0).notices.front().reason.code == AbortCode::kFormation);
    command::Request leave;
    leave.type = command::RequestType::kLeaveGroup;
    leave.group_handle = 55;
    ranks.send(0, 0, leave);
    REQUIRE(ranks.run_until([&] { return ranks.all_back(0); }));
  }
}

TEST_CASE("frames that are lost, repeated, late and damaged leave the reference's bits") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  const FaultSettings faults{.seed = 5,
                             .drop = 0.02,
                             .duplicate = 0.05,
                             .reorder = 0.05,
                             .corrupt = 0.02,
                             .delay = 0.02,
                             .delay_us = 100};
  for (std::uint16_t r = 0; r < 2; ++r) {
    command::Request request;
    request.type = command::RequestType::kSetFaults;
    request.faults = faults;
    ranks.send_all_lanes(r, request);
  }
  std::vector<AllReduceCase> cases;
  for (const std::uint64_t count : {1u, 1'000u, 100'000u, 77'777u}) {
    cases.emplace_back(2, 1, count, DataType::kFloat32, RedOp::kSum, count, false);
  }
  check_all(ranks, cases);
  const port::FaultCounters& counters = ranks.rank(0).datapath->lane(0).fault_counters(0);
  CHECK(counters.dropped > 0);
  CHECK(counters.duplicated > 0);
  CHECK(counters.reordered > 0);
  CHECK(counters.corrupted > 0);
  CHECK(counters.delayed > 0);
  CHECK(ranks.rank(0).plan.shards[0].shard->counters().retransmissions > 0);
  const std::uint64_t frames = counters.frames;
  for (std::uint16_t r = 0; r < 2; ++r) {
    command::Request request;
    request.type = command::RequestType::kSetFaults;
    ranks.send_all_lanes(r, request);
  }
  AllReduceCase after(2, 1, 50'000, DataType::kFloat32, RedOp::kSum, 9, false);
  for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, after);
  REQUIRE(ranks.run_until([&] { return ranks.rank(0).client->completion().has_value(); }));
  CHECK(counters.held == 0);
  CHECK(counters.frames - frames < 100);  // what was on the way when they were cleared
  ranks.leave_and_check();
}
