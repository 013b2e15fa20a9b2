// SPDX-License-Identifier: BSD-3-Clause
#include "support/ring_harness.h"

namespace gradwire::test {
namespace {

constexpr TimeNs kForever = 1'000'000'000'000'000;

sim::WorldOptions world_options(const RingOptions& options) {
  sim::WorldOptions world;
  world.hosts = options.nranks + options.folding_ranks;
  world.rails = options.rails;
  world.spines = options.spines;
  world.source_ports = options.source_ports;
  world.seed = options.seed;
  world.link.delay_ns = options.delay_ns;
  world.link.jitter_ns = options.jitter_ns;
  world.link.loss = options.loss;
  world.link.duplication = options.duplication;
  world.link.corruption = options.corruption;
  world.host.round_ns = options.step_ns;
  world.host.driver_holds_ns = options.driver_holds_ns;
  world.host.tx_descriptors = options.tx_descriptors;
  world.host.slow_backend = options.slow_backend;
  world.packet_mbufs = options.pool_mbufs;
  return world;
}

}  // namespace

RingHarness::RingHarness(const RingOptions& options)
    : all_ranks_(options.nranks + options.folding_ranks),
      world_(world_options(options), trace_, *this) {
  sim::GroupOptions group;
  for (std::uint16_t rank = 0; rank < all_ranks_; ++rank) group.hosts.push_back(rank);
  group.folding_ranks = options.folding_ranks;
  group.members = options.members;
  group.ranks = options.ranks;
  group.owners = options.owners;
  group.rates = options.rates;
  group.lanes = options.lanes;
  group.mode = options.mode;
  group.shard = options.shard;
  group.shard.payload_bytes = options.payload_bytes;
  group_ = world_.add_group(group);
}

bool RingHarness::form(TimeNs limit) {
  for (std::uint16_t rank = 0; rank < all_ranks_; ++rank) world_.start(group_, rank);
  return run_until(
      [&] {
        for (std::uint16_t rank = 0; rank < all_ranks_; ++rank) {
          if (!formed(rank)) return false;
        }
        return true;
      },
      limit);
}

void RingHarness::freeze(std::uint16_t rank, bool frozen) {
  if (frozen) {
    world_.pause(rank, now() + kForever);
  } else {
    world_.resume(rank);
  }
}

}  // namespace gradwire::test
