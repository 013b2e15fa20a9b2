// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one lane counts, with the functions of base/counter.h: the counters of base/counts.h, and
/// what is counted by reason, by collective or by duration. The lane owns it; nothing allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/collective_call.h"
#include "base/counter.h"
#include "base/counts.h"
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

struct alignas(64) LaneCounters : LaneCounts {
  command::CommandCounters command;  ///< of the command lane alone
  // Whole ops, which lane 0 alone counts.
  std::uint64_t op_latency_ns = 0;
  std::array<std::uint64_t, kLatencyBuckets> op_latency{};
  std::array<std::uint64_t, wire::kDropCount> drops{};
};

}  // namespace gradwire::lane
