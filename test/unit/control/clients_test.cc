// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "fake_daemon.h"
#include "ipc/command_queue.h"
#include "ipc/doorbell.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::is_mapped;
using test::RequestType;

namespace {

/// @return what the lane got of client 1, whose answer is to be taken.
command::ClientPort* open_client(FakeDaemon& daemon) {
  daemon.lanes.answers.clear();
  daemon.send(1, MessageType::kOpen, ipc::OpenRequest{});
  command::ClientPort* port = daemon.lanes.holding(RequestType::kAddClient).at(0)->client;
  daemon.lanes.finish(RequestType::kAddClient);
  daemon.poll();
  return port;
}

}  // namespace

TEST_CASE("an open gives a queue and two wake-ups that work, once the lane knows the client") {
  FakeDaemon daemon;
  daemon.lanes.answers.clear();
  daemon.send(1, MessageType::kOpen, ipc::OpenRequest{});
  CHECK(daemon.waiting(1) == 0);
  command::ClientPort* port = daemon.lanes.holding(RequestType::kAddClient).at(0)->client;
  daemon.lanes.finish(RequestType::kAddClient);
  daemon.poll();
  const auto sent = daemon.take(1);
  const auto reply = ipc::body_as<ipc::OpenReply>(sent.body).value();
  CHECK(reply.incarnation == 100);
  CHECK(reply.lanes == 2);
  CHECK(reply.max_payload_bytes == 8192);
  CHECK(reply.numa_node == -1);  // the ports', wherever the kernel put the queue
  REQUIRE(sent.fds.size() == 3);
  void* memory = ::mmap(nullptr, reply.queue_region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        sent.fds[0].get(), 0);
  REQUIRE(memory != MAP_FAILED);
  ipc::QueueRegion* region = ipc::open_queue_region(memory, reply.queue_region_bytes);
  REQUIRE(region != nullptr);
  ipc::ClientQueue queue(region);
  ipc::CommandEntry command;
  command.request_id = 55;
  REQUIRE(queue.push_command(command));
  ipc::CommandEntry seen;
  REQUIRE(port->queue.pop_command(seen) == ipc::PopResult::kEntry);
  CHECK(seen.request_id == 55);
  ::munmap(memory, reply.queue_region_bytes);

  const auto wakes = [](int writer, int reader) {
    const std::uint64_t one = 1;
    std::uint64_t got = 0;
    REQUIRE(::write(writer, &one, sizeof(one)) == sizeof(one));
    pollfd p = {reader, POLLIN, 0};
    CHECK(::poll(&p, 1, 0) == 1);
    CHECK(::read(reader, &got, sizeof(got)) == sizeof(got));
    CHECK(::read(reader, &got, sizeof(got)) == -1);
  };
  wakes(port->completion_fd, sent.fds[2].get());
  wakes(sent.fds[1].get(), port->doorbell_fd);
}

TEST_CASE("each ring of a client wakes the lane, which reads none, however many came before") {
  FakeDaemon daemon;
  command::ClientPort* port = open_client(daemon);
  const auto sent = daemon.take(1);
  // As lane::Sleeper waits.
  const ipc::UniqueFd sleeper(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  REQUIRE(::epoll_ctl(sleeper.get(), EPOLL_CTL_ADD, port->doorbell_fd, &event) == 0);
  for (int i = 0; i < 10'000; ++i) {
    INFO("ring " << i);
    ipc::ring(sent.fds[1]);
    REQUIRE(::epoll_wait(sleeper.get(), &event, 1, 1'000) == 1);
    REQUIRE(::epoll_wait(sleeper.get(), &event, 1, 0) == 0);
  }
}

TEST_CASE("a client cannot block a lane, which sends as the command lane does") {
  FakeDaemon daemon;
  command::ClientPort* port = open_client(daemon);
  auto sent = daemon.take(1);
  const auto send_one = [port] {
    const std::uint64_t one = 1;
    return ::send(port->completion_fd, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
  };
  // The client makes its own end blocking and reads nothing.
  REQUIRE(::fcntl(sent.fds[2].get(), F_SETFL, 0) == 0);
  ssize_t wrote = 8;
  for (int i = 0; i < 100'000 && wrote > 0; ++i) wrote = send_one();
  CHECK(wrote == -1);
  CHECK((errno == EAGAIN || errno == EWOULDBLOCK));
  sent.fds.clear();  // it dies
  CHECK(send_one() == -1);
}

TEST_CASE("a second open, a wrong ABI and too many clients are refused") {
  Limits limits;
  limits.clients = 2;
  FakeDaemon daemon(limits);
  ipc::OpenRequest future;
  future.abi_version = 9;
  daemon.send(1, MessageType::kOpen, future);
  daemon.refused(1, ErrorCode::kUnsupported, "version 9 of the control protocol");
  daemon.open(1);
  daemon.send(1, MessageType::kOpen, ipc::OpenRequest{});
  daemon.refused(1, ErrorCode::kBusy, "already been opened");
  daemon.open(2);
  daemon.send(3, MessageType::kOpen, ipc::OpenRequest{});
  daemon.refused(3, ErrorCode::kResourceExhausted, "2 clients, and limits.clients = 2");
}

TEST_CASE("a user has a bound on clients, which leaves room for others") {
  Limits limits;
  limits.clients = 3;
  limits.clients_per_user = 2;
  FakeDaemon daemon(limits);
  daemon.open(1, 500);
  daemon.open(2, 500);
  daemon.send(3, MessageType::kOpen, ipc::bytes_of(ipc::OpenRequest{}), 500);
  daemon.refused(3, ErrorCode::kResourceExhausted,
                 "user 500 already has 2 clients, and limits.user_clients = 2");
  daemon.open(4, 501);
  CHECK(daemon.sink.kept == std::set<ipc::ConnectionId>{1, 2, 4});
}

TEST_CASE("ids begin anew in time, and pass over those that are in use") {
  FakeDaemon daemon;
  daemon.options.last_id = 4;
  daemon.make();
  daemon.lanes.answers.insert(RequestType::kRemoveClient);
  daemon.lanes.answers.insert(RequestType::kRemoveMemory);
  daemon.lanes.answers.insert(RequestType::kLeaveGroup);
  for (std::uint32_t id = 1; id <= 4; ++id) CHECK(daemon.open(id) == id);
  daemon.form({1, 2});
  // Client 2 is gone, but its group stays, with its id, until client 1 has left too.
  daemon.hang_up(2);
  daemon.hang_up(4);
  REQUIRE(daemon.manager->client_count() == 2);
  REQUIRE(daemon.manager->group_count() == 1);
  CHECK(daemon.open(5) == 4);

  std::vector<std::uint32_t> memories;
  for (int i = 0; i < 4; ++i) memories.push_back(daemon.allocate(3));
  CHECK(memories == std::vector<std::uint32_t>{1, 2, 3, 4});
  daemon.send(3, MessageType::kFree, ipc::FreeRequest{3, 0});
  CHECK(daemon.take(3).code() == ErrorCode::kOk);
  CHECK(daemon.allocate(3) == 3);
}

TEST_CASE("a client's events are as many as its commands, and go with it") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.send(1, MessageType::kMakeEvent, {});
  daemon.refused(1, ErrorCode::kUnsupported, "no GPU");
  daemon.memory.on_cuda = true;
  for (std::uint32_t i = 1; i <= ipc::kOpCommands; ++i) {
    daemon.send(1, MessageType::kMakeEvent, {});
    const auto sent = daemon.take(1);
    const auto reply = ipc::body_as<ipc::MakeEventReply>(sent.body).value();
    REQUIRE(reply.event == i);
    CHECK(reply.handle[0] == i % 256);
  }
  daemon.send(1, MessageType::kMakeEvent, {});
  daemon.refused(1, ErrorCode::kResourceExhausted, "256 events");
  CHECK(daemon.memory.ready_events == 256);
  daemon.hang_up(1);
  CHECK(daemon.memory.ready_events == 256);  // a lane may still ask one
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  CHECK(daemon.memory.ready_events == 0);
}

TEST_CASE("a client that dies goes when the lane has let go of it and of its memory") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  daemon.allocate(1);
  daemon.allocate(1);
  daemon.hang_up(1);
  CHECK(daemon.manager->client_count() == 2);
  CHECK(daemon.lanes.holding(RequestType::kRemoveMemory).size() == 2);
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  CHECK(daemon.manager->client_count() == 2);
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.poll();
  CHECK(daemon.manager->client_count() == 1);
  daemon.allocate(2);
}

TEST_CASE("a client may die before its open, its allocation or its free is answered") {
  FakeDaemon daemon;
  daemon.lanes.answers.clear();
  daemon.send(1, MessageType::kOpen, ipc::OpenRequest{});
  daemon.hang_up(1);
  daemon.lanes.finish(RequestType::kAddClient);
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  CHECK(daemon.manager->client_count() == 0);

  daemon.lanes.answers = {RequestType::kAddClient};
  daemon.open(2);
  daemon.send(2, MessageType::kAllocate, ipc::AllocateRequest{4096});
  daemon.hang_up(2);
  for (const auto type :
       {RequestType::kAddMemory, RequestType::kRemoveMemory, RequestType::kRemoveClient}) {
    CHECK(daemon.lanes.finish(type) == 1);
  }
  daemon.poll();
  CHECK(daemon.manager->client_count() == 0);

  daemon.lanes.answers.insert(RequestType::kAddMemory);
  daemon.open(3);
  const std::uint32_t memory = daemon.allocate(3);
  daemon.send(3, MessageType::kFree, ipc::FreeRequest{memory, 0});
  daemon.hang_up(3);
  CHECK(daemon.lanes.finish(RequestType::kRemoveMemory) == 1);  // once, not twice
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  CHECK(daemon.manager->client_count() == 0);
  for (const ipc::ConnectionId connection : {1, 2, 3}) CHECK(daemon.waiting(connection) == 0);
}

TEST_CASE("a client that breaks the queue's rules is told so and hung up") {
  FakeDaemon daemon;
  const std::uint32_t id = daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1});
  command::Notice fault;
  fault.type = command::NoticeType::kClientFault;
  fault.client_id = id;
  fault.reason.set_detail("broke the command queue's rules: command tail 77");
  daemon.lanes.notices.push_back(fault);
  daemon.poll();
  const auto last = daemon.take(1);
  CHECK(last.header.type == static_cast<std::uint16_t>(ipc::MessageType::kCutOff));
  CHECK(last.header.request_id == 0);
  CHECK(ipc::text_of(ipc::body_as<ipc::ErrorBody>(last.body).value().text) ==
        "broke the command queue's rules: command tail 77");
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.waiting(2) == 0);
  CHECK(daemon.sink.hung_up == std::set<ipc::ConnectionId>{1});
  CHECK(daemon.lanes.count(RequestType::kRemoveClient) == 1);
  CHECK_THAT(daemon.group_json()["aborted"].get<std::string>(), Catch::Contains("command tail 77"));
  CHECK(daemon.group_json()["handle"] == handle);
  daemon.hang_up(1);  // the server reports it in its time
  CHECK(daemon.lanes.count(RequestType::kRemoveClient) == 1);
}

TEST_CASE("a user has a bound on gradient memory, and pages are kept for queues") {
  FakeDaemon daemon;
  ipc::HugepagePool pool{4096, 160, 160};
  daemon.options.hugepages = [&pool] { return pool; };
  daemon.make();
  daemon.open(1);
  daemon.open(2);
  daemon.open(3, 501);
  const auto ask = [&](ipc::ConnectionId connection, std::uint64_t pages) {
    daemon.send(connection, ipc::MessageType::kAllocate, ipc::AllocateRequest{pages * 4096});
  };
  ask(1, 100);
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  pool.free_pages -= 100;
  ask(2, 21);  // 120 of 160 pages
  daemon.refused(2, ErrorCode::kResourceExhausted,
                 "all clients of user 500 have 409600 of the user's 491520 already "
                 "(limits.user_memory_mib = auto");
  ask(2, 20);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  pool.free_pages -= 20;
  // 40 are free, and of all pages a 16th is kept.
  ask(3, 31);
  daemon.refused(3, ErrorCode::kResourceExhausted, "kept for the command queues");
  ask(3, 30);
  CHECK(daemon.take(3).code() == ErrorCode::kOk);
  daemon.hang_up(1);
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  pool.free_pages = 110;
  ask(2, 100);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);

  FakeDaemon given;
  given.options.limits.bytes_per_user = 8 * 4096;
  given.make();
  given.open(1);
  given.send(1, ipc::MessageType::kAllocate, ipc::AllocateRequest{9 * 4096});
  given.refused(1, ErrorCode::kResourceExhausted, "limits.user_memory_mib)");
}

}  // namespace gradwire::control
