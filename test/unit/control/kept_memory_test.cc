// SPDX-License-Identifier: BSD-3-Clause
// Memory of clients that have hung up: whose it is, and for how long.
#include <unistd.h>

#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::RequestType;

namespace {

/// A client, and what the daemon sent it.
struct Opened {
  Opened(FakeDaemon& daemon, ipc::ConnectionId connection, std::uint64_t bytes) {
    daemon.send(connection, MessageType::kOpen, ipc::bytes_of(ipc::OpenRequest{}));
    open = daemon.take(connection);
    REQUIRE(open.code() == ErrorCode::kOk);
    daemon.send(connection, MessageType::kAllocate, ipc::AllocateRequest{bytes});
    auto allocated = daemon.take(connection);
    REQUIRE(allocated.code() == ErrorCode::kOk);
    handle = ipc::body_as<ipc::AllocateReply>(allocated.body).value().memory;
    memory = std::move(allocated.fds.at(0));
  }
  long memory_bytes() const { return ::lseek(memory.get(), 0, SEEK_END); }
  long queue_bytes() const { return ::lseek(open.fds.at(0).get(), 0, SEEK_END); }
  void close_completion() { open.fds.at(2).reset(); }

  test::FakeSink::Sent open;
  ipc::UniqueFd memory;
  std::uint32_t handle = 0;
};

Limits limits_of_user(std::uint64_t bytes, std::uint32_t clients) {
  Limits limits;
  limits.bytes_per_user = bytes;
  limits.clients_per_user = clients;
  return limits;
}

}  // namespace

TEST_CASE("what a client had counts after it hung up, until nobody has its completion socket") {
  FakeDaemon daemon(limits_of_user(3 * 8192, 2));
  daemon.lanes.answers.insert(RequestType::kRemoveMemory);
  daemon.lanes.answers.insert(RequestType::kRemoveClient);
  Opened client(daemon, 1, 16384);
  const int completion = ::dup(client.open.fds.at(2).get());  // as another process has it
  daemon.hang_up(1);
  client.close_completion();
  daemon.advance(60'000'000'000);
  CHECK(client.memory_bytes() == 16384);
  CHECK(client.queue_bytes() != 0);
  CHECK(daemon.status_json()["clients"].at(0)["state"] == "retired");
  CHECK(daemon.status_json()["clients"].at(0)["memories"].at(0)["state"] == "lingering");

  daemon.open(2);
  daemon.send(2, MessageType::kAllocate, ipc::AllocateRequest{8193});
  daemon.refused(2, ErrorCode::kResourceExhausted, "have 16384 of the user's 24576");
  daemon.send(3, MessageType::kOpen, ipc::bytes_of(ipc::OpenRequest{}));
  daemon.refused(3, ErrorCode::kResourceExhausted, "already has 2 clients");

  ::close(completion);
  daemon.advance(10'000'000);
  CHECK(client.memory_bytes() == 0);
  CHECK(client.queue_bytes() == 0);
  CHECK(daemon.manager->client_count() == 1);
  daemon.allocate(2, 24576);
  daemon.open(3);
}

TEST_CASE("freed memory is taken back from whoever has it, and that of a client that is cut off") {
  FakeDaemon daemon;
  daemon.lanes.answers.insert(RequestType::kRemoveMemory);
  Opened client(daemon, 1, 16384);
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{client.handle, 0});
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(client.memory_bytes() == 0);
  // 'free' is under way when the client hangs up: the memory goes with the client.
  Opened other(daemon, 2, 16384);
  daemon.lanes.answers.erase(RequestType::kRemoveMemory);
  daemon.send(2, MessageType::kFree, ipc::FreeRequest{other.handle, 0});
  daemon.hang_up(2);
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.advance(1'000'000'000);
  CHECK(other.memory_bytes() == 16384);
  other.close_completion();
  daemon.advance(10'000'000);
  CHECK(other.memory_bytes() == 0);
}

TEST_CASE("a client keeps its memory when the daemon stops") {
  FakeDaemon daemon;
  daemon.lanes.answers.insert(RequestType::kRemoveMemory);
  daemon.lanes.answers.insert(RequestType::kRemoveClient);
  Opened left(daemon, 1, 16384);
  daemon.hang_up(1);
  Opened client(daemon, 2, 16384);
  daemon.manager->begin_stop(daemon.now);
  daemon.advance(100'000'000);
  daemon.advance(100'000'000);
  CHECK(daemon.manager->stopped(daemon.now));
  CHECK(daemon.manager->client_count() == 0);
  daemon.manager.reset();
  CHECK(client.memory_bytes() == 16384);
  CHECK(client.queue_bytes() != 0);
  CHECK(left.memory_bytes() == 16384);
}

}  // namespace gradwire::control
