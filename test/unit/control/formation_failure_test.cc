// SPDX-License-Identifier: BSD-3-Clause
// Groups that do not form: time limits, neighbors that are not found, lanes and members that fail.
#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::join_body;
using test::RequestType;
using test::table_of;

TEST_CASE("a timeout names the members that are missing") {
  FakeDaemon daemon;
  daemon.open(1);
  auto body = join_body(0, table_of(2), 1, 3);
  body.request.timeout_ms = 500;
  daemon.join(1, body);
  daemon.advance(499'000'000);
  CHECK(daemon.waiting(1) == 0);
  daemon.advance(1'000'000);
  daemon.refused(1, ErrorCode::kTimedOut,
                 "member 0 of 3 has not joined; member 2 of 3 has not joined");
  CHECK(daemon.manager->group_count() == 0);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
}

TEST_CASE("the shortest timeout of the members counts, whoever it comes from") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const bool first_is_shorter = GENERATE(false, true);
  auto body = join_body(0, table_of(2), 0, 3);
  body.request.timeout_ms = first_is_shorter ? 100 : 10'000;
  daemon.join(1, body);
  body.request.member = 1;
  body.request.timeout_ms = first_is_shorter ? 10'000 : 100;
  daemon.join(2, body);
  daemon.advance(100'000'000);
  CHECK(daemon.take(1).code() == ErrorCode::kTimedOut);
  CHECK(daemon.take(2).code() == ErrorCode::kTimedOut);
}

TEST_CASE("a timeout names the neighbor whose MAC address is unknown") {
  FakeDaemon daemon;
  daemon.lanes.silent = {"10.0.0.3"};
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  CHECK(daemon.group_json()["state"] == "resolving");
  daemon.advance(daemon.options.limits.formation_default_ns);
  const auto sent = daemon.take(1);
  CHECK(sent.code() == ErrorCode::kTimedOut);
  CHECK_THAT(sent.error(), Catch::Contains("upstream rank 2 (10.0.0.3) does not answer ARP"));
  CHECK_THAT(sent.error(), !Catch::Contains("10.0.0.2"));
}

TEST_CASE("a neighbor that answers late is no error") {
  FakeDaemon daemon;
  daemon.lanes.silent = {"10.0.0.2", "10.0.0.3"};
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  daemon.lanes.silent = {"10.0.0.3"};
  daemon.advance(1'000'000'000);
  CHECK(daemon.lanes.plan_requests.empty());
  daemon.lanes.silent.clear();
  daemon.advance(1'000'000'000);
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  // The shards' bound lies a little behind what is left of the manager's.
  CHECK(daemon.lanes.plan_requests[0].formation_ns == 29'000'000'000);
}

TEST_CASE("what can never resolve, and what no plan can be made of, fails at once") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.lanes.unreachable = {"10.0.0.2"};
  daemon.join(1, join_body(0, table_of(2)));
  daemon.refused(1, ErrorCode::kUnavailable, "rank 1 (10.0.0.2) cannot be reached on port 0: no");
  daemon.lanes.unreachable.clear();
  daemon.lanes.plan_error = "no mbufs for another shard";
  daemon.join(1, join_body(0, table_of(2)));
  daemon.refused(1, ErrorCode::kResourceExhausted, "no mbufs for another shard");
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a timeout names the rank and the lane that were not heard") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  daemon.lanes.formed(1, 0);
  daemon.reports.statuses[1].upstream_heard = true;
  daemon.advance(daemon.options.limits.formation_default_ns);
  const auto sent = daemon.take(1);
  CHECK(sent.code() == ErrorCode::kTimedOut);
  CHECK_THAT(sent.error(),
             Catch::Contains("downstream rank 1 (10.0.0.2) has not answered the hello of lane 1"));
  CHECK_THAT(sent.error(), !Catch::Contains("lane 0") && !Catch::Contains("upstream"));
  // What the lanes have of it is aborted and closed, and only then gone.
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
  CHECK(daemon.lanes.holding(RequestType::kLeaveGroup).size() == 2);
  CHECK(daemon.lanes.plans_destroyed == 0);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.lanes.plans_destroyed == 1);
  CHECK(daemon.manager->group_count() == 0);
  CHECK(daemon.waiting(1) == 0);
}

TEST_CASE("a timeout says what a neighbor sends that does not fit, and blames no MTU") {
  collective::Unfit unfit;
  std::string text;
  SECTION("another version") {
    unfit.version = 1;
    text = "rank 1 at 10.0.0.2 sends version 1 of the chunk protocol, this daemon version 2";
  }
  SECTION("another epoch") {
    unfit = {.other_epoch = true, .epoch = 6};
    text = "rank 1 at 10.0.0.2 joins epoch 6 of this group, this rank epoch ";
  }
  SECTION("another rank: processes list the ranks in different orders") {
    unfit = {.hello = true, .says_rank = 0};
    text =
        "10.0.0.2 is rank 1 in the table here, but the hellos of this group that come from there "
        "say rank 0: do all processes list the ranks in the same order?";
  }
  SECTION("another token") {
    unfit = {.hello = true, .says_rank = 1};
    text = "rank 1 at 10.0.0.2 sends hellos of this group with another token";
  }
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  daemon.reports.statuses[0].downstream_unfit = unfit;
  daemon.reports.statuses[0].upstream_heard = true;
  daemon.lanes.formed(1, 1);
  daemon.advance(daemon.options.limits.formation_default_ns);
  const auto sent = daemon.take(1);
  CHECK(sent.code() == ErrorCode::kTimedOut);
  CHECK_THAT(sent.error(), Catch::Contains(text) && !Catch::Contains("MTU"));
}

TEST_CASE("a shard that aborts while forming fails the join with its reason") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(2)));
  AbortReason reason;
  reason.code = AbortCode::kFormation;
  reason.culprit_rank = 1;
  reason.set_detail("its table differs");
  daemon.lanes.aborted(1, 0, reason);
  daemon.poll();
  daemon.refused(1, ErrorCode::kAborted, "its table differs");
  // Late news of the other lane changes nothing.
  daemon.lanes.formed(1, 0);
  daemon.lanes.formed(1, 1);
  daemon.lanes.aborted(1, 1, reason);
  daemon.poll();
  CHECK(daemon.waiting(1) == 0);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a member that dies before the group is formed fails it for the others") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  SECTION("while gathering") {
    daemon.join(1, join_body(0, table_of(2), 0, 3));
    daemon.join(2, join_body(0, table_of(2), 1, 3));
    daemon.hang_up(2);
    CHECK(daemon.manager->group_count() == 0);
  }
  SECTION("while resolving") {
    daemon.lanes.silent = {"10.0.0.2"};
    daemon.join(1, join_body(0, table_of(2), 0, 2));
    daemon.join(2, join_body(0, table_of(2), 1, 2));
    daemon.hang_up(2);
    CHECK(daemon.manager->group_count() == 0);
  }
  SECTION("while forming") {
    daemon.join(1, join_body(0, table_of(2), 0, 2));
    daemon.join(2, join_body(0, table_of(2), 1, 2));
    daemon.hang_up(2);
    CHECK(daemon.manager->group_count() == 1);
    CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
    daemon.lanes.finish(RequestType::kLeaveGroup);
    daemon.poll();
    CHECK(daemon.manager->group_count() == 0);
  }
  daemon.refused(1, ErrorCode::kAborted, "member 1 (pid 1002) hung up");
  // And it can be tried again, under the next epoch, since packets of the first may have gone out.
  daemon.lanes.silent.clear();
  auto next = join_body(0, table_of(2));
  next.request.epoch = 2;
  daemon.join(1, next);
  CHECK(daemon.group_json()["state"] == "forming");
}

}  // namespace gradwire::control
