// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <set>

#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::join_body;
using test::local_address;
using test::RequestType;
using test::table_of;

namespace {

/// Rank 0, on ports 3 and 7, joins a group with a rank 1 of so many lanes.
void join_over_two_networks(FakeDaemon& daemon, std::uint8_t their_lanes,
                            std::array<std::uint64_t, 2> rates_bps = {}) {
  daemon.lanes.local = {local_address(3, "10.0.0.1"), local_address(7, "10.5.0.1")};
  for (std::size_t i = 0; i < 2; ++i) daemon.lanes.local[i].rate_bps = rates_bps[i];
  daemon.make();
  daemon.open(1);
  const std::vector<LocalAddress> theirs = {local_address(0, "10.0.0.2"),
                                            local_address(1, "10.5.0.2")};
  daemon.join(1, join_body(0, {test::described(100, 2, daemon.lanes.local),
                               test::described(101, their_lanes, theirs)}));
}

}  // namespace

TEST_CASE("a group forms: addresses, plan, lanes, reply") {
  FakeDaemon daemon;
  const std::uint32_t client = daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  const PlanRequest& plan = daemon.lanes.plan_requests[0];
  CHECK(plan.key == GroupKey{0xfeed, 1});
  CHECK(plan.rank == 0);
  CHECK(plan.nranks == 3);
  CHECK(plan.lanes == 2);
  CHECK(plan.payload_bytes == 8192);
  CHECK(plan.incarnation == 100);
  REQUIRE(plan.downstream.size() == 1);
  const NeighborPath& down = plan.downstream[0];
  CHECK(down.rank == 1);
  CHECK(down.incarnation == 101);
  CHECK(wire::to_string(down.remote_ip) == "10.0.0.2");
  CHECK(wire::to_string(down.local_ip) == "10.0.0.1");
  CHECK(down.remote_mac.value()[5] == 2);
  CHECK(down.remote_base_udp_port == 18515);
  REQUIRE(plan.upstream.size() == 1);
  CHECK(plan.upstream[0].rank == 2);
  CHECK(wire::to_string(plan.upstream[0].remote_ip) == "10.0.0.3");
  CHECK(daemon.lanes.count(RequestType::kAddGroup) == 2);
  const command::GroupPlan* made = *daemon.lanes.plans.begin();
  CHECK(made->group_handle == 1);
  CHECK(made->member_clients == std::vector<std::uint32_t>{client});

  daemon.lanes.formed(1, 0);
  daemon.lanes.formed(1, 0);  // twice is not two lanes
  daemon.poll();
  CHECK(daemon.waiting(1) == 0);
  daemon.lanes.formed(1, 1);
  daemon.poll();
  const auto sent = daemon.take(1);
  const auto reply = ipc::body_as<ipc::JoinReply>(sent.body).value();
  CHECK(reply.group_handle == 1);
  CHECK(reply.payload_bytes == 8192);
  CHECK(reply.lanes == 2);
  CHECK(daemon.group_json()["state"] == "formed");
}

TEST_CASE("the digest in the plan is the table's") {
  FakeDaemon daemon;
  daemon.open(1);
  const auto table = table_of(3);
  daemon.join(1, join_body(0, table));
  CHECK(daemon.lanes.plan_requests.at(0).table_digest ==
        table_digest({0xfeed, 1}, 1, {8192, 2, 0}, table));
}

TEST_CASE("fewer lanes elsewhere are fewer lanes here") {
  FakeDaemon daemon;
  daemon.open(1);
  auto table = table_of(2);
  table[1].lanes = 1;
  daemon.join(1, join_body(0, table));
  CHECK(daemon.lanes.count(RequestType::kAddGroup) == 1);
  daemon.lanes.formed(1, 1);  // a lane that has no part in it
  daemon.poll();
  CHECK(daemon.waiting(1) == 0);
  daemon.lanes.formed(1, 0);
  daemon.poll();
  CHECK(ipc::body_as<ipc::JoinReply>(daemon.take(1).body).value().lanes == 1);
}

TEST_CASE("one rank needs no neighbor") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 1);
  const PlanRequest& plan = daemon.lanes.plan_requests.at(0);
  CHECK(plan.downstream.empty());
  CHECK(plan.upstream.empty());
  CHECK(daemon.lanes.resolved_ports.empty());
}

TEST_CASE("the port is the one whose network leads there") {
  FakeDaemon daemon;
  daemon.lanes.local = {local_address(3, "192.168.0.1"), local_address(7, "10.0.0.1")};
  daemon.make();
  daemon.open(1);
  auto table = table_of(2);
  table[0] = test::described(100, 2, daemon.lanes.local);
  daemon.join(1, join_body(0, table));
  CHECK(daemon.lanes.plan_requests.at(0).downstream.at(0).port == 7);
  CHECK(daemon.lanes.plan_requests.at(0).upstream.at(0).port == 7);
}

TEST_CASE("two networks in common are two rails, and both have to answer") {
  FakeDaemon daemon;
  daemon.lanes.silent = {"10.5.0.2"};
  join_over_two_networks(daemon, 2);
  CHECK(daemon.lanes.plan_requests.empty());
  CHECK_THAT(daemon.group_json()["waits_for"][0].get<std::string>(),
             Catch::Contains("(10.5.0.2) does not answer ARP on port 7"));
  daemon.lanes.silent.clear();
  daemon.poll();
  const PlanRequest& plan = daemon.lanes.plan_requests.at(0);
  REQUIRE(plan.downstream.size() == 2);
  REQUIRE(plan.upstream.size() == 2);
  CHECK(path_of(plan.downstream, 1).port == 7);
  CHECK(path_of(plan.upstream, 0).port == 3);
  CHECK(daemon.group_json()["upstream"]["paths"][1]["local_ip"] == "10.5.0.1");
}

TEST_CASE("a group forms without a path that does not answer for long, if there is another") {
  FakeDaemon daemon;
  daemon.lanes.silent = {"10.5.0.2"};
  join_over_two_networks(daemon, 2);
  CHECK(daemon.lanes.plan_requests.empty());
  daemon.now += 2'000'000'000;
  daemon.poll();
  const PlanRequest& plan = daemon.lanes.plan_requests.at(0);
  REQUIRE(plan.downstream.size() == 1);
  REQUIRE(plan.upstream.size() == 1);
  CHECK(plan.downstream[0].port == 3);
}

TEST_CASE("no path is left out while others still answer: it may not have been asked yet") {
  FakeDaemon daemon;
  daemon.lanes.silent = {"10.0.0.2", "10.5.0.2"};
  join_over_two_networks(daemon, 2);
  daemon.now += 1'900'000'000;
  daemon.lanes.silent = {"10.5.0.2"};
  daemon.poll();
  daemon.now += 1'900'000'000;
  daemon.poll();
  CHECK(daemon.lanes.plan_requests.empty());
  daemon.lanes.silent.clear();
  daemon.poll();
  CHECK(daemon.lanes.plan_requests.at(0).downstream.size() == 2);
}

TEST_CASE("a network that no lane begins with is said to be idle, and is a path all the same") {
  FakeDaemon daemon;
  join_over_two_networks(daemon, 1);
  CHECK(daemon.lanes.plan_requests.at(0).downstream.size() == 2);
  CHECK(daemon.group_json()["idle_networks"] == 1);
}

TEST_CASE("lanes take paths by what their ports can send, and a slow one may be left to failures") {
  FakeDaemon daemon;
  constexpr std::uint64_t kGigabit = 1'000'000'000;
  join_over_two_networks(daemon, 2, {100 * kGigabit, 40 * kGigabit});
  const PlanRequest& plan = daemon.lanes.plan_requests.at(0);
  REQUIRE(plan.downstream.size() == 2);
  CHECK(path_of(plan.downstream, 0).port == 3);
  CHECK(path_of(plan.downstream, 1).port == 3);
  CHECK(daemon.group_json()["idle_networks"] == 1);
}

TEST_CASE("the links' tokens follow from the table, and every user's processes get another entry") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  const PlanRequest& plan = daemon.lanes.plan_requests.at(0);
  const GroupKey key = {0xfeed, 1};
  REQUIRE(plan.tokens.size() == plan.lanes);
  CHECK(plan.tokens[0].downstream.to == link_token(key, 0, 0, 1, table_of(3)));
  CHECK(plan.tokens[0].downstream.from == link_token(key, 0, 1, 0, table_of(3)));
  CHECK(plan.tokens[0].upstream.to == link_token(key, 0, 0, 2, table_of(3)));
  CHECK(plan.tokens[0].upstream.from == link_token(key, 0, 2, 0, table_of(3)));
  std::set<std::uint32_t> secrets;
  for (const uid_t uid : {500, 501, 500}) {
    daemon.send(1, ipc::MessageType::kDescribe, {}, uid);
    secrets.insert(ipc::body_as<ipc::RankInfo>(daemon.take(1).body).value().secret);
  }
  CHECK(secrets.size() == 2);
}

TEST_CASE("all members of the rank are waited for, in any order") {
  FakeDaemon daemon;
  std::vector<std::uint32_t> clients;
  for (const ipc::ConnectionId connection : {1, 2, 3}) clients.push_back(daemon.open(connection));
  daemon.join(2, join_body(0, table_of(2), 1, 3));
  daemon.join(3, join_body(0, table_of(2), 2, 3));
  CHECK(daemon.lanes.plan_requests.empty());
  CHECK(daemon.group_json()["waits_for"][0] == "member 0 of 3 has not joined");
  daemon.join(1, join_body(0, table_of(2), 0, 3));
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  CHECK((*daemon.lanes.plans.begin())->member_clients == clients);
  daemon.all_lanes_formed(1);
  for (const ipc::ConnectionId connection : {1, 2, 3}) {
    CHECK(daemon.take_join_reply(connection) == 1);
  }
}

TEST_CASE("ranks differ in members: this one's are waited for, and its shards know them all") {
  FakeDaemon daemon;
  std::vector<std::uint32_t> clients;
  for (const ipc::ConnectionId connection : {1, 2, 3}) clients.push_back(daemon.open(connection));
  const std::vector<std::uint16_t> ranks = {0, 1, 0, 1, 0};  // processes 0, 2 and 4 are here
  const auto join = [&](ipc::ConnectionId connection, std::uint16_t member) {
    auto body = join_body(0, table_of(2), member, 3);
    body.ranks = ranks;
    daemon.join(connection, body);
  };
  join(1, 0);
  join(3, 2);
  CHECK(daemon.group_json()["waits_for"][0] == "member 1 of 3 has not joined");
  CHECK(daemon.group_json()["members"][1]["process"] == 2);
  join(2, 1);
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  const PlanRequest& plan = daemon.lanes.plan_requests[0];
  CHECK(plan.member_count == 3);
  REQUIRE(plan.layout);
  CHECK(std::ranges::equal(plan.layout->ranks(), ranks));
  CHECK((*daemon.lanes.plans.begin())->member_clients == clients);
  daemon.all_lanes_formed(1);
  for (const ipc::ConnectionId connection : {1, 2, 3}) {
    CHECK(daemon.take_join_reply(connection) == 1);
  }
}

TEST_CASE("members that say different things of where processes are do not meet") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  auto body = join_body(0, table_of(2), 0, 2);
  body.ranks = {0, 1, 0};
  daemon.join(1, body);
  body.request.member = 1;
  body.ranks = {1, 0, 0};
  daemon.join(2, body);
  daemon.refused(2, ErrorCode::kMismatch,
                 "member 1 has 3 processes and those that joined before have 3; from process 0 on");
  body.ranks = {0, 1};
  daemon.join(2, body);
  daemon.refused(2, ErrorCode::kInvalidArgument,
                 "rank 0 joined with 2 members, but 1 of the group's processes are at that rank");
}

TEST_CASE("a group of 1,024 ranks forms, its table in a memfd") {
  FakeDaemon daemon;
  daemon.open(1);
  auto body = join_body(500, table_of(kMaxRanks));
  std::swap(body.table[500], body.table[0]);
  std::swap(body.table[501], body.table[1]);
  std::swap(body.table[499], body.table[2]);
  for (std::uint16_t rank = 0; rank < kMaxRanks; ++rank) body.ranks.push_back(rank ^ 1);
  const auto bytes = ipc::encode_join(body.request, body.table, body.ranks);
  REQUIRE(ipc::is_long(bytes));
  ipc::Message message;
  message.header.type = static_cast<std::uint16_t>(ipc::MessageType::kJoin);
  message.header.request_id = 9;
  message.fds.push_back(ipc::to_memfd(bytes).value());
  daemon.manager->on_message(1, {1001, 500}, message, daemon.now);
  daemon.poll();
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  const PlanRequest& plan = daemon.lanes.plan_requests[0];
  CHECK(plan.rank == 500);
  CHECK(plan.nranks == kMaxRanks);
  CHECK(plan.downstream.at(0).rank == 501);
  CHECK(plan.layout->process_at(500) == 501);
  daemon.all_lanes_formed(1);
  CHECK(daemon.take_join_reply(1) == 1);
}

TEST_CASE("a member that does not fit the others is refused, and they go on") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  daemon.open(3, 777);
  daemon.join(1, join_body(0, table_of(2), 0, 2));
  daemon.join(2, join_body(0, table_of(2), 0, 2));
  daemon.refused(2, ErrorCode::kBusy, "member 0 has already joined (pid 1001)");
  daemon.join(1, join_body(0, table_of(2), 1, 2));
  daemon.refused(1, ErrorCode::kBusy, "this connection has already joined as member 0");
  daemon.join(2, join_body(0, table_of(2), 1, 3));
  daemon.refused(2, ErrorCode::kMismatch,
                 "joined with 3 members per rank, the others on this daemon with 2");
  daemon.join(2, join_body(0, table_of(3), 1, 2));
  daemon.refused(2, ErrorCode::kMismatch, "2 ranks against 3");
  auto table = table_of(2);
  table[1].incarnation = 555;
  daemon.join(2, join_body(0, table, 1, 2));
  daemon.refused(2, ErrorCode::kMismatch, "rank 1 is daemon");
  daemon.join(3, join_body(0, table_of(2), 1, 2), 777);
  daemon.refused(3, ErrorCode::kPermission, "another user");
  CHECK(daemon.waiting(1) == 0);
  daemon.join(2, join_body(0, table_of(2), 1, 2));
  daemon.all_lanes_formed(1);
  CHECK(daemon.take_join_reply(1) == 1);
  CHECK(daemon.take_join_reply(2) == 1);
}

TEST_CASE("a router that does not answer is named, with the rank that it leads to") {
  FakeDaemon daemon;
  daemon.lanes.local = {local_address(3, "192.168.0.1"), local_address(7, "10.0.0.1")};
  daemon.lanes.local[1].routed = true;
  daemon.lanes.hops["10.9.0.2"] = "10.0.0.254";
  daemon.lanes.silent = {"10.9.0.2"};
  daemon.make();
  daemon.open(1);
  auto table = table_of(2);
  table[0] = test::described(100, 2, daemon.lanes.local);
  auto remote = local_address(0, "10.9.0.2");
  remote.routed = true;
  table[1] = test::described(101, 2, {remote});
  daemon.join(1, join_body(0, table));
  CHECK_THAT(daemon.group_json()["waits_for"][0].get<std::string>(),
             Catch::Contains("the router 10.0.0.254, which leads to downstream rank 1 (10.9.0.2), "
                             "does not answer ARP on port 7"));
  daemon.lanes.silent.clear();
  daemon.poll();
  CHECK(daemon.lanes.plan_requests.at(0).downstream.at(0).port == 7);
  CHECK(wire::to_string(daemon.lanes.plan_requests.at(0).downstream.at(0).hop) == "10.0.0.254");
}

TEST_CASE("a bad table is refused before anybody waits") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(1, table_of(2)));
  daemon.refused(1, ErrorCode::kMismatch, "this is daemon");
  auto table = table_of(2);
  table[1].incarnation = 100;
  daemon.join(1, join_body(0, table));
  daemon.refused(1, ErrorCode::kInvalidArgument, "same daemon");
  table = table_of(2);
  table[1].addresses[0].ip[0] = 11;
  daemon.join(1, join_body(0, table));
  daemon.refused(1, ErrorCode::kInvalidArgument, "cannot reach its downstream neighbor, rank 1");
  table = table_of(2);
  table[1].addresses[0] = table[0].addresses[0];
  daemon.join(1, join_body(0, table));
  daemon.refused(1, ErrorCode::kInvalidArgument, "same address 10.0.0.1");
  auto body = join_body(0, table_of(2));
  body.request.timeout_ms = 0xffffffff;
  daemon.join(1, body);
  daemon.refused(1, ErrorCode::kInvalidArgument, "a timeout of 4294967295 ms was asked for");
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("an entry of which a bit was changed on its way is refused, though it might be so") {
  FakeDaemon daemon;
  daemon.open(1);
  auto body = join_body(0, table_of(3));
  body.table[2].rates[0] ^= 1u << 10;
  daemon.join(1, body);
  daemon.refused(1, ErrorCode::kInvalidArgument, "the entry of rank 2 has checksum");
  body = join_body(0, table_of(3));
  body.table[1].checksum ^= 1;
  daemon.join(1, body);
  daemon.refused(1, ErrorCode::kInvalidArgument, "the entry of rank 1 has checksum");
  CHECK(daemon.manager->group_count() == 0);
}

}  // namespace gradwire::control
