// SPDX-License-Identifier: BSD-3-Clause
// Which keys and how many groups may be formed.
#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::join_body;
using test::RequestType;
using test::table_of;

TEST_CASE("epochs are kept by user and group id, and the oldest is forgotten first") {
  Epochs epochs;
  CHECK_FALSE(epochs.last(1, 7));
  epochs.begin(1, 7, 3);
  epochs.begin(1, 7, 2);
  CHECK(epochs.last(1, 7) == 3);
  CHECK_FALSE(epochs.last(2, 7));
  epochs.begin(1, 8, 1);
  epochs.begin(1, 7, 4);
  for (std::uint64_t id = 0; id < Epochs::kKept - 1; ++id) epochs.begin(2, id, 1);
  CHECK_FALSE(epochs.last(1, 8));
  CHECK(epochs.last(1, 7) == 4);
  epochs.begin(3, 1, 1);
  CHECK_FALSE(epochs.last(1, 7));
  CHECK(epochs.last(2, 0) == 1);
}

TEST_CASE("a key that failed before its lanes began may be tried again") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.lanes.unreachable = {"10.0.0.2"};
  daemon.join(1, join_body(0, table_of(2)));
  CHECK(daemon.take(1).code() == ErrorCode::kUnavailable);
  daemon.lanes.unreachable.clear();
  daemon.join(1, join_body(0, table_of(2)));
  CHECK(daemon.lanes.plan_requests.size() == 1);
}

TEST_CASE("a key is used once; the next epoch is another key") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t first = daemon.form({1});
  daemon.join(2, join_body(0, table_of(2)));
  daemon.refused(2, ErrorCode::kBusy, "already exists on this daemon (it is formed)");
  auto next = join_body(0, table_of(2));
  next.request.epoch = 2;
  daemon.join(2, next);
  daemon.all_lanes_formed(2);
  CHECK(daemon.take_join_reply(2) == 2);
  daemon.leave(1, first);
  daemon.join(1, join_body(0, table_of(2)));
  daemon.refused(1, ErrorCode::kBusy, "closing");
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  daemon.join(1, join_body(0, table_of(2)));
  daemon.refused(1, ErrorCode::kBusy, "use 3 or more");
  next.request.epoch = 3;
  daemon.join(1, next);
  daemon.all_lanes_formed(3);
  CHECK(daemon.take_join_reply(1) == 3);
}

TEST_CASE("the limits on groups are kept") {
  Limits limits;
  limits.groups_per_client = 1;
  limits.groups = 2;
  FakeDaemon daemon(limits);
  for (const ipc::ConnectionId connection : {1, 2, 3}) daemon.open(connection);
  daemon.form({1}, 2, 11);
  auto body = join_body(0, table_of(2));
  body.request.group_id = 12;
  daemon.join(1, body);
  daemon.refused(1, ErrorCode::kResourceExhausted, "member of 1 groups");
  daemon.form({2}, 2, 12);
  body.request.group_id = 13;
  daemon.join(3, body);
  daemon.refused(3, ErrorCode::kResourceExhausted, "2 groups, and limits.groups = 2");
}

TEST_CASE("a user has a bound on groups, which leaves room for others") {
  Limits limits;
  limits.groups = 3;
  limits.groups_per_user = 2;
  FakeDaemon daemon(limits);
  for (const ipc::ConnectionId connection : {1, 2, 3}) daemon.open(connection);
  daemon.open(4, 501);
  daemon.form({1}, 2, 11);
  daemon.form({2}, 2, 12);
  auto body = join_body(0, table_of(2));
  body.request.group_id = 13;
  daemon.join(3, body);
  daemon.refused(3, ErrorCode::kResourceExhausted,
                 "user 500 already has 2 groups, and limits.user_groups = 2");
  body.table[0] = test::rank_info(0, 2, 501);
  daemon.join(4, body, 501);
  CHECK(daemon.manager->group_count() == 3);
}

}  // namespace gradwire::control
