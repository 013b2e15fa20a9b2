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

TEST_CASE("epochs of one rank rise too") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1}, 1);
  daemon.leave(1, handle);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  daemon.join(1, join_body(0, table_of(1)));
  daemon.refused(1, ErrorCode::kBusy, "use 2 or more");
}

TEST_CASE("a group whose members were still coming when a higher epoch began is not formed") {
  FakeDaemon daemon;
  for (const ipc::ConnectionId connection : {1, 2, 3}) daemon.open(connection);
  daemon.join(1, join_body(0, table_of(2), 0, 2));
  auto next = join_body(0, table_of(2));
  next.request.epoch = 2;
  daemon.join(2, next);
  daemon.all_lanes_formed(2);
  CHECK(daemon.take_join_reply(2) == 2);
  daemon.join(3, join_body(0, table_of(2), 1, 2));
  daemon.refused(1, ErrorCode::kBusy, "use 3 or more");
  daemon.refused(3, ErrorCode::kBusy, "use 3 or more");
  CHECK(daemon.manager->group_count() == 1);
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

TEST_CASE("limits are looked at before a table is") {
  Limits limits;
  limits.groups_per_user = 1;
  limits.groups_per_client = 1;
  FakeDaemon daemon(limits);
  daemon.open(1);
  daemon.open(2);
  daemon.form({1}, 2, 11);
  // 1,024 ranks of which no two can reach each other: what a plan of it would say.
  auto body = join_body(0, table_of(1024));
  body.request.group_id = 12;
  for (std::size_t rank = 1; rank < body.table.size(); ++rank) {
    body.table[rank].addresses[0].ip[0] = 11;
    body.table[rank].addresses[0].prefix_bits = 32;
    body.table[rank].addresses[0].ip[2] = static_cast<std::uint8_t>(rank >> 8);
    body.table[rank].addresses[0].ip[3] = static_cast<std::uint8_t>(rank);
    body.table[rank].checksum = checksum_of(body.table[rank]);
  }
  const auto steps_of = [&](ipc::ConnectionId connection) {
    const std::uint64_t before = daemon.manager->steps();
    daemon.join(connection, body);
    return daemon.manager->steps() - before;
  };
  const std::uint64_t of_client = steps_of(1);
  daemon.refused(1, ErrorCode::kResourceExhausted, "limits.client_groups = 1");
  const std::uint64_t of_user = steps_of(2);
  daemon.refused(2, ErrorCode::kResourceExhausted, "limits.user_groups = 1");
  CHECK(of_client < 1'200);
  CHECK(of_user < 1'200);
  daemon.leave(1, 1);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  daemon.take(1);
  CHECK(steps_of(2) > 3'000);
  daemon.refused(2, ErrorCode::kInvalidArgument, "cannot reach its downstream neighbor");
}

TEST_CASE("a member joins a group that exists without a plan being made again") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  auto table = table_of(200);
  daemon.join(1, join_body(0, table, 0, 2));
  const std::uint64_t before = daemon.manager->steps();
  daemon.manager->on_message(
      2, {1002, 500},
      [&] {
        ipc::Message message;
        message.header.type = static_cast<std::uint16_t>(MessageType::kJoin);
        const auto body = join_body(0, table, 1, 2);
        message.body = ipc::encode_join(body.request, body.table, body.ranks);
        return message;
      }(),
      daemon.now);
  CHECK(daemon.manager->steps() - before < 250);
}

TEST_CASE("users and their groups take turns with questions, and none waits for all of another's") {
  Limits limits;
  limits.groups_per_client = limits.groups_per_user = 8;
  FakeDaemon daemon(limits);
  const auto dead = [&](std::uint8_t network, std::size_t ranks, std::uint64_t id, uid_t uid) {
    auto table = table_of(ranks);
    table[0] = test::rank_info(0, 2, uid);
    for (ipc::RankInfo& info : table) {
      info.direct_kib = 64;
      info.fold_sources = kMaxRanks;
    }
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      auto& address = table[rank].addresses[0];
      address.prefix_bits = table[0].addresses[0].prefix_bits = 8;
      address.ip[1] = network;
      address.ip[2] = static_cast<std::uint8_t>(rank >> 8);
      address.ip[3] = static_cast<std::uint8_t>(rank);
      daemon.lanes.silent.insert(fmt::format("10.{}.{}.{}", network, rank >> 8, rank & 255));
    }
    auto body = join_body(0, table);
    body.request.group_id = id;
    return body;
  };
  for (auto& local : daemon.lanes.local) local.prefix_bits = 8;
  daemon.options.daemon.direct_kib = 64;
  daemon.options.daemon.fold_sources = kMaxRanks;
  daemon.make();
  daemon.open(1);
  daemon.open(2);
  daemon.open(3, 501);
  daemon.lanes.room_to_ask = 0;
  daemon.join(1, dead(1, 500, 11, 500));
  daemon.join(2, dead(2, 500, 12, 500));
  daemon.join(3, dead(3, 6, 13, 501), 501);
  INFO((daemon.waiting(3) != 0 ? daemon.take(3).error() : std::string()));
  REQUIRE(daemon.manager->group_count() == 3);
  daemon.lanes.questions.clear();
  daemon.lanes.room_to_ask = 8;
  daemon.poll(1);
  // In turn: the other user's three first questions are among the first eight.
  REQUIRE(daemon.lanes.questions.size() == 8);
  const auto of = [&](const char* network) {
    return std::ranges::count_if(daemon.lanes.questions,
                                 [&](const std::string& ip) { return ip.starts_with(network); });
  };
  CHECK(of("10.3.") == 3);
  CHECK(of("10.1.") >= 2);
  CHECK(of("10.2.") >= 2);
  // However much room there is, one group never has more open than its share.
  daemon.lanes.room_to_ask = SIZE_MAX;
  daemon.poll(20);
  CHECK(of("10.1.") <= 32);
  CHECK(of("10.2.") <= 32);
  CHECK(of("10.3.") == 3);
  CHECK_THAT(daemon.group_json(0)["waits_for"].dump(),
             Catch::Contains("does not answer ARP") &&
                 Catch::Contains("ranks were not asked for their MAC addresses yet"));
}

}  // namespace gradwire::control
