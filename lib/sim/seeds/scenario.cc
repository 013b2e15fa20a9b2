// SPDX-License-Identifier: BSD-3-Clause
// How a scenario is drawn. Sizes are small: what matters is which packet is lost when, not how much
// is summed, and so hundreds of runs fit a second.
//
// Faults are of two kinds. Those shorter than a third of the silence limit must abort nothing: with
// two thirds of it left, pings that come ten times in it, and loss up to 30 %, a neighbor is heard
// again by all odds that a hundred thousand runs can show. Those of 1.3 times the limit and more
// end the epoch, if they meet a group that is still at work. Between them lies what may or may not.
#include "sim/seeds/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/seeds/rail_faults.h"
#include "sim/seeds/sizes.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

constexpr std::array kProfiles = {
    Profile{"mixed", "everything at once, by the seed"},
    Profile{"all-reduce", "as mixed, but every op is an all-reduce"},
    Profile{"clean", "nothing goes wrong"},
    Profile{"loss", "loss to 30 %, bursts, duplicates, reordering, corruption; nothing else"},
    Profile{"pause", "hosts that stand still, shorter and longer than the silence limit"},
    Profile{"cut", "one-way links, hosts cut off, partitions, clogged links"},
    Profile{"crash", "daemons that die and start again under a new epoch"},
    Profile{"dry", "mempools that run dry, drivers that hold sent buffers, ports that are behind"},
    Profile{"late", "clients that post late, abort or die"},
    Profile{"one-sided", "cut off just when some ranks are through with an op and others are not"},
    Profile{"crowd", "slow ports that the ring, direct ops and transfers share, loss to 20 %"},
    Profile{"calls", "ranks that call differently: each hears of it by name, or has its values"},
    Profile{"lanes", "lanes of a host that stand still while the others go on"},
    Profile{"users",
            "beside a group that ends or calls differently another user's, which must not"},
    Profile{"rails", "several paths between ranks that fail in turn: no op may"},
    Profile{"fabric", "paths of equal cost that fail unseen, chosen by source ports: no op may"},
    Profile{"tiles", "as mixed, but by tiles and not round the ring, some sums in formats"},
    Profile{"pairs", "two ranks with transfers alone; faults as in mixed, rails or fabric"},
    Profile{"death", "one daemon dies at work: how long until every survivor has its error"},
};

bool is(const Scenario& s, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return s.kind() == name; });
}

void draw_network(Scenario& s, Random& random) {
  LinkProfile& link = s.world.link;
  link.delay_ns = random.pick<TimeNs>({500, 5 * kUs, 50 * kUs});
  s.world.port.rate_bps = random.pick<std::uint64_t>({0, 1'000'000'000, 25'000'000'000});
  if (s.world.port.rate_bps != 0) {
    s.world.port.queue_bytes = random.pick<std::uint64_t>({0, 20'000, 200'000});
    s.world.port.mark_bytes = random.pick<std::uint64_t>({0, 5'000});
  }
  if (is(s, {"clean", "death"})) return;
  if (is(s, {"rails", "fabric"})) {
    link.loss = random.pick({0.0, 0.0, 0.001, 0.01});
    link.reorder = random.pick({0.0, 0.01});
    link.reorder_ns = 500 * kUs;
    // Slow enough that rails fail in the middle of ops.
    s.world.port.rate_bps = random.pick<std::uint64_t>({0, 20'000'000, 100'000'000});
    // A path of which an answer takes longer than a quarter of the silence limit is silent (lanes
    // leave it then), so a full port delays a frame by an eighth of it at most, each way. One whose
    // queue has no bound holds seconds once more comes than it sends, and then no path lives.
    const auto eighth_us = static_cast<std::uint64_t>(s.group.shard.timeouts.silence_ns / 8 / kUs);
    s.world.port.queue_bytes = s.world.port.rate_bps / 8 * eighth_us / 1'000'000;
    return;
  }
  const bool heavy = is(s, {"loss"}) || random.chance(0.4);
  if (heavy || random.chance(0.5)) {
    link.loss = random.pick({0.0, 0.001, 0.01, 0.05, 0.1, heavy ? 0.3 : 0.1});
    link.burst_start = random.pick({0.0, 0.0, 0.0005, 0.002});
    link.burst_ns = random.pick<TimeNs>({20 * kUs, 200 * kUs, 2 * kMs});
    link.duplication = random.pick({0.0, 0.01, 0.1, heavy ? 0.5 : 0.1});
    link.corruption = random.pick({0.0, 0.0, 0.01, 0.05});
    link.reorder = random.pick({0.0, 0.01, 0.2});
    link.reorder_ns = random.pick<TimeNs>({20 * kUs, 500 * kUs, 3 * kMs});
    link.jitter_ns = random.pick<TimeNs>({0, 0, 20 * kUs, 200 * kUs});
  }
}

void draw_hosts(Scenario& s, Random& random) {
  HostProfile common;
  common.round_ns = random.pick<TimeNs>({1 * kUs, 5 * kUs, 20 * kUs});
  common.idle_ns = random.pick<TimeNs>({1 * kMs, 5 * kMs});
  const bool dry = is(s, {"dry"}) || (is(s, {"mixed"}) && random.chance(0.3));
  if (dry) {
    common.driver_holds_ns = random.pick<TimeNs>({0, 100 * kUs, 2 * kMs, 20 * kMs});
    // Each lane has rings of its own, but they are as long as memory allows.
    common.tx_descriptors = std::min(random.pick({32u, 128u, 512u}) * s.group.lanes, 512u);
    common.rx_descriptors = std::min(random.pick({8u, 64u}) * s.group.lanes, 128u);
    common.port_behind = random.pick({0.0, 0.2, 0.8});
  }
  s.hosts.assign(s.nranks, common);
  if (!is(s, {"clean", "death"}) && random.chance(0.2)) {
    // All of them, as GPUs are, or one that is slower than its neighbors.
    const double slow = random.pick({0.02, 0.3});
    const std::uint64_t only = random.below(s.nranks);
    const bool all = is(s, {"mixed", "dry"}) && random.chance(0.5);
    for (std::uint64_t i = 0; i < s.nranks; ++i) {
      if (all || i == only) s.hosts[i].slow_backend = slow;
    }
    collective::ShardConfig& shard = s.group.shard;
    shard.batch_entries = random.pick({1u, 4u, 32u});
    if (random.chance(0.5)) {
      shard.pending_entries = std::max(pending_entries_wanted(shard), shard.batch_entries);
      fit_pools(s);
    }
  }
  if (random.chance(0.15)) {
    // Daemons of other configurations.
    for (HostProfile& host : s.hosts) {
      host.window_packets = random.pick({0u, 2u, 4u, 16u, 64u});
      host.transit_packets = random.pick({0u, 1u, 4u, 16u, 64u});
      host.max_active_ops = random.pick({0u, 1u, 2u, 8u, 64u});
    }
  }
  if (random.chance(0.5)) {
    for (HostProfile& host : s.hosts) {
      host.clock_offset_ns = random.between(-900 * kMs, 1'000'000 * kMs);
      host.clock_ppm = random.between(-500, 500);
    }
  }
  s.world.host = s.hosts[0];
}

void draw_shards(Scenario& s, Random& random) {
  collective::ShardConfig& shard = s.group.shard;
  draw_sizes(s, random);
  s.group.fan_out_ns = random.pick<TimeNs>({10 * kUs, 1 * kMs});
  shard.received_mbufs_are_exclusive = random.chance(0.5);
  const bool short_limits = random.chance(0.7) || is(s, {"rails", "fabric"});
  shard.timeouts.silence_ns = short_limits ? 200 * kMs : 2'000 * kMs;
  shard.timeouts.ping_interval_ns = shard.timeouts.silence_ns / 40;
  shard.timeouts.hello_interval_ns = 5 * kMs;
  shard.timeouts.formation_ns = 3'000 * kMs;
  shard.timeouts.leave_ns = 2'000 * kMs;
  if (random.chance(0.3)) {
    shard.sender.granularity_ns = 100 * kUs;
    shard.sender.max_ack_delay_ns = 300 * kUs;
    shard.sender.initial_rtt_ns = 1 * kMs;
    shard.sender.max_pto_ns = 20 * kMs;
  }
  if (random.chance(0.2))
    shard.sender.rate_bps = random.pick<std::uint64_t>({50'000'000, 1'000'000'000});
  if (shard.timeouts.silence_ns == 200 * kMs) {
    // Ten questions within the silence limit, as the longer limit has.
    shard.sender.max_pto_ns = std::min<TimeNs>(shard.sender.max_pto_ns, 20 * kMs);
  }
  s.group.hosts.clear();
  for (HostId host = 0; host < s.nranks; ++host) s.group.hosts.push_back(host);
}

/// Tiles are small, so that small ops have many; and places for them few.
void draw_tiles(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 15);
  collective::ShardConfig& shard = s.group.shard;
  shard.tiles.used = true;
  draw_payload_for_formats(s);
  shard.tiles.tile_bytes = 16u * random.pick({1u, 2u, 8u, 64u}) * shard.payload_bytes;
  shard.tiles.scratch_bytes = random.pick<std::uint64_t>({4, 64, 8192}) << 10;
  shard.batch_entries = 1;
  for (HostProfile& host : s.hosts) host.slow_backend = 0;
  s.world.host.slow_backend = 0;
  fit_pools(s);
}

/// Up to what size ops are direct. Drawn apart, so that all else of a seed stays as it is without.
void draw_direct(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 6);
  s.group.shard.direct.op_bytes = random.pick<std::uint64_t>({0, 4, 16, 64}) << 10;
  s.group.shard.direct.two_step_bytes = random.pick<std::uint64_t>({0, 8, 64, 512}) << 10;
  // Drawn apart again: gathered ops are made for many ranks, and looked for bugs in at few.
  Random more(s.seed * 0x9e3779b97f4a7c15u + 9);
  s.group.shard.direct.gathered_bytes = more.pick<std::uint64_t>({0, 4, 16, 64}) << 10;
  s.group.shard.direct.gathered_ranks = more.pick<std::uint16_t>({2, 2, 4, 8});
  if (s.group.shard.direct.op_bytes == 0) {
    s.group.shard.direct.two_step_bytes = s.group.shard.direct.gathered_bytes = 0;
  }
  fit_pools(s);
}

/// How many ops a rank posts ahead: one may wait for each while another has posted all.
void draw_depths(Scenario& s, Random& random) {
  const auto all = static_cast<std::uint32_t>(s.ops.size());
  const double one_waits = random.unit();
  s.ops_ahead.assign(s.nranks, random.pick({1u, 2u, 8u, all}));
  if (one_waits < 0.3) {
    s.ops_ahead.assign(s.nranks, all);
    s.ops_ahead[random.below(s.nranks)] = random.pick({1u, 1u, 2u});
  } else if (one_waits < 0.8) {
    for (std::uint32_t& ahead : s.ops_ahead) ahead = random.pick({1u, 2u, 8u, all});
  }
}

void draw_ops(Scenario& s, Random& random) {
  draw_plans(s, random);
  draw_depths(s, random);
  const bool late = is(s, {"late", "mixed"}) && random.chance(is(s, {"late"}) ? 1 : 0.4);
  const std::uint64_t straggler = random.chance(0.3) ? random.below(s.nranks) : s.nranks;
  const double now_and_then = std::min(1.0, 7.0 / static_cast<double>(s.ops.size()));
  for (PlannedOp& op : s.ops) {
    for (std::uint16_t rank = 0; rank < s.nranks; ++rank) {
      TimeNs delay = 0;
      // Of a series few are late, so that it ends.
      if (random.chance(now_and_then)) {
        if (random.chance(0.3)) delay = random.between(0, 200 * kUs);
        if (rank == straggler) delay = random.between(0, 10 * kMs);
        if (late && random.chance(0.2)) delay = random.between(0, 300 * kMs);
      }
      op.late_ns.push_back(delay);
    }
  }
  for (std::uint16_t rank = 0; rank < s.nranks; ++rank) {
    s.start_late_ns.push_back(random.chance(0.3) ? random.between(0, 30 * kMs) : 0);
  }
}

/// A time at which something is likely to be going on.
TimeNs draw_time(Random& random) {
  return random.pick<TimeNs>(
      {random.between(0, 500 * kUs), random.between(0, 5 * kMs), random.between(0, 60 * kMs)});
}

TimeNs draw_duration(const Scenario& s, Random& random, bool fatal) {
  const TimeNs silence = s.group.shard.timeouts.silence_ns;
  if (fatal) return random.between(silence * 13 / 10, silence * 3);
  return random.pick<TimeNs>({random.between(1 * kUs, 500 * kUs), random.between(1 * kUs, 10 * kMs),
                              random.between(1 * kUs, s.harmless_ns())});
}

void draw_fault(Scenario& s, Random& random, FaultKind kind, bool fatal) {
  Fault fault;
  fault.kind = kind;
  fault.at = draw_time(random);
  fault.duration_ns = draw_duration(s, random, fatal);
  const auto n = s.nranks;
  fault.a = static_cast<std::uint16_t>(random.below(n));
  fault.b = static_cast<std::uint16_t>((fault.a + (random.chance(0.5) ? 1u : n - 1u)) % n);
  if (kind == FaultKind::kPartition) {
    fault.b = static_cast<std::uint16_t>(fault.a + 1 + random.below(n - 1u));
  }
  if (kind == FaultKind::kDrought) fault.amount = random.pick({0u, 1u, 4u});
  if (kind == FaultKind::kCrash || kind == FaultKind::kClientDies ||
      kind == FaultKind::kClientAborts) {
    fatal = true;
  }
  s.may_abort |= fatal;
  s.faults.push_back(fault);
}

void draw_faults(Scenario& s, Random& random) {
  using enum FaultKind;
  const bool mixed = is(s, {"mixed"});
  if (is(s, {"pause"}) || (mixed && random.chance(0.3))) {
    for (std::uint64_t i = random.below(3) + 1; i > 0; --i) {
      draw_fault(s, random, kPause, random.chance(0.15));
    }
  }
  if (is(s, {"cut"}) || (mixed && random.chance(0.3))) {
    for (std::uint64_t i = random.below(2) + 1; i > 0; --i) {
      const bool fatal = random.chance(0.3);
      const auto kind = random.pick({kCutEdge, kCutEdge, kCutHost, kPartition, kClog, kClog});
      draw_fault(s, random, kind, fatal);
    }
  }
  // In every profile one way of a link may be dead, for less than the silence limit.
  if (random.chance(0.25)) draw_fault(s, random, kCutEdge, false);
  if (is(s, {"crash"}) || (mixed && random.chance(0.1))) {
    draw_fault(s, random, kCrash, true);
    if (random.chance(0.2)) draw_fault(s, random, kCrash, true);
  }
  if (is(s, {"dry"}) || (mixed && random.chance(0.2))) draw_fault(s, random, kDrought, false);
  if ((is(s, {"late"}) && random.chance(0.5)) || (is(s, {"users"}) && random.chance(0.6)) ||
      (mixed && random.chance(0.1))) {
    draw_fault(s, random, random.pick({kClientDies, kClientAborts}), true);
  }
  if (is(s, {"one-sided"}) || (mixed && random.chance(0.1))) {
    s.cut_after_first_done = true;
    s.may_abort = true;
  }
  s.shrink = random.chance(0.3);
}

void draw_neighbor(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 14);
  Scenario other = s;
  other.ops.clear();
  other.start_late_ns.clear();
  other.transfers = {};
  other.faults.clear();
  place_neighbor(other, random);
  draw_layout(other);
  draw_transfers(other);
  draw_ops(other, random);
  s.neighbor = std::make_shared<const Scenario>(std::move(other));
  if (!s.may_abort && random.chance(0.6)) draw_odd_calls(s);
}

/// The daemon dies in the middle of an op that lasts.
void draw_death(Scenario& s, Random& random) {
  s.group.shard.timeouts.silence_ns = 150 * kMs;
  s.group.shard.timeouts.ping_interval_ns = 10 * kMs;
  s.group.shard.sender.max_pto_ns = 20 * kMs;
  s.faults.push_back({.kind = FaultKind::kCrash,
                      .a = static_cast<std::uint16_t>(random.below(s.nranks)),
                      .at = random.between(5 * kMs, 100 * kMs),
                      .duration_ns = 1'000 * kMs});
  s.may_abort = true;
  s.start_late_ns.assign(s.nranks, 0);
  for (std::size_t i = 0; i < s.ops.size() && i < 8; ++i) {
    for (TimeNs& late : s.ops[i].late_ns) late = random.between(0, 20 * kMs);
  }
}

}  // namespace

std::string_view Scenario::kind() const noexcept {
  if (profile == "all-reduce" || profile == "tiles") return "mixed";
  if (profile != "pairs") return profile;
  return seed % 4 == 0 ? "rails" : seed % 4 == 1 ? "fabric" : "mixed";
}

std::span<const Profile> profiles() noexcept { return kProfiles; }

Result<Scenario> make_scenario(std::uint64_t seed, const std::string& profile,
                               std::uint16_t ranks) {
  const bool known = std::any_of(kProfiles.begin(), kProfiles.end(),
                                 [&](const Profile& each) { return profile == each.name; });
  if (!known) {
    std::string names;
    for (const Profile& each : kProfiles) names += fmt::format(" {}", each.name);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("profile '{}' is none of:{}", profile, names));
  }
  if (ranks == 1 || ranks > kMaxRanks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks: 2 to {}, or 0 for 2 to 16 by the seed", ranks, kMaxRanks));
  }
  // The profile's name is in the seed, so that profiles do not draw the same numbers.
  std::uint64_t mixed_seed = seed * 0x9e3779b97f4a7c15;
  for (const char c : profile) mixed_seed = mixed_seed * 31 + static_cast<unsigned char>(c);
  Random random(mixed_seed);
  Scenario s;
  s.seed = seed;
  s.profile = profile;
  const std::uint16_t drawn = random.chance(0.6) ? static_cast<std::uint16_t>(2 + random.below(4))
                                                 : static_cast<std::uint16_t>(2 + random.below(15));
  s.nranks = profile == "pairs" ? std::uint16_t{2} : ranks != 0 ? ranks : drawn;
  s.world.hosts = s.nranks;
  s.world.seed = random.next();
  s.world.groups_per_host = is(s, {"users"}) ? 3 : 2;
  constexpr std::uint32_t kMostHostsWithPools = 256;  // the EAL has 2,560 zones, a pool takes two
  s.world.one_pool = s.nranks > kMostHostsWithPools;
  draw_paths(s, random);
  draw_shards(s, random);
  // No packet differs by that: results are written past the cache.
  if (seed % 4 == 3) s.group.shard.streaming_bytes = 0;
  draw_network(s, random);
  draw_hosts(s, random);
  if (is(s, {"lanes"})) lag_lanes(s);
  if (s.profile == "tiles") draw_tiles(s);
  draw_security(s);
  draw_layout(s);
  draw_direct(s);
  draw_transfers(s);
  draw_owners(s);
  draw_ops(s, random);
  if (s.group.shard.tiles.used) draw_formats(s);
  if (is(s, {"death"})) {
    draw_death(s, random);
  } else if (is(s, {"rails", "fabric"})) {
    draw_rails(s, random);
  } else if (!is(s, {"clean"})) {
    draw_faults(s, random);
  }
  if (profile == "pairs") {
    leave_transfers_alone(s);
  } else if (is(s, {"mixed"})) {
    draw_folding_ranks(s);
  }
  if (is(s, {"calls"})) draw_odd_calls(s);
  if (is(s, {"users"})) draw_neighbor(s);
  if (s.group.shard.tiles.used) draw_tile_model(s);
  return s;
}

}  // namespace gradwire::sim
