// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one lane counts, with the functions of base/counter.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/collective_call.h"
#include "base/counter.h"
#include "command/counters.h"
#include "wire/packet.h"

namespace gradwire::lane {

/// Latencies of ops, from posted to done, in powers of two: bucket i holds those of at most
/// latency_bound_ns(i), the last one all that are longer.
inline constexpr std::size_t kLatencyBuckets = 24;
[[nodiscard]] constexpr std::uint64_t latency_bound_ns(std::size_t bucket) noexcept {
  return std::uint64_t{4096} << bucket;
}
[[nodiscard]] constexpr std::size_t latency_bucket(std::uint64_t ns) noexcept {
  std::size_t bucket = 0;
  while (bucket + 1 < kLatencyBuckets && ns > latency_bound_ns(bucket)) ++bucket;
  return bucket;
}

struct alignas(64) LaneCounters {
  std::uint64_t rounds = 0;
  std::uint64_t busy_rounds = 0;  ///< in which there was something to do
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_bytes = 0;  ///< of frames, from the Ethernet header on
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;
  /// Frames that had to wait for a later round because the port was full.
  std::uint64_t tx_refused = 0;
  std::uint64_t tx_dropped = 0;  ///< frames freed because the port had taken none for long
  std::uint64_t sleeps = 0;
  std::uint64_t sleep_ns = 0;
  std::uint64_t echo_replies = 0;
  /// Pings not answered because of the limit (port/reply_limit.h).
  std::uint64_t replies_withheld = 0;
  std::uint64_t neighbor_frames = 0;  ///< ARP or discovery, passed to the control thread
  /// The same, dropped because of its rate, or because there was no room.
  std::uint64_t neighbor_drops = 0;
  command::CommandCounters command;  ///< of the command lane alone
  std::uint64_t ops_done = 0;        ///< shares of ops finished on this lane
  std::uint64_t aborts = 0;          ///< groups that aborted here
  std::uint64_t stuck = 0;           ///< of `aborts`, those with AbortCode::kStuck
  std::uint64_t busy_ns = 0;         ///< in rounds that did something
  std::uint64_t idle_ns = 0;         ///< in the other rounds, and spinning or sleeping after them
  // Lane 0 alone counts these, of whole ops.
  std::uint64_t op_bytes = 0;  ///< count x element size of ops that are done
  /// The same x 2(n-1)/n of an all-reduce, (n-1)/n of an all-gather and a reduce-scatter, else x 1:
  /// their rate is nccl-tests' busbw.
  std::uint64_t bus_bytes = 0;
  std::uint64_t op_latency_ns = 0;
  std::array<std::uint64_t, kLatencyBuckets> op_latency{};
  std::array<std::uint64_t, wire::kDropCount> drops{};
};

}  // namespace gradwire::lane
