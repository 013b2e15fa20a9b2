// SPDX-License-Identifier: BSD-3-Clause
#include "lane/trace_ring.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "lane/counters.h"

namespace gradwire::lane {

TEST_CASE("a trace keeps the last events, oldest first") {
  const auto ring = std::make_unique<TraceRing>();
  CHECK(ring->read().empty());
  TraceEvent event;
  for (std::uint64_t i = 1; i <= TraceRing::kEvents + 10; ++i) {
    event.at = static_cast<TimeNs>(i);
    event.op_seq = i;
    event.type = TraceType::kDone;
    event.lane = 3;
    ring->push(event);
  }
  const auto events = ring->read();
  // The place of the oldest may be written to at any moment, so it may be left out.
  REQUIRE(events.size() >= TraceRing::kEvents - 1);
  CHECK(events.back().op_seq == TraceRing::kEvents + 10);
  CHECK(events.back().lane == 3);
  CHECK(events.back().type == TraceType::kDone);
  for (std::size_t i = 1; i < events.size(); ++i) {
    REQUIRE(events[i].op_seq == events[i - 1].op_seq + 1);
  }
}

TEST_CASE("a reader never sees half an event") {
  const auto ring = std::make_unique<TraceRing>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    TraceEvent event;
    for (std::uint64_t i = 1; !stop.load(); ++i) {
      event.at = static_cast<TimeNs>(i);
      event.group_handle = event.op_seq = event.value = i;
      ring->push(event);
    }
  });
  std::size_t seen = 0;
  for (int round = 0; round < 200 || seen == 0; ++round) {
    for (const TraceEvent& event : ring->read()) {
      REQUIRE(event.group_handle == event.op_seq);
      REQUIRE(event.value == event.op_seq);
      REQUIRE(static_cast<std::uint64_t>(event.at) == event.op_seq);
      ++seen;
    }
  }
  stop = true;
  writer.join();
  CHECK(seen > 0);
}

TEST_CASE("a latency falls into the first bucket that holds it") {
  CHECK(latency_bucket(0) == 0);
  CHECK(latency_bucket(latency_bound_ns(0)) == 0);
  CHECK(latency_bucket(latency_bound_ns(0) + 1) == 1);
  CHECK(latency_bucket(latency_bound_ns(7)) == 7);
  CHECK(latency_bucket(UINT64_MAX) == kLatencyBuckets - 1);
}

}  // namespace gradwire::lane
