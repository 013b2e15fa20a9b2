// SPDX-License-Identifier: BSD-3-Clause
// Ranks without members: what a table comes to that has some, and how their group ends.
#include "control/formation/folding.h"

#include <catch2/catch.hpp>

#include "control/formation/peers.h"
#include "control/plans/plan_request.h"
#include "fake_daemon.h"

namespace gradwire::control {
namespace {

using test::FakeDaemon;
using test::join_body;
using test::local_address;
using test::rank_info;
using test::RequestType;

/// Of daemons that have ops in two steps. That of FakeDaemon is the last rank.
std::vector<ipc::RankInfo> folding_table(std::size_t nranks) {
  std::vector<ipc::RankInfo> table;
  for (std::size_t rank = 0; rank < nranks; ++rank) {
    table.push_back(rank_info((rank + 1) % nranks));
    table.back().direct_kib = 64;
    table.back().two_step_kib = 16;
    table.back().fold_sources = kMaxRanks;
    table.back().folding = 2;
  }
  return table;
}

ipc::JoinBody folding_join(std::size_t rank, std::vector<ipc::RankInfo> table,
                           std::uint16_t folding_ranks = 1) {
  ipc::JoinBody join = join_body(rank, std::move(table));
  join.request.folding_ranks = folding_ranks;
  return join;
}

Result<PlanRequest> plan_of(const ipc::JoinBody& join) {
  const std::size_t rank = join.request.rank;
  const std::size_t daemon = (rank + 1) % join.table.size();
  const std::vector local = {local_address(0, "10.0.0." + std::to_string(daemon + 1))};
  return plan_request(join, join.table[rank], local);
}

/// The last of three ranks, which has no members, at a daemon that a client has opened as 1.
struct FoldingDaemon : FakeDaemon {
  FoldingDaemon() {
    options.daemon.direct_kib = 64;
    options.daemon.two_step_kib = 16;
    options.daemon.fold_sources = kMaxRanks;
    options.daemon.folding = 2;
    make();
    open(1);
    join(1, folding_join(2, folding_table(3)));
    poll();
    handle = ++groups_made;
    all_lanes_formed(handle);
    REQUIRE(take_join_reply(1) == handle);
  }
  std::uint64_t handle = 0;
};

}  // namespace

TEST_CASE("a rank without members hangs on one of the ring, and each knows the other") {
  const auto table = folding_table(4);
  std::vector<PlanRequest> plans;
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    plans.push_back(plan_of(folding_join(rank, table)).value());
    CHECK(plans[rank].nranks == 3);
    CHECK(plans[rank].folding_ranks == 1);
    CHECK(plans[rank].table_digest == plans[0].table_digest);
    REQUIRE(plans[rank].owners != nullptr);
    CHECK(plans[rank].owners->count() == 1);
    CHECK(plans[rank].owners->rank_at(0) == 3);
    CHECK(plans[rank].two_step_bytes == 3 * 16u << 10);
  }
  // The ring is that of the three, and each has a way to the fourth.
  CHECK(plans[0].upstream[0].rank == 2);
  CHECK(plans[2].downstream[0].rank == 0);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    REQUIRE(plans[rank].peers.size() == 1);
    CHECK(plans[rank].peers[0].rank == 3);
    CHECK(plans[rank].peers[0].paths[0].incarnation == table[3].incarnation);
  }
  const PlanRequest& folds = plans[3];
  CHECK(folds.folds_only());
  CHECK(folds.pairs_max == 0);
  CHECK(folds.downstream[0].rank == 0);
  CHECK(folds.upstream[0].rank == 0);
  CHECK(folds.downstream[0].incarnation == table[0].incarnation);
  REQUIRE(folds.peers.size() == 2);
  CHECK(folds.peers[0].rank == 1);
  CHECK(folds.peers[1].rank == 2);
  for (std::uint8_t lane = 0; lane < 2; ++lane) {
    CHECK(folds.tokens[lane].downstream.to == plans[0].peers[0].tokens[lane].from);
    CHECK(folds.tokens[lane].upstream.from == plans[0].peers[0].tokens[lane].to);
    CHECK(folds.peers[0].tokens[lane].to == plans[1].peers[0].tokens[lane].from);
  }
}

TEST_CASE("a table says in its digest how many ranks have no members") {
  const auto table = folding_table(5);
  const auto of = [&](std::uint16_t folding) {
    return plan_of(folding_join(0, table, folding)).value().table_digest;
  };
  CHECK(of(0) != of(1));
  CHECK(of(1) != of(2));
  auto other = table;
  other[1].folding = 1;
  CHECK(plan_of(folding_join(0, other)).value().table_digest != of(1));
  // One without members says how many rank 0 has.
  auto uneven = folding_join(4, table);
  uneven.ranks = {0, 0, 1, 2, 3};
  uneven.request.processes = 5;
  CHECK_THAT(plan_of(uneven).error().message, Catch::Contains("2 of the group's processes"));
  uneven.request.member_count = 2;
  CHECK(plan_of(uneven).value().layout->nranks() == 4);
}

TEST_CASE("ranks without members that have nothing to do, or too much, are refused by name") {
  const auto refused = [](const ipc::JoinBody& join, const std::string& says) {
    const auto plan = plan_of(join);
    REQUIRE_FALSE(plan);
    CHECK_THAT(plan.error().message, Catch::Contains(says));
  };
  refused(folding_join(0, folding_table(2)), "1 of 2 ranks have no members");
  refused(folding_join(0, folding_table(5), 3), "3 of 5 ranks have no members");
  auto second = folding_join(3, folding_table(4));
  second.request.member = 1;
  second.request.member_count = 2;
  refused(second, "member 1 of rank 3, which has no members");
  auto table = folding_table(4);
  table[0].two_step_kib = 0;
  refused(folding_join(1, table), "rank 0 has transport.direct_kib = 64 and");
  table = folding_table(4);
  table[3].fold_sources = 2;
  refused(folding_join(1, table), "the daemon of rank 3 can fold what 2 ranks give");
  table = folding_table(4);
  table[2].folding = 0;
  refused(folding_join(1, table), "the daemon of rank 2 knows no such ranks");
  table = folding_table(4);
  table[2].folding = table[3].folding = 1;
  refused(folding_join(1, table), "rank 3 has no members, and its daemon reduces on a GPU");
  // It need not reach another one, but each that has members.
  table = folding_table(4);
  table[3].addresses[0].ip[1] = 7;
  refused(folding_join(1, table), "have no ports that lead to each other");
  table = folding_table(5);
  CHECK(unconnected_ranks(table, 2) == std::nullopt);
}

TEST_CASE("a rank without members is left by its client at once, and sums until its lanes close") {
  FoldingDaemon daemon;
  CHECK(daemon.group_json()["nranks"] == 3);
  daemon.leave(1, daemon.handle);
  CHECK(daemon.lanes.holding(RequestType::kLeaveGroup).size() == 2);
  CHECK(daemon.group_json()["state"] == "formed");
  daemon.advance(10 * daemon.options.limits.leave_grace_ns);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
  CHECK(daemon.waiting(1) == 0);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a rank without members ends with its client, and with an abort that it is told of") {
  SECTION("its client dies") {
    FoldingDaemon daemon;
    daemon.leave(1, daemon.handle);
    daemon.hang_up(1);
    CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
    CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 2);
  }
  SECTION("a lane says that the group was aborted") {
    FoldingDaemon daemon;
    daemon.leave(1, daemon.handle);
    daemon.lanes.aborted(daemon.handle, 0, {.code = AbortCode::kSilence, .culprit_rank = 1});
    daemon.poll();
    CHECK_THAT(daemon.take_abort_event(1, daemon.handle), Catch::Contains("rank 1 was silent"));
    daemon.lanes.finish(RequestType::kLeaveGroup);
    daemon.poll();
    CHECK(daemon.take(1).code() == ErrorCode::kOk);
  }
  SECTION("the daemon stops") {
    FoldingDaemon daemon;
    daemon.leave(1, daemon.handle);
    daemon.manager->begin_stop(daemon.now);
    daemon.advance(daemon.options.limits.stop_drain_ns + 1);
    CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
    CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 2);
  }
}

}  // namespace gradwire::control
