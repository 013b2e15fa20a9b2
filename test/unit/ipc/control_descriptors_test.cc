// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that a user makes the server hold, and who closes them.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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
using Clock = std::chrono::steady_clock;

constexpr uid_t kHostile = 65534;

/// Works that hang until it is opened.
class Hang {
 public:
  explicit Hang(Closers& closers) : closers_(closers) {}
  ~Hang() { open(); }
  void submit(Closers::Kind kind, std::size_t count = 1) {
    for (std::size_t i = 0; i < count; ++i) {
      closers_.submit(
          kHostile,
          [gate = gate_] {
            std::unique_lock lock(gate->mutex);
            gate->changed.wait(lock, [&] { return gate->open; });
          },
          {}, kind);
    }
  }
  void open() {
    const std::lock_guard lock(gate_->mutex);
    gate_->open = true;
    gate_->changed.notify_all();
  }

 private:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  Closers& closers_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
};

/// While it lives, the process gets at most so many descriptors more.
class DescriptorsLeft {
 public:
  explicit DescriptorsLeft(std::size_t count) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const UniqueFd next(::dup(STDERR_FILENO));  // the lowest that is free
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.get()) + count;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~DescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

bool nothing_waits(const Closers& closers) {
  for (int i = 0; i < 6'000 && closers.waiting() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return closers.waiting() == 0;
}

void as_hostile(const std::function<void()>& act) {
  REQUIRE(::seteuid(kHostile) == 0);
  act();
  REQUIRE(::seteuid(0) == 0);
}

/// A server where a user has two connections at most, which this one has, with Closers and a clock
/// that runs so fast that no rate has a part.
struct Crowded {
  Crowded() {
    f.options.mode = 0666;
    f.options.max_of_user = kept.size();
    f.options.now = [this] { return now += std::chrono::milliseconds(1); };
    f.options.silence = std::chrono::milliseconds(0);
    f.start();
    f.server->set_closers(&closers);
    std::filesystem::permissions(f.directory.path, std::filesystem::perms(0755));
    as_hostile([&] {
      for (UniqueFd& one : kept) one = connect_to(f.options.path);
    });
    f.poll();
    REQUIRE(f.server->connections() == kept.size());
  }
  /// Root comes: one of its own places is free.
  bool accepts_root() {
    const std::size_t before = f.server->connections();
    root.push_back(connect_to(f.options.path));
    if (!root.back()) return false;
    for (int i = 0; i < 100 && f.server->connections() == before; ++i) f.poll(1);
    return f.server->connections() == before + 1;
  }
  Clock::time_point now = Clock::now();
  Closers closers{[] {}};
  Fixture f;
  std::array<UniqueFd, 2> kept;
  std::vector<UniqueFd> root;
};

}  // namespace

TEST_CASE("refused connections of a user whose thread hangs hold no descriptors") {
  if (::geteuid() != 0) return;  // to be another user
  Crowded c;
  Hang hang(c.closers);
  hang.submit(Closers::Kind::kWork);
  const DescriptorsLeft few(50);
  for (int i = 0; i < 300; ++i) {
    as_hostile([&] {
      const UniqueFd client = connect_to(c.f.options.path);
      REQUIRE(client);
      // Some say something first, as clients do that are not refused.
      if (i % 3 == 0) send_raw(client.get(), bytes_of(header(MessageType::kFree)));
      if (i % 3 == 1) send_raw(client.get(), {});
    });
    c.f.poll(1);
  }
  c.f.poll();
  CHECK(c.closers.waiting() == 1);
  CHECK(c.accepts_root());
}

TEST_CASE("refused connections that carry descriptors have a bound, and are closed in time") {
  if (::geteuid() != 0) return;
  Crowded c;
  LingeringSockets sockets;
  Hang hang(c.closers);
  hang.submit(Closers::Kind::kWork);
  const DescriptorsLeft few(Closers::kConnections + 50);
  std::size_t most = 0;
  for (std::size_t i = 0; i < Closers::kConnections + 100; ++i) {
    UniqueFd slow = sockets.make();
    as_hostile([&] {
      const UniqueFd client = connect_to(c.f.options.path);
      REQUIRE(client);
      const int fd = slow.get();
      // An empty message would look like the end of the connection.
      const MessageHeader one = header(MessageType::kFree);
      const auto bytes = i % 2 == 0 ? bytes_of(one) : std::span<const std::byte>();
      send_raw(client.get(), bytes, std::span(&fd, 1));
      slow.reset();
    });
    const auto begin = Clock::now();
    c.f.poll(1);
    CHECK(Clock::now() - begin < std::chrono::seconds(30));
    most = std::max(most, c.closers.waiting());
  }
  CHECK(most <= Closers::kConnections + 1);
  for (int i = 0; i < 3'000 && c.closers.full(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 100; ++i) c.f.poll(1);
  CHECK(c.accepts_root());
  hang.open();
  CHECK(nothing_waits(c.closers));  // though each may take ten minutes
}

TEST_CASE("while too many connections wait to be closed nobody is accepted, and the log says so") {
  if (::geteuid() != 0) return;
  Crowded c;
  std::vector<std::string> troubles;
  c.f.server->set_callbacks({{}, {}, [&](const std::string& text) { troubles.push_back(text); }});
  Hang hang(c.closers);
  hang.submit(Closers::Kind::kConnection, Closers::kConnections - 1);
  CHECK(c.accepts_root());
  hang.submit(Closers::Kind::kConnection);
  CHECK_FALSE(c.accepts_root());
  c.now += std::chrono::seconds(2);
  c.f.poll();
  REQUIRE(troubles.size() == 1);
  CHECK_THAT(troubles[0], Catch::Contains("256 connections") && Catch::Contains("user 65534"));
  hang.open();
  CHECK(nothing_waits(c.closers));
  c.f.poll();
  CHECK(c.f.server->connections() == c.kept.size() + 2);
}

TEST_CASE("what a user sends is closed elsewhere also if no descriptor is left") {
  Closers closers([] {});
  Fixture f;
  f.start();
  f.server->set_closers(&closers);
  const UniqueFd client = connect_to(f.options.path);
  f.poll();
  LingeringSockets sockets;
  UniqueFd slow = sockets.make();
  const MessageHeader one = header(MessageType::kFree, 1);
  const int fd = slow.get();
  send_raw(client.get(), bytes_of(one), std::span(&fd, 1));
  slow.reset();
  {
    const DescriptorsLeft none(0);
    const auto begin = Clock::now();
    f.poll();
    CHECK(Clock::now() - begin < std::chrono::seconds(60));
  }
  CHECK(f.messages.empty());
  CHECK(f.server->faults() == 1);
  Message reply;
  REQUIRE(*receive_message(client.get(), reply) == SocketStatus::kDone);
  CHECK_THAT(error_of(reply.header, reply.body)->message, Catch::Contains("file descriptors"));
  CHECK(nothing_waits(closers));
}

}  // namespace gradwire::ipc
