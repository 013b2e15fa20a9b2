// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A neighbor that is known and in use, and what it and others are asked.
#pragma once

#include <catch2/catch.hpp>
#include <vector>

#include "neighbors_support.h"

namespace gradwire::port::test {

inline const auto kOldMac = mac("02:00:00:00:00:02");
inline const auto kNewMac = mac("02:00:00:00:00:99");

inline NeighborsConfig quick() {
  auto out = config();
  out.reachable_ns = 400 * kMs;
  out.delay_ns = out.probe_ns = 100 * kMs;
  out.unicast_probes = 3;
  out.rest_ns = 1'000 * kMs;
  return out;
}

/// 10.0.0.2, known by kReplyFrame, and a group uses it.
inline Neighbors with_used(TimeNs now = 0) {
  Neighbors out(quick());
  REQUIRE(out.resolve(address("10.0.0.2"), now));
  out.on_frame(kReplyFrame, now);
  REQUIRE(out.hold(address("10.0.0.2")));
  while (!taken(out).empty()) {
  }
  return out;
}

/// The same answer by another host.
inline std::vector<std::byte> reply_by(const wire::MacAddress& by) {
  auto frame = kReplyFrame;
  for (std::size_t i = 0; i < 6; ++i) frame[6 + i] = frame[22 + i] = std::byte{by[i]};
  return frame;
}

enum class To { kNobody, kOld, kAll, kElse };
/// Whom the next frame asks.
inline To asked(Neighbors& neighbors) {
  const auto frame = taken(neighbors);
  if (frame.empty()) return To::kNobody;
  if (frame[0] == std::byte{0xff}) return To::kAll;
  return frame[5] == std::byte{2} ? To::kOld : To::kElse;
}

inline bool is_event(Neighbors& neighbors, NeighborEvent::Type type) {
  NeighborEvent event;
  return neighbors.take_event(event) && event.type == type;
}

}  // namespace gradwire::port::test
