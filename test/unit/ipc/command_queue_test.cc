// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/command_queue.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace gradwire::ipc {
namespace {

/// A region in ordinary memory, with both ends.
struct Queues {
  Queues() : region(create_queue_region(storage.get(), sizeof(QueueRegion))) {
    daemon = DaemonQueue(region);
    client = ClientQueue(region);
  }
  std::unique_ptr<QueueRegion> storage = std::make_unique<QueueRegion>();
  QueueRegion* region;
  DaemonQueue daemon;
  ClientQueue client;
};

CommandEntry command(std::uint64_t id) {
  CommandEntry entry;
  entry.request_id = id;
  entry.count = id * 3;
  return entry;
}

}  // namespace

TEST_CASE("a region is recognized by size, alignment and magic") {
  Queues q;
  REQUIRE(q.region != nullptr);
  CHECK(open_queue_region(q.region, sizeof(QueueRegion)) == q.region);
  CHECK(open_queue_region(q.region, sizeof(QueueRegion) - 1) == nullptr);
  CHECK(open_queue_region(reinterpret_cast<std::byte*>(q.region) + 8, sizeof(QueueRegion)) ==
        nullptr);
  CHECK(open_queue_region(nullptr, sizeof(QueueRegion)) == nullptr);
  q.region->magic ^= 1;
  CHECK(open_queue_region(q.region, sizeof(QueueRegion)) == nullptr);
}

TEST_CASE("commands come out in order, over many turns of the ring") {
  Queues q;
  CommandEntry out;
  CHECK(q.daemon.pop_command(out) == PopResult::kEmpty);
  std::uint64_t pushed = 0;
  std::uint64_t popped = 0;
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < round % 7 + 1; ++i) REQUIRE(q.client.push_command(command(pushed++)));
    CHECK(q.daemon.has_command());
    while (q.daemon.pop_command(out) == PopResult::kEntry) {
      REQUIRE(out.request_id == popped);
      REQUIRE(out.count == popped * 3);
      ++popped;
    }
    CHECK_FALSE(q.daemon.has_command());
  }
  CHECK(popped == pushed);
}

TEST_CASE("a full command ring refuses and loses nothing") {
  Queues q;
  for (std::uint32_t i = 0; i < kCommandEntries; ++i) REQUIRE(q.client.push_command(command(i)));
  CHECK_FALSE(q.client.push_command(command(999)));
  CommandEntry out;
  REQUIRE(q.daemon.pop_command(out) == PopResult::kEntry);
  CHECK(out.request_id == 0);
  CHECK(q.client.push_command(command(kCommandEntries)));
  for (std::uint32_t i = 1; i <= kCommandEntries; ++i) {
    REQUIRE(q.daemon.pop_command(out) == PopResult::kEntry);
    REQUIRE(out.request_id == i);
  }
  CHECK(q.daemon.pop_command(out) == PopResult::kEmpty);
}

TEST_CASE("a command tail that cannot be is the client's fault, for good") {
  Queues q;
  REQUIRE(q.client.push_command(command(1)));
  CommandEntry out;
  for (const std::uint32_t tail : {kCommandEntries + 1, 0x80000000u, 0xffffffffu}) {
    q.region->command_tail.store(tail);
    CHECK(q.daemon.has_command());
    CHECK(q.daemon.pop_command(out) == PopResult::kPeerFault);
    CHECK(q.daemon.pop_command(out) == PopResult::kPeerFault);
  }
}

TEST_CASE("a command tail that moves back is the client's fault") {
  Queues q;
  CommandEntry out;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(q.client.push_command(command(1)));
    REQUIRE(q.daemon.pop_command(out) == PopResult::kEntry);
  }
  q.region->command_tail.store(1);
  CHECK(q.daemon.pop_command(out) == PopResult::kPeerFault);
}

TEST_CASE("the daemon does not believe its own index in shared memory") {
  Queues q;
  REQUIRE(q.client.push_command(command(7)));
  q.region->command_head.store(100);
  q.region->completion_tail.store(100);
  CommandEntry out;
  REQUIRE(q.daemon.pop_command(out) == PopResult::kEntry);
  CHECK(out.request_id == 7);
  CompletionEntry entry;
  entry.request_id = 7;
  REQUIRE(q.daemon.push_completion(entry));
  CHECK(q.region->completions[0].request_id == 7);
  CHECK(q.region->completion_tail.load() == 1);
}

TEST_CASE("a completion head that cannot be counts as no room") {
  Queues q;
  CompletionEntry entry;
  for (const std::uint32_t head : {1u, 0x7fffffffu, 0u - kCompletionEntries}) {
    q.region->completion_head.store(head);
    CHECK_FALSE(q.daemon.push_completion(entry));
  }
  q.region->completion_head.store(0);
  CHECK(q.daemon.push_completion(entry));
}

TEST_CASE("there is room for kCompletionEntries completions") {
  Queues q;
  CompletionEntry entry;
  for (std::uint32_t i = 0; i < kCompletionEntries; ++i) {
    entry.request_id = i;
    REQUIRE(q.daemon.push_completion(entry));
  }
  CHECK_FALSE(q.daemon.push_completion(entry));
  CompletionEntry out;
  for (std::uint32_t i = 0; i < kCompletionEntries; ++i) {
    REQUIRE(q.client.pop_completion(out) == PopResult::kEntry);
    REQUIRE(out.request_id == i);
  }
  CHECK(q.client.pop_completion(out) == PopResult::kEmpty);
  CHECK(q.daemon.push_completion(entry));
}

TEST_CASE("the client tells a completion tail that cannot be, and ends the text") {
  Queues q;
  CompletionEntry entry;
  std::memset(entry.text, 'x', sizeof(entry.text));
  REQUIRE(q.daemon.push_completion(entry));
  CompletionEntry out;
  REQUIRE(q.client.pop_completion(out) == PopResult::kEntry);
  CHECK(std::strlen(out.text) == CompletionEntry::kTextBytes - 1);
  q.region->completion_tail.store(0x40000000u);
  CHECK(q.client.has_completion());
  CHECK(q.client.pop_completion(out) == PopResult::kPeerFault);
}

TEST_CASE("the client's view of the command head is checked") {
  Queues q;
  q.region->command_head.store(5);  // the daemon never read so many
  CHECK_FALSE(q.client.push_command(command(1)));
}

TEST_CASE("the wish to be woken is taken once") {
  Queues q;
  CHECK_FALSE(q.daemon.take_client_waits());
  q.client.set_client_waits(true);
  CHECK(q.daemon.take_client_waits());
  CHECK_FALSE(q.daemon.take_client_waits());
  q.client.set_client_waits(true);
  q.client.set_client_waits(false);
  CHECK_FALSE(q.daemon.take_client_waits());
  CHECK_FALSE(q.client.daemon_sleeps());
  q.daemon.set_daemon_sleeps(true);
  CHECK(q.client.daemon_sleeps());
  q.daemon.set_daemon_sleeps(false);
  CHECK_FALSE(q.client.daemon_sleeps());
}

TEST_CASE("the client learns where the lane slept last, and when it was woken") {
  Queues q;
  CHECK(q.client.lane_core() == -1);
  q.daemon.set_lane_core(0);
  CHECK(q.client.lane_core() == 0);
  q.daemon.set_lane_core(-1);
  CHECK(q.client.lane_core() == -1);
  CHECK(q.client.woken_at_ns() == 0);
  REQUIRE_FALSE(q.daemon.take_client_waits());
  CHECK(q.client.woken_at_ns() == 0);
  const auto since_boot = [] {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  };
  const std::uint64_t before = since_boot();
  q.client.set_client_waits(true);
  REQUIRE(q.daemon.take_client_waits());
  CHECK(q.client.woken_at_ns() >= before);
  CHECK(q.client.woken_at_ns() <= since_boot());
}

TEST_CASE("two threads: every command once and whole, every completion back") {
  Queues q;
  constexpr std::uint64_t kCount = 20'000;
  std::thread daemon([&] {
    CommandEntry in;
    for (std::uint64_t seen = 0; seen < kCount;) {
      if (q.daemon.pop_command(in) != PopResult::kEntry) {
        std::this_thread::yield();
        continue;
      }
      CompletionEntry entry;
      entry.request_id = in.request_id;
      entry.op_seq = in.count;
      while (!q.daemon.push_completion(entry)) std::this_thread::yield();
      ++seen;
    }
  });
  std::uint64_t sent = 0;
  std::uint64_t wrong = 0;
  CompletionEntry out;
  for (std::uint64_t done = 0; done < kCount;) {
    if (sent < kCount && q.client.push_command(command(sent))) ++sent;
    if (q.client.pop_completion(out) == PopResult::kEntry) {
      if (out.request_id != done || out.op_seq != done * 3) ++wrong;
      ++done;
    } else {
      std::this_thread::yield();
    }
  }
  daemon.join();
  CHECK(wrong == 0);
}

}  // namespace gradwire::ipc
