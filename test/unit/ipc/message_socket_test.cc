// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/message_socket.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "raw_socket.h"

namespace gradwire::ipc {
namespace {

using test::header;
using test::open_fds;
using test::send_raw;
using test::socket_pair;

/// Sends `bytes` raw with `fds`; they must be refused with a text that contains `says`.
void refused(std::span<const std::byte> bytes, const std::string& says,
             std::span<const int> fds = {}) {
  auto [a, b] = socket_pair();
  const std::size_t before = open_fds();
  send_raw(a.get(), bytes, fds);
  Message message;
  const auto result = receive_message(b.get(), message);
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::kInvalidArgument);
  CHECK_THAT(result.error().message, Catch::Contains(says));
  // They are the caller's, who closes them where that may take its time.
  message.fds.clear();
  CHECK(open_fds() == before);
}

}  // namespace

TEST_CASE("a message arrives whole, with its descriptors") {
  auto [a, b] = socket_pair();
  const AllocateRequest request = {12345};
  const UniqueFd file(::memfd_create("message_socket_test", MFD_CLOEXEC));
  const int fds[] = {file.get(), a.get()};
  REQUIRE(*send_message(a.get(), header(MessageType::kAllocate, 77), bytes_of(request), fds) ==
          SocketStatus::kDone);
  Message message;
  REQUIRE(*receive_message(b.get(), message) == SocketStatus::kDone);
  CHECK(message.type() == MessageType::kAllocate);
  CHECK(message.header.request_id == 77);
  CHECK(message.header.bytes == sizeof(MessageHeader) + sizeof(request));
  REQUIRE(body_as<AllocateRequest>(message.body));
  CHECK(body_as<AllocateRequest>(message.body)->bytes == 12345);
  REQUIRE(message.fds.size() == 2);
  struct stat sent = {};
  struct stat received = {};
  REQUIRE(::fstat(file.get(), &sent) == 0);
  REQUIRE(::fstat(message.fds[0].get(), &received) == 0);
  CHECK(sent.st_ino == received.st_ino);
  CHECK((::fcntl(message.fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a message without body or descriptors, and the largest one") {
  auto [a, b] = socket_pair();
  Message message;
  REQUIRE(*send_message(a.get(), header(MessageType::kStatus), {}) == SocketStatus::kDone);
  REQUIRE(*receive_message(b.get(), message) == SocketStatus::kDone);
  CHECK(message.body.empty());

  const std::vector<std::byte> most(kMaxMessageBytes - sizeof(MessageHeader), std::byte{7});
  REQUIRE(*send_message(a.get(), header(MessageType::kStatus), most) == SocketStatus::kDone);
  REQUIRE(*receive_message(b.get(), message) == SocketStatus::kDone);
  CHECK(message.body == most);

  const std::vector<std::byte> more(most.size() + 1);
  CHECK(send_message(a.get(), header(MessageType::kStatus), more).error().code ==
        ErrorCode::kInvalidArgument);
  const int fds[kMaxMessageFds + 1] = {};
  CHECK(send_message(a.get(), header(MessageType::kStatus), {}, fds).error().code ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("an empty socket would block, a closed one says so") {
  auto [a, b] = socket_pair();
  Message message;
  CHECK(*receive_message(b.get(), message) == SocketStatus::kWouldBlock);
  std::vector<std::byte> big(64 * 1024);
  SocketStatus status = SocketStatus::kDone;
  for (int i = 0; i < 100 && status == SocketStatus::kDone; ++i) {
    status = *send_message(a.get(), header(MessageType::kStatus), big);
  }
  CHECK(status == SocketStatus::kWouldBlock);
  b.reset();
  CHECK(*send_message(a.get(), header(MessageType::kStatus), {}) == SocketStatus::kClosed);
  auto [c, d] = socket_pair();
  c.reset();
  CHECK(*receive_message(d.get(), message) == SocketStatus::kClosed);
}

TEST_CASE("a message shorter than its header is refused") {
  const auto h = header(MessageType::kOpen);
  for (std::size_t bytes = 1; bytes < sizeof(h); ++bytes) {
    refused(bytes_of(h).first(bytes), "shorter than its header");
  }
}

TEST_CASE("wrong magic, version and length are refused by name") {
  auto h = header(MessageType::kOpen);
  h.magic ^= 0x80;
  refused(bytes_of(h), "magic");
  h = header(MessageType::kOpen);
  h.version = kControlVersion + 1;
  refused(bytes_of(h), "has version " + std::to_string(kControlVersion + 1));
  for (const std::uint32_t bytes : {0u, 23u, 25u, 0xffffffffu}) {
    h = header(MessageType::kOpen);
    h.bytes = bytes;
    refused(bytes_of(h), "has 24");
  }
}

TEST_CASE("an oversize message is refused") {
  std::vector<std::byte> bytes(kMaxMessageBytes + 1);
  auto h = header(MessageType::kOpen);
  h.bytes = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &h, sizeof(h));
  refused(bytes, "more than");
}

TEST_CASE("descriptors of a refused message are closed") {
  const UniqueFd file(::memfd_create("message_socket_test", MFD_CLOEXEC));
  auto h = header(MessageType::kOpen);
  h.magic = 0;
  const int fds[] = {file.get(), file.get(), file.get()};
  refused(bytes_of(h), "magic", fds);
  refused(bytes_of(h).first(8), "shorter than its header", fds);
}

TEST_CASE("too many descriptors are refused and closed") {
  const UniqueFd file(::memfd_create("message_socket_test", MFD_CLOEXEC));
  const std::vector<int> fds(20, file.get());
  refused(bytes_of(header(MessageType::kOpen)), "descriptors", fds);
}

TEST_CASE("a message stays in the socket if there are no descriptors for all of its files") {
  for (const bool none_left : {false, true}) {
    auto [a, b] = socket_pair();
    auto [kept, given] = socket_pair();
    const std::vector<int> fds(none_left ? 1 : kMaxMessageFds + 1, given.get());
    send_raw(a.get(), bytes_of(header(MessageType::kOpen)), fds);
    given.reset();
    Message message;
    {
      rlimit before = {};
      REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
      const int lowest = UniqueFd(::dup(b.get())).get();
      rlimit few = before;
      if (none_left) few.rlim_cur = static_cast<rlim_t>(lowest);
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
      const auto result = receive_message(b.get(), message);
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
      REQUIRE_FALSE(result);
      CHECK_THAT(result.error().message, Catch::Contains("file descriptors"));
    }
    message.fds.clear();
    // So nothing was closed for good.
    char byte = 0;
    CHECK(::recv(kept.get(), &byte, 1, MSG_DONTWAIT) == -1);
    CHECK_FALSE(end_connection(b.get()));
    CHECK(::recv(kept.get(), &byte, 1, MSG_DONTWAIT) == -1);
    b.reset();
    CHECK(::recv(kept.get(), &byte, 1, MSG_DONTWAIT) == 0);
  }
}

TEST_CASE("a connection is known to have no descriptors in it, or not to be known") {
  const UniqueFd file(::memfd_create("message_socket_test", MFD_CLOEXEC));
  const int fd = file.get();
  const auto one = header(MessageType::kOpen);
  for (const bool closed : {false, true}) {
    const auto ends = [&](const std::function<void(int)>& sends) {
      auto [a, b] = socket_pair();
      sends(a.get());
      if (closed) a.reset();
      return end_connection(b.get());
    };
    CHECK(ends([](int) {}));
    CHECK(ends([&](int to) { send_raw(to, bytes_of(one)); }));
    CHECK(ends([](int to) { send_raw(to, {}); }));
    CHECK_FALSE(ends([&](int to) { send_raw(to, {}, std::span(&fd, 1)); }));
    CHECK_FALSE(ends([&](int to) {
      send_raw(to, {});
      send_raw(to, bytes_of(one));
      send_raw(to, bytes_of(one), std::span(&fd, 1));
    }));
    CHECK_FALSE(ends([&](int to) {
      for (int i = 0; i < 100; ++i) send_raw(to, bytes_of(one));
    }));
  }
  // Nothing can be put into it later.
  auto [a, b] = socket_pair();
  CHECK(end_connection(b.get()));
  CHECK(*send_message(a.get(), one, {}, std::span(&fd, 1)) == SocketStatus::kClosed);
}

TEST_CASE("the header of a refused message is there for an answer") {
  auto [a, b] = socket_pair();
  auto h = header(MessageType::kJoin, 42);
  h.version = 9;
  send_raw(a.get(), bytes_of(h));
  Message message;
  REQUIRE_FALSE(receive_message(b.get(), message).has_value());
  CHECK(message.header.magic == kControlMagic);
  CHECK(message.header.request_id == 42);
}

}  // namespace gradwire::ipc
