// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How often a rank that is no neighbour on the ring is asked, and when it counts as silent: direct
/// ops and transfers judge by the same numbers (doc/protocol.md, Direct ops, Silence). Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"
#include "collective/shard_config.h"
#include "transport/rtt.h"

namespace gradwire::collective {

/// A time-out is doubled at most so often.
inline constexpr std::uint32_t kShiftMax = 20;
/// In a ping interval: a late rank is awaited by all others, and a rank may await all others.
inline constexpr std::uint32_t kAsksMax = 64;
/// So many must go unanswered before a rank counts as silent, or be answered in vain. If a fifth of
/// them and a fifth of the answers are lost, all are lost once in 10^7 times.
inline constexpr std::uint32_t kUnansweredMin = 16;
/// So often a rank is asked in a silence limit if it matters: kUnansweredMin fit into half of it,
/// whatever its round-trip time is.
inline constexpr TimeNs kAsksInLimit = 40;

/// Until then it is enough to ask now and then.
inline constexpr TimeNs kAsksFirst = 5;

/// For how long nothing may come from a rank. One that was never heard may not have been started
/// yet, until the formation limit is over here: its neighbours on the ring judge that.
/// @param waits_since  in the time in which this rank polled, from its start.
[[nodiscard]] constexpr TimeNs silence_limit(const ShardTimeouts& timeouts, bool ever_heard,
                                             TimeNs waits_since) noexcept {
  const TimeNs forms = ever_heard ? 0 : std::max<TimeNs>(timeouts.formation_ns - waits_since, 0);
  return timeouts.silence_ns + forms;
}

/// For how long nothing new may be heard of a packet until it is repeated: RFC 9002's probe
/// timeout, doubled with each repetition.
/// @param most  it is never longer, whatever round-trip time was measured.
[[nodiscard]] inline TimeNs repeated_after(const transport::RttEstimator& rtt,
                                           const transport::SenderConfig& sender,
                                           std::uint32_t tries, TimeNs most) noexcept {
  const TimeNs once = rtt.smoothed_ns() + std::max(4 * rtt.variance_ns(), sender.granularity_ns) +
                      sender.max_ack_delay_ns;
  const std::uint32_t shift = std::min(tries, kShiftMax);
  return once > most >> shift ? most : once << shift;
}

}  // namespace gradwire::collective
