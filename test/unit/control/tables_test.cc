// SPDX-License-Identifier: BSD-3-Clause
// The tables of clients and groups, and requests to lanes.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "control/clients/client_table.h"
#include "control/groups/group_table.h"
#include "control/lanes/lane_requests.h"
#include "control/stopping.h"
#include "fake_lanes.h"

namespace gradwire::control {
namespace {

std::unique_ptr<Client> client_of(std::uint32_t id, ipc::ConnectionId connection, uid_t uid) {
  auto client = std::make_unique<Client>();
  client->id = id;
  client->connection = connection;
  client->peer = {static_cast<pid_t>(id), uid};
  return client;
}

std::unique_ptr<Group> group_of(std::uint64_t id, std::uint32_t epoch, uid_t uid) {
  auto group = std::make_unique<Group>();
  group->key = {id, epoch};
  group->uid = uid;
  group->table.resize(2);
  return group;
}

command::Request leave_of(std::uint64_t handle) {
  command::Request request;
  request.type = command::RequestType::kLeaveGroup;
  request.group_handle = handle;
  return request;
}

}  // namespace

TEST_CASE("a client that has retired is known by its id alone until it is taken") {
  ClientTable clients;
  clients.add(client_of(1, 11, 500));
  clients.add(client_of(2, 12, 500));
  REQUIRE(clients.of(11) == clients.by_id(1));
  CHECK(clients.of_user(500) == 2);
  clients.retire(*clients.by_id(1));
  CHECK(clients.of(11) == nullptr);
  CHECK(clients.has(1));
  CHECK(clients.of_user(500) == 2);
  CHECK(clients.take(1)->id == 1);
  CHECK_FALSE(clients.has(1));
  CHECK(clients.size() == 1);
  CHECK(clients.of_user(500) == 1);
  CHECK(clients.of_user(501) == 0);
}

TEST_CASE("numbers that are not in use are given in turn, and from 1 again") {
  std::uint32_t last = 1;
  const auto is_used = [](std::uint32_t number) { return number == 2; };
  CHECK(next_unused(last, 4, is_used) == 3);
  CHECK(next_unused(last, 4, is_used) == 4);
  CHECK(next_unused(last, 4, is_used) == 1);
  CHECK(next_unused(last, 4, is_used) == 3);
}

TEST_CASE("a group is found by its handle and its key, and no handle comes twice") {
  GroupTable groups;
  Group& first = groups.add(group_of(7, 1, 500));
  Group& second = groups.add(group_of(7, 2, 501));
  CHECK(first.handle != second.handle);
  CHECK(groups.by_handle(first.handle) == &first);
  CHECK(groups.by_key({7, 2}) == &second);
  CHECK(groups.by_key({8, 1}) == nullptr);
  CHECK(groups.of_user(500, false) == 1);
  CHECK(groups.handles() == std::vector{first.handle, second.handle});
  const std::uint64_t gone = first.handle;
  groups.remove(gone);
  CHECK(groups.by_handle(gone) == nullptr);
  CHECK(groups.by_key({7, 1}) == nullptr);
  CHECK(groups.of_user(500, false) == 0);
  CHECK(groups.add(group_of(7, 1, 500)).handle > second.handle);
}

TEST_CASE("names of groups that ended are kept, the oldest not for ever, those of others always") {
  GroupTable groups;
  const std::uint64_t stays = groups.add(group_of(1, 1, 500)).handle;
  std::uint64_t last = 0;
  for (std::uint32_t epoch = 2; epoch < 1'000; ++epoch) {
    last = groups.add(group_of(1, epoch, 500)).handle;
    groups.remove(last);
  }
  CHECK(groups.names().size() == 257);
  CHECK(groups.names().contains(stays));
  REQUIRE(groups.names().contains(last));
  CHECK(groups.names().at(last).key.epoch == 999);
  CHECK(groups.names().at(last).nranks == 2);
  // However many others there are.
  for (std::uint32_t epoch = 1'000; epoch < 2'000; ++epoch) groups.add(group_of(1, epoch, 500));
  CHECK(groups.names().contains(last));
}

TEST_CASE("requests that find no room go to their lane later, in order, and come back once") {
  test::FakeLanes lanes;
  lanes.answers.clear();
  LaneRequests requests(lanes);
  lanes.full = true;
  requests.send(0, leave_of(1));
  requests.send(0, leave_of(2));
  requests.send(1, leave_of(3));
  CHECK(requests.waits());
  CHECK(requests.unsent(0) == 2);
  CHECK(requests.outstanding() == 3);
  CHECK(requests.sent() == 0);
  lanes.full = false;
  requests.flush();
  CHECK_FALSE(requests.waits());
  CHECK(requests.sent() == 3);
  REQUIRE(lanes.held.size() == 3);
  command::Request* const first = lanes.held[0].second;
  CHECK(first->group_handle == 1);
  CHECK(lanes.held[1].second->group_handle == 2);
  const LaneRequests::Request last = requests.take_done(lanes.held[2].second);
  CHECK(last.lane == 1);
  CHECK(last.request->group_handle == 3);
  CHECK(requests.take_done(last.request.get()).request == nullptr);
  CHECK(requests.take_done(first).lane == 0);
  CHECK(requests.outstanding() == 1);
}

TEST_CASE("a daemon that stops drains, and then closes, each for a time") {
  Stopping stopping;
  CHECK(stopping.running());
  CHECK_FALSE(stopping.is_over(kNever - 1));
  stopping.begin_drain(100);
  CHECK(std::string(stopping.name()) == "stopping");
  CHECK_FALSE(stopping.is_over(99));
  CHECK(stopping.is_over(100));
  stopping.begin_close(200);
  CHECK(std::string(stopping.name()) == "closing");
  CHECK_FALSE(stopping.is_over(199));
}

}  // namespace gradwire::control
