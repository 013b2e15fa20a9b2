// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/worker.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ipc/shared_memory.h"

namespace gradwire::ipc {
namespace {

/// Calls finish() until `condition` holds; far longer than anything here takes.
template <class Condition>
bool soon(Worker& worker, Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    worker.finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

/// A worker that is held until release(), so that all jobs are queued before the first is done.
class HeldWorker {
 public:
  HeldWorker() {
    worker_.submit_first(
        [this] {
          while (!go_) std::this_thread::yield();
          return true;
        },
        [] {});
  }
  /// @param pieces  of the job: each appends `name` to the order.
  void submit_in_turn(uid_t user, char name, int pieces) {
    ++submitted_;
    worker_.submit_in_turn(user, job(name, pieces), [this] { ++finished_; });
  }
  void submit_first(char name) {
    ++submitted_;
    worker_.submit_first(job(name, 1), [this] { ++finished_; });
  }
  /// @return the names in the order in which the pieces were done, once all are.
  const std::string& release() {
    go_ = true;
    CHECK(soon(worker_, [this] { return finished_ == submitted_; }));
    return order_;
  }

 private:
  Worker::Work job(char name, int pieces) {
    return [this, name, left = pieces]() mutable {
      order_ += name;
      return --left == 0;
    };
  }

  std::atomic<bool> go_{false};
  std::string order_;  // the worker's until all is finished
  int submitted_ = 0;
  int finished_ = 0;
  ThreadWorker worker_{[] {}};  // ends first
};

}  // namespace

TEST_CASE("work is done elsewhere, and finished here") {
  std::atomic<int> wakes{0};
  ThreadWorker worker([&] { ++wakes; });
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id worked;
  std::thread::id finished;
  worker.submit_in_turn(
      0,
      [&] {
        worked = std::this_thread::get_id();
        return true;
      },
      [&] { finished = std::this_thread::get_id(); });
  CHECK(soon(worker, [&] { return finished != std::thread::id(); }));
  CHECK(worked != here);
  CHECK(finished == here);
  CHECK(wakes == 1);
}

TEST_CASE("long work gives way after each piece, and what is first comes first") {
  HeldWorker worker;
  worker.submit_in_turn(1, 'a', 3);
  worker.submit_in_turn(1, 'b', 2);
  worker.submit_first('c');
  CHECK(worker.release() == "acbaba");  // a's turn was due: the one that held the worker was first
}

TEST_CASE("texts without end let memory have its turn, one piece after each") {
  HeldWorker worker;
  worker.submit_in_turn(1, 'a', 2);
  worker.submit_in_turn(1, 'b', 1);
  for (const char text : {'1', '2', '3', '4', '5'}) worker.submit_first(text);
  CHECK(worker.release() == "a1b2a345");
}

TEST_CASE("users take turns, whatever number of jobs each has, and so do the jobs of one") {
  HeldWorker worker;
  for (const char job : {'a', 'b', 'c'}) worker.submit_in_turn(7, job, 2);
  worker.submit_in_turn(8, 'x', 3);
  worker.submit_in_turn(0, 'r', 1);
  CHECK(worker.release() == "axrbxcxabc");
}

TEST_CASE("a worker that ends waits for the piece in hand and drops the rest") {
  std::atomic<int> pieces{0};
  bool finished = false;
  {
    ThreadWorker worker([] {});
    worker.submit_in_turn(
        0,
        [&] {
          ++pieces;
          return false;
        },
        [&] { finished = true; });
    CHECK(soon(worker, [&] { return pieces > 2; }));
  }
  CHECK_FALSE(finished);
}

TEST_CASE("memory is reserved here, faulted in elsewhere, and finished here") {
  SharedMemoryOptions options;
  options.pages = PageKind::kOrdinaryForTests;
  options.bytes = 100'000;
  auto memory = SharedMemory::reserve(options);
  REQUIRE(memory);
  ThreadWorker worker([] {});
  int pieces = 0;
  bool finished = false;
  worker.submit_in_turn(
      0,
      [&] {
        ++pieces;
        const auto all = memory->populate(40'000);
        return !all || *all;
      },
      [&] { finished = memory->finish().has_value(); });
  REQUIRE(soon(worker, [&] { return finished; }));
  CHECK(pieces == 3);
  CHECK(memory->data()[99'999] == std::byte{0});
  memory->abandon();
  finished = false;
  worker.submit_in_turn(
      0,
      [&] {
        *memory = SharedMemory();
        return true;
      },
      [&] { finished = true; });
  CHECK(soon(worker, [&] { return finished; }));
  CHECK(memory->data() == nullptr);
}

}  // namespace gradwire::ipc
