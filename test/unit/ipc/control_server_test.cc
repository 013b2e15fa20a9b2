// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control_server.h"

#include <sys/mman.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "raw_socket.h"

namespace gradwire::ipc {
namespace {

using test::header;

struct TemporaryDirectory {
  TemporaryDirectory() {
    char name[] = "/tmp/gradwire_control_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

UniqueFd connect_to(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return {};
  }
  return socket;
}

/// A server in a directory of its own, and what it reported.
struct Fixture {
  Fixture() { options.path = directory.path + "/control.sock"; }
  void start() {
    auto made = ControlServer::create(options);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    server = std::move(*made);
    server->set_callbacks({[this](ConnectionId id, const PeerCredentials& peer, Message&& m) {
                             messages.emplace_back(id, m.header.request_id);
                             peers.push_back(peer);
                             if (on_message) on_message(id, m);
                           },
                           [this](ConnectionId id) { hangups.push_back(id); }});
  }
  void poll(int rounds = 3) {
    for (int i = 0; i < rounds; ++i) server->poll(0);
  }
  TemporaryDirectory directory;
  ControlServerOptions options;
  std::unique_ptr<ControlServer> server;
  std::vector<std::pair<ConnectionId, std::uint32_t>> messages;
  std::vector<PeerCredentials> peers;
  std::vector<ConnectionId> hangups;
  std::function<void(ConnectionId, const Message&)> on_message;
};

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
  CHECK(connect_to(f.options.path));  // and the first one is unhurt
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
  // What was sent before the hang-up is still heard.
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
  for (std::uint32_t i = 0; i < 20; ++i)
    f.server->send(1, header(MessageType::kStatus, i), big, {});
  Message reply;
  for (std::uint32_t i = 0; i < 20;) {
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
