// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The process at the other end of a link, played by the test: it says and hears by TCP what
/// messages.h has. A thread of a test; it waits, for 10 s at most.
#pragma once

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "nccl_net/abi.h"
#include "nccl_net/messages.h"
#include "nccl_net/setup_socket.h"

extern "C" gradwire::nccl_net::NetV12 ncclNetPlugin_v12;

namespace gradwire::nccl_net {

inline NetV12& net() { return ncclNetPlugin_v12; }

constexpr std::chrono::seconds kBound{10};

template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline sockaddr_in6 loopback() {
  sockaddr_in6 address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Peer {
 public:
  explicit Peer(int socket) : socket_(socket) {}
  ~Peer() { end(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  static int connected_to(const Handle& handle) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // Little fits on the way to a peer that does not listen.
    const int room = 4096;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&handle.address),
                      sizeof(sockaddr_in)) == 0);
    return fd;
  }
  /// As a process that exits.
  void end() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// Of this end.
  [[nodiscard]] int port() const {
    sockaddr_in own{};
    socklen_t bytes = sizeof(own);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &bytes);
    return ntohs(own.sin_port);
  }
  template <class Word>
  bool say_word(const Word& word) {
    return say(socket_, word, SetupClock::now() + kBound);
  }
  template <class Word>
  bool hear_word(Word& word) {
    return hear(socket_, word, SetupClock::now() + kBound);
  }
  /// The other end says nothing more, within the bound.
  bool hears_end() {
    char rest[4096];
    ssize_t got = 1;
    while (got > 0 && wait_for(socket_, POLLIN, SetupClock::now() + kBound)) {
      got = ::recv(socket_, rest, sizeof(rest), 0);
    }
    return got == 0;
  }

  /// The words by which a link is made, as the process that makes it.
  bool begin_as_maker(const Handle& to, const Token& process = {1, 2}) {
    Hello other;
    return say_word(hello(HelloKind::kConnect, to.listener, process)) && hear_word(other) &&
           other.kind == HelloKind::kTake && say_word(Go{}) && are_ready();
  }
  /// Likewise as the one that takes it.
  bool begin_as_taker(const Handle& own) {
    Hello other;
    return hear_word(other) && answer_as_taker(own);
  }
  bool answer_as_taker(const Handle& own) {
    Go go;
    return say_word(hello(HelloKind::kTake, own.listener, own.process)) && hear_word(go) &&
           go.magic == kMagic && are_ready();
  }
  static Hello hello(HelloKind kind, const Token& listener, const Token& process) {
    Hello made;
    made.kind = kind;
    made.listener = listener;
    made.process = process;
    made.group_id = 3;
    return made;
  }
  /// The other end says that it opens this connection. For any thread: Catch's are one thread's.
  bool hears_open(std::uint32_t connection) {
    Record heard;
    return hear_word(heard) && heard.kind == RecordKind::kOpen && heard.connection == connection;
  }
  /// What the other end says next about connections and the link.
  Record next_record() {
    Record heard;
    CHECK(hear_word(heard));
    return heard;
  }
  /// The next of this kind.
  Record next_record(RecordKind kind) {
    Record heard;
    while (hear_word(heard) && heard.kind != kind) {
    }
    CHECK(heard.kind == kind);
    return heard;
  }

 private:
  bool are_ready() {
    Ready own;
    Ready other;
    own.ok = 1;
    return say_word(own) && hear_word(other) && other.ok == 1;
  }

  int socket_;
};

/// The first connection that the maker of a link opens, and the first of the other end.
constexpr std::uint32_t kOfMaker = 2;
constexpr std::uint32_t kOfTaker = 3;

inline Record record(RecordKind kind, std::uint64_t a = 0, std::uint64_t b = 0,
                     std::uint32_t connection = kOfMaker) {
  Record made;
  made.kind = kind;
  made.connection = connection;
  made.a = a;
  made.b = b;
  return made;
}
/// What a transfer has: a segment of a message of `whole` bytes.
inline std::string segment(std::uint64_t message, std::uint64_t offset, std::uint64_t whole,
                           const std::string& bytes, std::uint32_t connection = kOfMaker) {
  SegmentHeader header;
  header.connection = connection;
  header.message = message;
  header.offset = offset;
  header.bytes = whole;
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + bytes;
}
inline std::string segment(std::uint64_t message, const std::string& bytes) {
  return segment(message, 0, bytes.size(), bytes);
}
/// What fills a receive that is posted in vain.
inline std::string filler() { return segment(0, 0, 0, "", 0); }

/// Polls a request, as NCCL does. @return what ended it.
struct Outcome {
  Status status = kInProgress;
  int bytes = -1;
};
inline Outcome outcome(void* request) {
  Outcome found;
  eventually([&] {
    int done = 0;
    found.status = net().test(request, &done, &found.bytes);
    return done != 0 || found.status != kSuccess;
  });
  return found;
}

}  // namespace gradwire::nccl_net
