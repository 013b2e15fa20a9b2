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

using Order = Worker::Order;

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

}  // namespace

TEST_CASE("work is done elsewhere, and finished here") {
  std::atomic<int> wakes{0};
  ThreadWorker worker([&] { ++wakes; });
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id worked;
  std::thread::id finished;
  worker.submit(
      Order::kInTurn,
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
  ThreadWorker worker([] {});
  std::atomic<bool> go{false};
  std::string order;  // the worker's until all is finished
  int finished = 0;
  const auto submit = [&](Order when, char name, int pieces) {
    worker.submit(
        when,
        [&order, name, left = pieces]() mutable {
          order += name;
          return --left == 0;
        },
        [&] { ++finished; });
  };
  // Holds the worker until the rest is queued.
  worker.submit(
      Order::kFirst,
      [&] {
        while (!go) std::this_thread::yield();
        return true;
      },
      [] {});
  submit(Order::kInTurn, 'a', 3);
  submit(Order::kInTurn, 'b', 2);
  submit(Order::kFirst, 'c', 1);
  go = true;
  CHECK(soon(worker, [&] { return finished == 3; }));
  CHECK(order == "acbaba");  // a's turn was due: the one that held the worker was first
}

TEST_CASE("texts without end let memory have its turn, one piece after each") {
  ThreadWorker worker([] {});
  std::atomic<bool> go{false};
  std::string order;  // the worker's until all is finished
  int finished = 0;
  const auto submit = [&](Order when, char name, int pieces) {
    worker.submit(
        when,
        [&order, name, left = pieces]() mutable {
          order += name;
          return --left == 0;
        },
        [&] { ++finished; });
  };
  worker.submit(
      Order::kFirst,
      [&] {
        while (!go) std::this_thread::yield();
        return true;
      },
      [] {});
  submit(Order::kInTurn, 'a', 2);
  submit(Order::kInTurn, 'b', 1);
  for (const char text : {'1', '2', '3', '4', '5'}) submit(Order::kFirst, text, 1);
  go = true;
  CHECK(soon(worker, [&] { return finished == 7; }));
  CHECK(order == "a1b2a345");
}

TEST_CASE("a worker that ends waits for the piece in hand and drops the rest") {
  std::atomic<int> pieces{0};
  bool finished = false;
  {
    ThreadWorker worker([] {});
    worker.submit(
        Order::kInTurn,
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
  worker.submit(
      Order::kInTurn,
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
  worker.submit(
      Order::kInTurn,
      [&] {
        *memory = SharedMemory();
        return true;
      },
      [&] { finished = true; });
  CHECK(soon(worker, [&] { return finished; }));
  CHECK(memory->data() == nullptr);
}

}  // namespace gradwire::ipc
