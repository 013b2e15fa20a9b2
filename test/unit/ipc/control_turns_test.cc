// SPDX-License-Identifier: BSD-3-Clause
// How users and their connections share a round of the control thread.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "control_server_fixture.h"
#include "ipc/control_server.h"

namespace gradwire::ipc {
namespace {

using test::connect_to;
using test::Fixture;
using test::header;

}  // namespace

TEST_CASE("connections of a user take turns, and a user's steps end its round") {
  Fixture f;
  f.options.steps_of_user = 3'000;
  f.start();
  std::uint64_t steps = 0;
  ControlCallbacks callbacks;
  callbacks.on_message = [&](ConnectionId id, const PeerCredentials&, Message&& m) {
    f.messages.emplace_back(id, m.header.request_id);
    steps += 992;
  };
  callbacks.steps = [&] { return steps; };
  f.server->set_callbacks(std::move(callbacks));
  const UniqueFd first = connect_to(f.options.path);
  const UniqueFd second = connect_to(f.options.path);
  f.poll();
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(*send_message(first.get(), header(MessageType::kFree, i), {}) == SocketStatus::kDone);
    REQUIRE(*send_message(second.get(), header(MessageType::kFree, i), {}) == SocketStatus::kDone);
  }
  f.poll(1);
  using Took = std::vector<std::pair<ConnectionId, std::uint32_t>>;
  CHECK(f.messages == Took{{1, 0}, {2, 0}, {1, 1}});
  CHECK(f.server->has_more());
  f.poll(1);
  CHECK(f.messages == Took{{1, 0}, {2, 0}, {1, 1}, {2, 1}, {1, 2}, {2, 2}});
  f.poll(1);
  CHECK(f.messages.size() == 8);
  f.poll(1);
  CHECK_FALSE(f.server->has_more());
}

TEST_CASE("a user that floods the socket takes its share of a round and no more") {
  if (::geteuid() != 0) return;  // to be another user
  Fixture f;
  f.options.mode = 0666;
  f.options.steps_of_user = 5'000;
  f.options.steps_of_round = 8'000;
  f.start();
  std::filesystem::permissions(f.directory.path, std::filesystem::perms(0755));
  std::uint64_t steps = 0;
  std::map<uid_t, int> taken;
  ControlCallbacks callbacks;
  callbacks.on_message = [&](ConnectionId, const PeerCredentials& peer, Message&&) {
    ++taken[peer.uid];
    steps += 992;
  };
  callbacks.steps = [&] { return steps; };
  f.server->set_callbacks(std::move(callbacks));
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(::seteuid(65534) == 0);
    flood.push_back(connect_to(f.options.path));
    REQUIRE(::seteuid(0) == 0);
    REQUIRE(flood.back());
    for (int n = 0; n < 10; ++n) {
      REQUIRE(*send_message(flood.back().get(), header(MessageType::kFree, 1), {}) ==
              SocketStatus::kDone);
    }
  }
  const UniqueFd other = connect_to(f.options.path);
  f.poll(2);
  taken.clear();
  REQUIRE(*send_message(other.get(), header(MessageType::kStatus, 1), {}) == SocketStatus::kDone);
  const std::uint64_t before = f.server->steps();
  f.poll(1);
  CHECK(taken[0] == 1);
  CHECK(taken[65534] <= 5);
  CHECK(f.server->steps() - before <= 8'000 + 1'000);
}

TEST_CASE("the ends of many connections are told a few in a round") {
  Fixture f;
  f.start();
  std::vector<UniqueFd> clients;
  for (std::size_t i = 0; i < 2 * ControlServer::kEndsPerRound + 1; ++i) {
    clients.push_back(connect_to(f.options.path));
    f.poll(1);
  }
  f.poll(4);
  clients.clear();
  f.poll(1);
  CHECK(f.hangups.size() == ControlServer::kEndsPerRound);
  CHECK(f.server->has_more());
  f.poll(2);
  CHECK(f.hangups.size() == 2 * ControlServer::kEndsPerRound + 1);
}

}  // namespace gradwire::ipc
