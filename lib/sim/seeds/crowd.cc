// SPDX-License-Identifier: BSD-3-Clause
// Profile crowd: ports that take a few packets in a millisecond, loss of a tenth to a fifth, and
// all that goes between ranks at once. Who waits for one kind of packet and finds the port full of
// another must take nobody for dead, and nobody may starve.
#include <algorithm>

#include "sim/seeds/sizes.h"
#include "sim/units.h"

namespace gradwire::sim {

void crowd(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 10);
  collective::ShardConfig& shard = s.group.shard;
  shard.timeouts.silence_ns = 200 * kMs;
  shard.timeouts.ping_interval_ns = shard.timeouts.silence_ns / 40;
  shard.sender.max_pto_ns = std::min<TimeNs>(shard.sender.max_pto_ns, 20 * kMs);
  shard.direct.op_bytes = random.pick<std::uint64_t>({1, 4, 16, 64}) << 10;
  shard.direct.two_step_bytes = random.pick<std::uint64_t>({0, 8, 64}) << 10;
  shard.direct.gathered_bytes = random.pick<std::uint64_t>({0, 4, 16}) << 10;
  s.world.link.loss = random.pick({0.1, 0.15, 0.2});
  s.world.link.burst_start = 0;
  const TimeNs holds_ns = random.pick<TimeNs>({2 * kMs, 5 * kMs, 20 * kMs, 20 * kMs});
  const double behind = random.pick({0.0, 0.2, 0.8});
  // Each other rank can be answered 20 times within the silence limit, 30 times if more is lost.
  const std::uint32_t least = (s.world.link.loss > 0.1 ? 3 : 2) * (s.nranks - 1u);
  const std::uint32_t descriptors = std::max(random.pick({16u, 24u, 32u, 64u}), least);
  const std::uint32_t rx_descriptors = random.pick({8u, 8u, 64u});
  const std::uint64_t only = random.chance(0.3) ? random.below(s.nranks) : s.nranks;
  for (std::uint16_t rank = 0; rank < s.nranks; ++rank) {
    HostProfile& host = s.hosts[rank];
    host.slow_backend = 0;
    host.tx_descriptors = std::min(descriptors * s.group.lanes, 512u);
    host.rx_descriptors = std::min(rx_descriptors * s.group.lanes, 128u);
    // All of them are slow, or one.
    if (only != s.nranks && rank != only) continue;
    host.driver_holds_ns = holds_ns;
    host.port_behind = behind;
  }
  fit_pools(s);
}

}  // namespace gradwire::sim
