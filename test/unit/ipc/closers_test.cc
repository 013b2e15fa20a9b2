// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/closers.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lingering_socket.h"
#include "raw_socket.h"

namespace gradwire::ipc {
namespace {

constexpr uid_t kOne = 1000;
constexpr uid_t kOther = 1001;

/// Keeps whoever passes it until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

template <class Condition>
bool eventually(Closers& closers, Condition&& condition) {
  for (int i = 0; i < 6'000; ++i) {
    closers.finish();
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("works of a user are done in order, and told of in the caller's thread") {
  std::atomic<int> woken = 0;
  Closers closers([&] { ++woken; });
  std::vector<int> worked;
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) {
    closers.submit(
        kOne, [&worked, i] { worked.push_back(i); }, [&done, i] { done.push_back(i); });
  }
  REQUIRE(eventually(closers, [&] { return done.size() == 100; }));
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(worked == done);
  CHECK(woken > 0);
  CHECK(closers.waiting() == 0);
}

TEST_CASE("a user whose work hangs is behind, and nobody else") {
  const auto gate = std::make_shared<Gate>();
  Closers closers([] {});
  for (std::size_t i = 0; i <= Closers::kWaiting; ++i) {
    closers.submit(kOne, [gate] { gate->pass(); }, {});
  }
  CHECK(closers.behind(kOne));
  CHECK_FALSE(closers.behind(kOther));
  bool done = false;
  closers.submit(
      kOther, [] {}, [&done] { done = true; });
  REQUIRE(eventually(closers, [&] { return done; }));
  CHECK(closers.behind(kOne));
  gate->open();
  REQUIRE(eventually(closers, [&] { return !closers.behind(kOne); }));
}

TEST_CASE("connections that wait have a bound of all users, and its end wakes the caller") {
  std::atomic<int> woken = 0;
  const auto gate = std::make_shared<Gate>();
  const auto other_gate = std::make_shared<Gate>();
  Closers closers([&] { ++woken; });
  const auto hang = [&](uid_t uid, const std::shared_ptr<Gate>& at) {
    closers.submit(
        uid, [at] { at->pass(); }, {}, Closers::Kind::kConnection);
  };
  for (std::size_t i = 0; i < Closers::kConnections - 1; ++i) hang(kOne, gate);
  CHECK_FALSE(closers.full());
  hang(kOther, other_gate);
  CHECK(closers.full());
  CHECK(closers.slowest() == kOne);
  CHECK_FALSE(closers.behind(kOne));  // its works have a thread of their own
  bool done = false;
  closers.submit(
      kOne, [] {}, [&done] { done = true; });
  REQUIRE(eventually(closers, [&] { return done; }));
  const int before = woken;
  other_gate->open();
  REQUIRE(eventually(closers, [&] { return !closers.full() && woken == before + 1; }));
  gate->open();
  REQUIRE(eventually(closers, [&] { return closers.waiting() == 0; }));
}

TEST_CASE("a lingering socket does not keep a connection's thread") {
  const test::LingeringSockets sockets;
  Closers closers([] {});
  for (int i = 0; i < 20; ++i) {
    auto [ours, theirs] = test::socket_pair();
    UniqueFd slow = sockets.make();
    const int fd = slow.get();
    test::send_raw(theirs.get(), bytes_of(test::header(MessageType::kFree)), std::span(&fd, 1));
    slow.reset();
    closers.close(kOne, std::move(ours), Closers::Kind::kConnection);
  }
  REQUIRE(eventually(closers, [&] { return closers.waiting() == 0; }));
}

TEST_CASE("a descriptor is closed") {
  Closers closers([] {});
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
  const int number = fd.get();
  closers.close(kOne, std::move(fd));
  REQUIRE(eventually(closers, [&] { return ::fcntl(number, F_GETFD) < 0; }));
}

TEST_CASE("nobody waits for a work that hangs when the daemon ends") {
  const auto gate = std::make_shared<Gate>();
  const auto ran = std::make_shared<std::atomic<int>>(0);
  {
    Closers closers([] { FAIL("woken after the end"); });
    closers.submit(
        kOne,
        [gate, ran] {
          gate->pass();
          ++*ran;
        },
        [] { FAIL("told after the end"); });
    closers.submit(kOne, [ran] { *ran += 100; }, {});
  }
  gate->open();
  for (int i = 0; i < 6'000 && ran.use_count() > 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(*ran <= 1);
}

}  // namespace gradwire::ipc
