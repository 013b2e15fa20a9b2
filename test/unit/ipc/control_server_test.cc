// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control_server.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "control_server_fixture.h"

namespace gradwire::ipc {
namespace {

using test::connect_to;
using test::Fixture;
using test::header;
using test::TemporaryDirectory;

}  // namespace

TEST_CASE("messages and answers pass, with credentials and descriptors") {
  Fixture f;
  f.options.mode = 0600;
  f.start();
  struct stat info = {};
  REQUIRE(::stat(f.options.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  f.on_message = [&](ConnectionId id, const Message& m) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::memfd_create("control_server_test", MFD_CLOEXEC));
    f.server->send(id, m.header, bytes_of(FreeRequest{9, 0}), std::move(fds));
  };
  const UniqueFd client = connect_to(f.options.path);
  REQUIRE(client);
  REQUIRE(*send_message(client.get(), header(MessageType::kFree, 5), {}) == SocketStatus::kDone);
  f.poll();
  REQUIRE(f.messages.size() == 1);
  CHECK(f.messages[0].second == 5);
  CHECK(f.peers[0].pid == ::getpid());
  CHECK(f.peers[0].uid == ::getuid());
  Message reply;
  REQUIRE(*receive_message(client.get(), reply) == SocketStatus::kDone);
  CHECK(reply.header.request_id == 5);
  CHECK(body_as<FreeRequest>(reply.body)->memory == 9);
  CHECK(reply.fds.size() == 1);
}

TEST_CASE("a second instance is refused, a stale socket is not in the way") {
  Fixture f;
  f.start();
  const auto second = ControlServer::create(f.options);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == ErrorCode::kBusy);
  CHECK_THAT(second.error().message, Catch::Contains(std::to_string(::getpid())));
  CHECK(connect_to(f.options.path));  // and the first one still works
  f.server.reset();
  CHECK_FALSE(std::filesystem::exists(f.options.path));

  // What a killed daemon leaves: a bound socket that nobody listens on.
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, f.options.path.data(), f.options.path.size());
    REQUIRE(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  REQUIRE(std::filesystem::exists(f.options.path));
  f.start();
  CHECK(connect_to(f.options.path));
}

TEST_CASE("a live listener without our lock is not pushed aside") {
  Fixture f;
  const UniqueFd other(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, f.options.path.data(), f.options.path.size());
  REQUIRE(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(other.get(), 1) == 0);
  const auto made = ControlServer::create(f.options);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == ErrorCode::kBusy);
  CHECK(std::filesystem::exists(f.options.path));
}

TEST_CASE("a path that is no socket is left alone") {
  Fixture f;
  std::ofstream(f.options.path) << "precious";
  const auto made = ControlServer::create(f.options);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == ErrorCode::kInvalidArgument);
  CHECK(std::filesystem::file_size(f.options.path) == 8);
  f.options.path = std::string(200, 'x');
  CHECK(ControlServer::create(f.options).error().code == ErrorCode::kInvalidArgument);
  f.options.path = f.directory.path + "/missing/control.sock";
  CHECK(ControlServer::create(f.options).error().code == ErrorCode::kSystem);
}

TEST_CASE("a hang-up is told once") {
  Fixture f;
  f.start();
  UniqueFd client = connect_to(f.options.path);
  UniqueFd stays = connect_to(f.options.path);
  f.poll();
  CHECK(f.server->connections() == 2);
  // What was sent before the hang-up is still received.
  REQUIRE(*send_message(client.get(), header(MessageType::kDescribe), {}) == SocketStatus::kDone);
  client.reset();
  f.poll();
  CHECK(f.messages.size() == 1);
  CHECK(f.hangups.size() == 1);
  CHECK(f.server->connections() == 1);
  f.poll();
  CHECK(f.hangups.size() == 1);
}

TEST_CASE("who breaks the protocol is told why and hung up") {
  Fixture f;
  f.start();
  UniqueFd client = connect_to(f.options.path);
  auto bad = header(MessageType::kJoin, 31);
  bad.version = 7;
  test::send_raw(client.get(), bytes_of(bad));
  f.poll();
  CHECK(f.messages.empty());
  CHECK(f.hangups.size() == 1);
  CHECK(f.server->faults() == 1);
  Message reply;
  REQUIRE(*receive_message(client.get(), reply) == SocketStatus::kDone);
  CHECK(reply.header.request_id == 31);
  CHECK_THAT(error_of(reply.header, reply.body)->message, Catch::Contains("version 7"));
  CHECK(*receive_message(client.get(), reply) == SocketStatus::kClosed);
}

TEST_CASE("connections are bounded") {
  Fixture f;
  f.options.max_connections = 2;
  f.start();
  UniqueFd a = connect_to(f.options.path);
  UniqueFd b = connect_to(f.options.path);
  UniqueFd c = connect_to(f.options.path);
  f.poll();
  CHECK(f.server->connections() == 2);
  CHECK(f.server->refused() == 1);
  Message reply;
  REQUIRE(*receive_message(c.get(), reply) == SocketStatus::kDone);
  CHECK(error_of(reply.header, reply.body)->code == ErrorCode::kResourceExhausted);
  a.reset();
  f.poll();
  UniqueFd d = connect_to(f.options.path);
  f.poll();
  CHECK(f.server->connections() == 2);
  CHECK(f.server->refused() == 1);
}

TEST_CASE("a user has a share of the connections, and root has some that nobody else gets") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can connect as another user");
    return;
  }
  Fixture f;
  f.options.mode = 0666;
  f.options.max_connections = 3;
  f.options.max_of_user = 2;
  f.options.reserved_for_root = 1;
  f.start();
  std::filesystem::permissions(f.directory.path, std::filesystem::perms{0755});
  const auto connect_as = [&](uid_t user) {
    REQUIRE(::seteuid(user) == 0);
    UniqueFd socket = connect_to(f.options.path);
    REQUIRE(::seteuid(0) == 0);
    REQUIRE(socket);
    f.poll();
    return socket;
  };
  const auto refused = [](const UniqueFd& socket) {
    Message reply;
    REQUIRE(*receive_message(socket.get(), reply) == SocketStatus::kDone);
    CHECK(reply.header.request_id == 0);
    CHECK(error_of(reply.header, reply.body)->code == ErrorCode::kResourceExhausted);
    return error_of(reply.header, reply.body)->message;
  };
  const UniqueFd a = connect_as(1001);
  const UniqueFd b = connect_as(1001);
  CHECK_THAT(refused(connect_as(1001)), Catch::Contains("user 1001 already has 2") &&
                                            Catch::Contains("limits.user_clients = 2"));
  const UniqueFd c = connect_as(1002);
  CHECK_THAT(refused(connect_as(1003)),
             Catch::Contains("3 connections") && Catch::Contains("limits.clients = 3"));
  CHECK(f.server->connections() == 3);
  const UniqueFd d = connect_as(0);
  CHECK(f.server->connections() == 4);
  CHECK_THAT(refused(connect_as(0)), Catch::Contains("limits.clients = 3"));
}

namespace {

/// While it lives, the process gets no more descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const UniqueFd next(::dup(STDERR_FILENO));  // the lowest that is free
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

}  // namespace

TEST_CASE("without a descriptor for a client the server waits, says so once, and goes on") {
  Fixture f;
  const bool long_pause = GENERATE(true, false);
  f.options.accept_pause = std::chrono::milliseconds(long_pause ? 600'000 : 1);
  f.start();
  std::vector<std::string> troubles;
  f.server->set_callbacks({{}, {}, [&](const std::string& text) { troubles.push_back(text); }});
  std::optional<UniqueFd> first = connect_to(f.options.path);
  f.poll();
  REQUIRE(f.server->connections() == 1);
  const UniqueFd second = connect_to(f.options.path);
  REQUIRE(second);
  {
    const NoDescriptors none;
    f.server->poll(0);
    CHECK(f.server->connections() == 1);
    if (long_pause) {
      // A poll that has nothing to do lasts as long as it may.
      const auto begin = std::chrono::steady_clock::now();
      f.server->poll(30);
      CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30));
      // Connections that exist are served, and make room when they close.
      first.reset();
      f.poll();
      CHECK(f.server->connections() == 1);
    } else {
      for (int i = 0; i < 20; ++i) f.server->poll(5);
    }
  }
  REQUIRE(troubles.size() == 1);
  CHECK_THAT(troubles[0], Catch::Contains("Too many open files"));
  CHECK_THAT(troubles[0], Catch::Contains("LimitNOFILE"));
  if (!long_pause) {
    for (int i = 0; i < 1'000 && f.server->connections() < 2; ++i) f.server->poll(5);
    CHECK(f.server->connections() == 2);
  }
}

TEST_CASE("who is refused learns why, also where it has spoken already") {
  Fixture f;
  f.options.max_connections = 0;
  f.start();
  UniqueFd client = connect_to(f.options.path);
  REQUIRE(*send_message(client.get(), header(MessageType::kOpen, 5), {}) == SocketStatus::kDone);
  f.poll();
  Message reply;
  REQUIRE(*receive_message(client.get(), reply) == SocketStatus::kDone);
  CHECK(error_of(reply.header, reply.body)->code == ErrorCode::kResourceExhausted);
  CHECK(*receive_message(client.get(), reply) == SocketStatus::kClosed);
}

TEST_CASE("who says nothing is hung up, unless it is kept") {
  Fixture f;
  f.options.silence = std::chrono::milliseconds(20);
  f.start();
  UniqueFd kept = connect_to(f.options.path);
  // The first round accepts; what is kept from then on is never too old.
  f.poll(1);
  f.server->keep(1);
  UniqueFd silent = connect_to(f.options.path);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (f.hangups.empty() && std::chrono::steady_clock::now() < deadline) f.server->poll(5);
  CHECK(f.hangups == std::vector<ConnectionId>{2});
  Message reply;
  REQUIRE(*receive_message(silent.get(), reply) == SocketStatus::kDone);
  CHECK(error_of(reply.header, reply.body)->code == ErrorCode::kTimedOut);
  CHECK_THAT(error_of(reply.header, reply.body)->message, Catch::Contains("timeouts.open_ms"));
  CHECK(*receive_message(silent.get(), reply) == SocketStatus::kClosed);
  CHECK(*receive_message(kept.get(), reply) == SocketStatus::kWouldBlock);
}

TEST_CASE("who waits for an answer may be silent, however long that takes") {
  Fixture f;
  f.options.silence = std::chrono::milliseconds(200);
  auto now = std::chrono::steady_clock::now();
  f.options.now = [&] { return now; };
  f.start();
  UniqueFd client = connect_to(f.options.path);
  REQUIRE(*send_message(client.get(), header(MessageType::kStatus, 5), {}) == SocketStatus::kDone);
  f.poll();
  now += std::chrono::seconds(100);
  f.poll();
  CHECK(f.hangups.empty());
  f.server->send(1, header(MessageType::kStatus, 5), {}, {});
  // An event is no answer, and from the answer on the time counts again.
  now += std::chrono::milliseconds(150);
  f.server->send(1, header(MessageType::kStatus, 0), {}, {});
  f.poll();
  CHECK(f.hangups.empty());
  now += std::chrono::milliseconds(100);
  f.poll();
  CHECK(f.hangups == std::vector<ConnectionId>{1});
}

TEST_CASE("who does not read its answers is hung up, and the others go on") {
  Fixture f;
  f.options.max_queued_messages = 4;
  f.start();
  UniqueFd deaf = connect_to(f.options.path);
  f.poll();
  REQUIRE(f.server->connections() == 1);
  const std::vector<std::byte> big(100 * 1024);
  for (int i = 0; i < 64; ++i) f.server->send(1, header(MessageType::kStatus), big, {});
  CHECK(f.hangups.empty());  // never from inside send()
  f.poll();
  CHECK(f.hangups.size() == 1);
  UniqueFd other = connect_to(f.options.path);
  f.poll();
  f.server->send(2, header(MessageType::kStatus, 3), {}, {});
  Message reply;
  REQUIRE(*receive_message(other.get(), reply) == SocketStatus::kDone);
  CHECK(reply.header.request_id == 3);
}

TEST_CASE("queued answers go out when the reader comes back") {
  Fixture f;
  f.start();
  UniqueFd slow = connect_to(f.options.path);
  f.poll();
  const std::vector<std::byte> big(100 * 1024);
  for (std::uint32_t i = 0; i < 9; ++i) f.server->send(1, header(MessageType::kStatus, i), big, {});
  Message reply;
  for (std::uint32_t i = 0; i < 9;) {
    REQUIRE(f.hangups.empty());
    if (*receive_message(slow.get(), reply) == SocketStatus::kDone) {
      REQUIRE(reply.header.request_id == i);
      ++i;
    } else {
      f.server->poll(0);
    }
  }
  CHECK(f.hangups.empty());
}

TEST_CASE("what is queued at a hang-up goes out as far as there is room") {
  Fixture f;
  f.start();
  UniqueFd client = connect_to(f.options.path);
  f.poll();
  const std::vector<std::byte> big(100 * 1024);
  for (std::uint32_t i = 0; i < 10; ++i)
    f.server->send(1, header(MessageType::kStatus, i), big, {});
  Message reply;
  std::uint32_t count = 0;
  while (*receive_message(client.get(), reply) == SocketStatus::kDone) ++count;
  f.server->hang_up(1);
  f.poll();
  const std::uint32_t before = count;
  while (*receive_message(client.get(), reply) == SocketStatus::kDone) ++count;
  CHECK(before > 0);
  CHECK(count > before);
  CHECK(*receive_message(client.get(), reply) == SocketStatus::kClosed);
}

TEST_CASE("hanging up sends what is queued first") {
  Fixture f;
  f.start();
  UniqueFd client = connect_to(f.options.path);
  f.poll();
  f.server->send(1, header(MessageType::kStatus, 8), {}, {});
  f.server->hang_up(1);
  f.server->hang_up(999);  // unknown: nothing happens
  f.poll();
  CHECK(f.hangups == std::vector<ConnectionId>{1});
  Message reply;
  REQUIRE(*receive_message(client.get(), reply) == SocketStatus::kDone);
  CHECK(reply.header.request_id == 8);
}

}  // namespace gradwire::ipc
