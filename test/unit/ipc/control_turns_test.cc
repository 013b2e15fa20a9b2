// SPDX-License-Identifier: BSD-3-Clause
// How users and their connections share a round of the control thread.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control_server_fixture.h"
#include "ipc/control_server.h"
#include "lingering_socket.h"

namespace gradwire::ipc {
namespace {

using test::connect_to;
using test::Fixture;
using test::header;
using test::LingeringSockets;
using test::send_raw;

}  // namespace

TEST_CASE("connections of a user take turns, and a user's steps end its round") {
  Fixture f;
  f.options.steps_of_user = 3'000;
  f.start();
  std::uint64_t steps = 0;
  ControlCallbacks callbacks;
  callbacks.on_message = [&](ConnectionId id, const PeerCredentials&, const Message& m) {
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
  callbacks.on_message = [&](ConnectionId, const PeerCredentials& peer, const Message&) {
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

TEST_CASE("a user who took more than its share is received from when there is more") {
  if (::geteuid() != 0) return;  // to be another user
  Fixture f;
  f.options.mode = 0666;
  f.options.silence = std::chrono::milliseconds(200);
  auto now = std::chrono::steady_clock::now();
  f.options.now = [&] { return now; };
  f.start();
  std::filesystem::permissions(f.directory.path, std::filesystem::perms(0755));
  std::uint64_t steps = 0;
  std::map<uid_t, int> taken;
  std::vector<std::string> troubles;
  ControlCallbacks callbacks;
  callbacks.on_message = [&](ConnectionId id, const PeerCredentials& peer, const Message&) {
    ++taken[peer.uid];
    f.peers.push_back(peer);
    if (peer.uid != 0) steps += 300'000;
    f.server->keep(id);
  };
  callbacks.on_hangup = [&](ConnectionId id) { f.hangups.push_back(id); };
  callbacks.on_trouble = [&](const std::string& text) { troubles.push_back(text); };
  callbacks.steps = [&] { return steps; };
  f.server->set_callbacks(std::move(callbacks));
  const auto as_nobody = [&] {
    REQUIRE(::seteuid(65534) == 0);
    UniqueFd socket = connect_to(f.options.path);
    REQUIRE(::seteuid(0) == 0);
    REQUIRE(socket);
    return socket;
  };
  const auto say = [](const UniqueFd& socket) {
    REQUIRE(*send_message(socket.get(), header(MessageType::kFree, 1), {}) == SocketStatus::kDone);
  };
  UniqueFd greedy = as_nobody();
  const UniqueFd second = as_nobody();
  const UniqueFd root = connect_to(f.options.path);
  for (int i = 0; i < 10; ++i) say(greedy);
  say(second);
  f.poll(10);
  CHECK(taken[65534] == 4);  // 1,200,000 steps: more than there were
  CHECK_FALSE(f.server->has_more());
  REQUIRE(troubles.size() == 1);
  CHECK_THAT(troubles[0], Catch::Contains("user 65534 has used up its share"));
  CHECK(f.server->user_steps().users().at(65534).waits == 1);

  // Others go on, and nobody's end is told only when its messages have been received.
  say(root);
  greedy.reset();
  now += std::chrono::milliseconds(230);
  f.poll(5);
  CHECK(taken[0] == 1);
  CHECK(taken[65534] == 4);
  CHECK(f.hangups.empty());  // nor was anybody silent for too long
  now += std::chrono::milliseconds(20);
  f.poll(1);
  CHECK(taken[65534] == 5);
  CHECK(f.server->user_steps().users().at(65534).waits == 2);
  CHECK(troubles.size() == 1);
  for (int i = 0; i < 10; ++i) {
    now += std::chrono::seconds(10);
    f.poll(5);
  }
  CHECK(taken[65534] == 11);
  CHECK(f.hangups == std::vector<ConnectionId>{1});
}

TEST_CASE("work outside of a message counts as its user's") {
  Fixture f;
  auto now = std::chrono::steady_clock::now();
  f.options.now = [&] { return now; };
  f.start();
  const UniqueFd socket = connect_to(f.options.path);
  f.poll(1);
  const std::uint64_t before = f.server->steps();
  f.server->charge(::geteuid(), 2'000'000);
  CHECK(f.server->steps() == before);
  REQUIRE(*send_message(socket.get(), header(MessageType::kFree, 1), {}) == SocketStatus::kDone);
  f.poll(5);
  CHECK(f.messages.empty());
  now += std::chrono::seconds(11);
  f.poll(1);
  CHECK(f.messages.size() == 1);
}

TEST_CASE("connections are accepted by the second, whoever makes them") {
  Fixture f;
  auto now = std::chrono::steady_clock::now();
  f.options.now = [&] { return now; };
  f.options.max_connections = f.options.max_of_user = 4;
  f.start();
  const auto connect_and_close = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const UniqueFd socket = connect_to(f.options.path);
      REQUIRE(socket);
      f.poll(1);
    }
  };
  connect_and_close(ControlServer::kAcceptsSaved);
  f.poll(20);
  CHECK(f.hangups.size() + f.server->refused() == ControlServer::kAcceptsSaved);
  const UniqueFd late = connect_to(f.options.path);
  f.poll(5);
  CHECK(f.server->connections() == 0);
  now += std::chrono::milliseconds(1);
  f.poll(1);
  CHECK(f.server->connections() == 1);
}

TEST_CASE("what a user sent is closed by the user's own thread") {
  LingeringSockets sockets;
  UniqueFd slow = sockets.make();
  Closers closers([] {});
  Fixture f;
  f.start();
  f.server->set_closers(&closers);
  UniqueFd client = connect_to(f.options.path);
  f.poll();
  const bool refused = GENERATE(false, true);
  std::vector<int> fds(refused ? 5 : 1, slow.get());
  send_raw(client.get(), bytes_of(header(MessageType::kFree, 1)), fds);
  slow.reset();
  f.poll();
  // The user's thread hangs in its close now, and the server answers others. What was refused stays
  // in the connection, where no close hangs for long.
  if (!refused) CHECK(closers.waiting() > 0);
  const UniqueFd root = connect_to(f.options.path);
  f.poll();
  REQUIRE(*send_message(root.get(), header(MessageType::kFree, 7), {}) == SocketStatus::kDone);
  f.poll();
  CHECK(f.messages.back().second == 7);
  if (!refused) CHECK(closers.waiting() > 0);
  sockets.end();
  for (int i = 0; i < 6'000 && closers.waiting() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(closers.waiting() == 0);
}

TEST_CASE("an answer that nobody takes has a bound in bytes, too") {
  Fixture f;
  f.start();
  const UniqueFd client = connect_to(f.options.path);
  f.poll();
  const std::vector<std::byte> body(100'000);
  for (int i = 0; i < 60; ++i) f.server->send(1, header(MessageType::kStatus, 1), body, {});
  f.poll();
  CHECK(f.hangups == std::vector<ConnectionId>{1});
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
