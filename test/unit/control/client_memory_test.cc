// SPDX-License-Identifier: BSD-3-Clause
// Memory of clients: allocated, registered, counted, given back.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::is_mapped;
using test::RequestType;

TEST_CASE("memory is there for the client only when the lane knows it") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.lanes.answers.clear();
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{5000});
  CHECK(daemon.waiting(1) == 0);
  const command::Request* add = daemon.lanes.holding(RequestType::kAddMemory).at(0);
  CHECK(add->region.bytes == 8192);
  CHECK(add->region.client_id == add->client_id);
  std::byte* base = add->region.base;
  const std::uint32_t handle = add->memory;
  daemon.lanes.finish(RequestType::kAddMemory);
  daemon.poll();
  const auto sent = daemon.take(1);
  const auto reply = ipc::body_as<ipc::AllocateReply>(sent.body).value();
  CHECK(reply.memory == handle);
  CHECK(reply.memory != 0);
  CHECK(reply.bytes == 8192);
  REQUIRE(sent.fds.size() == 1);
  void* mine =
      ::mmap(nullptr, reply.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sent.fds[0].get(), 0);
  REQUIRE(mine != MAP_FAILED);
  static_cast<std::byte*>(mine)[100] = std::byte{9};
  CHECK(base[100] == std::byte{9});
  ::munmap(mine, reply.bytes);
}

TEST_CASE("memory is unmapped, and its free answered, only when the lane lets go") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.lanes.answers.clear();
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  std::byte* base = daemon.lanes.holding(RequestType::kAddMemory).at(0)->region.base;
  daemon.lanes.finish(RequestType::kAddMemory);
  daemon.poll();
  const auto handle = ipc::body_as<ipc::AllocateReply>(daemon.take(1).body).value().memory;
  const std::uint32_t id = daemon.send(1, MessageType::kFree, ipc::FreeRequest{handle, 0});
  CHECK(daemon.waiting(1) == 0);
  CHECK(is_mapped(base));
  // While it goes it is no region any more.
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{handle, 0});
  daemon.refused(1, ErrorCode::kNotFound, "not a live region");
  REQUIRE(daemon.lanes.finish(RequestType::kRemoveMemory) == 1);
  daemon.poll();
  const auto sent = daemon.take(1);
  CHECK(sent.code() == ErrorCode::kOk);
  CHECK(sent.header.request_id == id);
  CHECK_FALSE(is_mapped(base));
}

TEST_CASE("quotas for memory are kept, and freed memory counts no more") {
  Limits limits;
  limits.bytes_per_client = 16384;
  limits.regions_per_client = 3;
  FakeDaemon daemon(limits);
  daemon.lanes.answers.insert(RequestType::kRemoveMemory);
  daemon.open(1);
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{16385}, UINT64_MAX}) {
    daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{bytes});
    CHECK_THAT(daemon.take(1).error(), Catch::Contains("must be 1 to 16384"));
  }
  const std::uint32_t first = daemon.allocate(1, 12288);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{4097});
  daemon.refused(1, ErrorCode::kResourceExhausted, "must be 1 to 4096");
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{first, 0});
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  for (int i = 0; i < 3; ++i) daemon.allocate(1, 4096);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{4096});
  daemon.refused(1, ErrorCode::kResourceExhausted, "3 memory regions");
  // Another client has its own.
  daemon.open(2);
  daemon.allocate(2, 16384);
}

TEST_CASE("memory is registered before a lane may use it, until no lane does") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint32_t first = daemon.allocate(1);
  daemon.allocate(1, 12288);
  CHECK(daemon.memory.registered.size() == 2);
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{first, 0});
  CHECK(daemon.memory.registered.size() == 2);  // the lane has it still
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.poll();
  CHECK(daemon.memory.registered.size() == 1);
  daemon.memory.register_error = "GPU gpu_emu0: no room";
  daemon.take(1);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  daemon.refused(1, ErrorCode::kResourceExhausted, "gpu_emu0");
  daemon.manager.reset();
  CHECK(daemon.memory.registered.empty());
}

TEST_CASE("memory on a GPU is the client's by its descriptor, and counts, until no lane has it") {
  Limits limits;
  limits.bytes_per_client = 16384;
  FakeDaemon daemon(limits);
  daemon.memory.on_gpu = true;
  daemon.open(1);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{12288});
  const auto sent = daemon.take(1);
  REQUIRE(sent.code() == ErrorCode::kOk);
  const auto reply = ipc::body_as<ipc::AllocateReply>(sent.body).value();
  CHECK(reply.bytes == 12288);
  REQUIRE(sent.fds.size() == 1);
  CHECK(::lseek(sent.fds[0].get(), 0, SEEK_END) == 12288);
  CHECK(daemon.memory.gpu_memory.size() == 1);
  CHECK(daemon.memory.registered.empty());
  const auto status = daemon.status_json()["clients"].at(0);
  CHECK(status["memories"][0]["on_gpu"] == true);
  CHECK(status["memory_bytes"] == 12288);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  daemon.refused(1, ErrorCode::kResourceExhausted, "its 16384");
  CHECK(daemon.memory.gpu_memory.size() == 1);
  daemon.hang_up(1);
  CHECK(daemon.memory.gpu_memory.size() == 1);  // a lane has it still
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.poll();
  CHECK(daemon.memory.gpu_memory.empty());
}

TEST_CASE("memory on a CUDA device is the client's by CUDA's handle, and no descriptor") {
  FakeDaemon daemon;
  daemon.memory.on_gpu = daemon.memory.on_cuda = true;
  daemon.open(1);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{12288});
  const auto sent = daemon.take(1);
  REQUIRE(sent.code() == ErrorCode::kOk);
  CHECK(sent.fds.empty());
  const auto reply = ipc::body_as<ipc::CudaAllocateReply>(sent.body).value();
  CHECK(reply.memory.bytes == 12288);
  CHECK(reply.memory.memory != 0);
  CHECK(reply.device_uuid[3] == 0xab);
  CHECK(reply.handle[63] == 0xcd);
  CHECK(ipc::allocate_reply(sent.body)->memory == reply.memory.memory);
  daemon.lanes.answers.insert(RequestType::kRemoveMemory);
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{reply.memory.memory, 0});
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.memory.gpu_memory.empty());
}

TEST_CASE("memory on a CUDA device goes when its client's process has ended, or in time") {
  FakeDaemon daemon;
  daemon.memory.on_gpu = daemon.memory.on_cuda = true;
  daemon.lanes.answers.insert({RequestType::kRemoveMemory, RequestType::kRemoveClient});
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto connection = static_cast<ipc::ConnectionId>(child - 1000);  // process 1000 + n
  daemon.open(connection);
  daemon.send(connection, MessageType::kAllocate, ipc::AllocateRequest{4096});
  REQUIRE(daemon.take(connection).code() == ErrorCode::kOk);
  daemon.hang_up(connection);
  daemon.advance(1'000'000'000);
  CHECK(daemon.memory.gpu_memory.size() == 1);
  CHECK(daemon.status_json()["clients"][0]["memories"][0]["state"] == "lingering");
  const bool dies = GENERATE(true, false);
  if (dies) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    daemon.advance(20'000'000);
  } else {
    daemon.advance(3'900'000'000);
    CHECK(daemon.memory.gpu_memory.size() == 1);
    daemon.advance(200'000'000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  CHECK(daemon.memory.gpu_memory.empty());
  CHECK(daemon.manager->client_count() == 0);
}

TEST_CASE("memory is made while others are served, in order for each client") {
  test::FakeWorker worker;
  Limits limits;
  limits.bytes_per_client = 20'000;
  FakeDaemon daemon(limits, &worker);
  daemon.open(1);
  daemon.open(2);
  const auto first = daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  const auto second = daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{4096});
  // What is being made counts.
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  daemon.refused(1, ErrorCode::kResourceExhausted, "8192 bytes of gradient memory were asked for");
  daemon.send(2, MessageType::kAllocate, ipc::AllocateRequest{4096});
  daemon.send(1, MessageType::kDescribe, {});
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.waiting(1) == 0);
  CHECK(worker.jobs.size() == 2);  // one of each client
  CHECK(daemon.status_json()["clients"][0]["memories"][0]["state"] == "making");
  worker.run();
  daemon.poll();
  CHECK(daemon.take(1).header.request_id == first);
  worker.run();
  worker.run();
  daemon.poll();
  CHECK(daemon.take(1).header.request_id == second);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  CHECK(worker.jobs.empty());
  CHECK(daemon.memory.registered.size() == 3);
}

TEST_CASE("a client that dies while its memory is made leaves nothing") {
  test::FakeWorker worker;
  FakeDaemon daemon({}, &worker);
  daemon.lanes.answers.insert({RequestType::kRemoveClient, RequestType::kRemoveMemory});
  daemon.open(1);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  daemon.hang_up(1);
  CHECK(daemon.manager->client_count() == 1);  // until the worker has let go of its memory
  worker.run();
  CHECK(worker.jobs.empty());
  CHECK(daemon.manager->client_count() == 0);
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.memory.registered.empty());
  CHECK(daemon.lanes.count(RequestType::kAddMemory) == 0);

  // Nor does a daemon that ends.
  daemon.open(2);
  daemon.send(2, MessageType::kAllocate, ipc::AllocateRequest{8192});
  daemon.manager.reset();
  CHECK(worker.jobs.size() == 1);
}

TEST_CASE("the control thread does not wait while memory is registered, or given back") {
  test::FakeWorker worker;
  FakeDaemon daemon({}, &worker);
  daemon.open(1);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  CHECK_FALSE(worker.run_piece());  // it is faulted in
  CHECK(daemon.memory.registered.empty());
  CHECK(worker.run_piece());
  CHECK(daemon.memory.registered.size() == 1);
  daemon.poll();
  const auto memory = ipc::body_as<ipc::AllocateReply>(daemon.take(1).body).value().memory;
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{memory, 0});
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.poll();
  CHECK(daemon.memory.registered.size() == 1);
  CHECK(daemon.waiting(1) == 0);
  worker.run();
  CHECK(daemon.memory.registered.empty());
  CHECK(daemon.take(1).code() == ErrorCode::kOk);

  // The daemon stops between two pieces, and with memory that nobody gave back yet.
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  worker.run();
  daemon.poll();
  const auto second = ipc::body_as<ipc::AllocateReply>(daemon.take(1).body).value().memory;
  daemon.send(1, MessageType::kFree, ipc::FreeRequest{second, 0});
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.poll();
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{8192});
  CHECK(daemon.memory.registered.size() == 1);
  worker.jobs.pop_front();
  CHECK(daemon.memory.registered.empty());
  CHECK_FALSE(worker.run_piece());
  CHECK(worker.jobs.front().first());  // registered, and its end never told
  CHECK(daemon.memory.registered.size() == 1);
  worker.jobs.clear();
  daemon.manager.reset();
  CHECK(daemon.memory.registered.empty());
}

TEST_CASE("the quota counts whole pages") {
  Limits limits;
  limits.bytes_per_client = 10'000;
  FakeDaemon daemon(limits);
  daemon.open(1);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{9'000});
  daemon.refused(1, ErrorCode::kResourceExhausted,
                 "12288 bytes of gradient memory in whole pages were asked for");
  CHECK(daemon.lanes.count(RequestType::kAddMemory) == 0);
  daemon.allocate(1, 8'000);
}

TEST_CASE("a client names only its own memory") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint32_t memory = daemon.allocate(1);
  daemon.send(2, MessageType::kFree, ipc::FreeRequest{memory, 0});
  daemon.refused(2, ErrorCode::kNotFound, "not a live region of this client");
  CHECK(daemon.lanes.count(RequestType::kRemoveMemory) == 0);
}

}  // namespace gradwire::control
