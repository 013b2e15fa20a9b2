// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How fast a ring is: one large all-reduce of each group on a network with a rate. Packets are
/// longer on the wire than in memory. It measures time, goodput over time, and
/// queues, and holds the results against the sums. One thread; it allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/window.h"
#include "sim/world/world.h"
#include "transport/congestion.h"

namespace gradwire::sim {

struct ExperimentOptions {
  std::uint16_t ranks = 16;
  std::uint16_t groups = 1;           ///< on the same hosts, in the same order
  std::uint64_t bytes = 64'000'000;   ///< of each group's op
  std::uint32_t payload_bytes = 64;   ///< of a packet, in memory
  std::uint32_t payload_scale = 139;  ///< 139 x 64 = 8,896: the payload of an MTU of 9,000
  std::uint64_t rate_bps = 100'000'000'000;
  TimeNs delay_ns = 1'000;
  std::uint64_t queue_bytes = 1'000'000;
  /// 30 KB for each 10 Gbit/s, as is usual for dctcp: above a poll's burst of 32 frames.
  std::uint64_t mark_bytes = 300'000;
  double loss = 0;
  transport::CongestionKind congestion = transport::CongestionKind::kStatic;
  TimeNs swift_target_ns = 30'000;
  std::uint32_t window_packets = window_packets_for(0);
  std::uint64_t pace_bps = 0;  ///< of each link; 0 = not paced
  /// Incast: every `cross_interval_ns` a port gets `cross_bytes` at once from elsewhere.
  std::uint64_t cross_bytes = 0;
  TimeNs cross_interval_ns = 0;
  std::vector<TimeNs> group_starts_ns;  ///< after the first op is posted; missing = 0
  TimeNs rate_changes_at_ns = 0;        ///< 0 = never
  std::uint64_t later_rate_bps = 0;
  TimeNs sample_ns = 100'000;
  TimeNs limit_ns = 60'000'000'000;
  std::uint64_t seed = 1;
};

struct ExperimentResult {
  std::string failure;  ///< empty: every rank of every group has the sums
  TimeNs time_ns = 0;   ///< from the first post to the last rank's end
  /// What a ring without loss or other traffic takes at best: each rank sends 2(n-1)/n of the op's
  /// bytes on the wire, and the last chunk has 2(n-1) hops of a packet and a link to go.
  TimeNs ideal_ns = 0;
  double goodput_bps = 0;  ///< payload that each rank sends and need not send again, over the time
  std::uint64_t most_queued_bytes = 0;
  std::uint64_t lost = 0;      ///< by the link
  std::uint64_t overflow = 0;  ///< by full queues
  std::uint64_t marked = 0;
  std::uint64_t frames = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t spills = 0;
  /// [group][sample] payload bits per second that rank 0 accepted, in each sample_ns.
  std::vector<std::vector<double>> accepted_bps;
  /// [sample] the deepest queue of any port.
  std::vector<std::uint64_t> queued_bytes;
};

[[nodiscard]] ExperimentResult run_experiment(const ExperimentOptions& options);

}  // namespace gradwire::sim
