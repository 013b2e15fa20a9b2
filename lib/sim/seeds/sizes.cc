// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/sizes.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "sim/units.h"

namespace gradwire::sim {
namespace {

// What lib/config/keys.cc allows; where collective::Shard allows less or more, its bounds.
constexpr std::uint32_t kWindowMax = 4096;
constexpr std::uint32_t kTransitMax = 4096;
constexpr std::uint32_t kEagerMax = 1024;
constexpr std::uint32_t kPayloadMax = 9600;
constexpr std::uint32_t kActiveOpsMax = 256;
constexpr std::uint64_t kExchangeMaxKib = 65'535;
constexpr std::uint32_t kLaneChunksMin = 1024;

/// Ops of a series: more than descriptors are kept (collective::OpTable::kDescriptorsKept), by far.
constexpr std::int64_t kSeriesMin = 260;
constexpr std::int64_t kSeriesMax = 600;
/// Elements of all ranks and members of an op, in bytes: the reference holds them twice.
constexpr std::uint64_t kOpBytesMax = 4u << 20;

/// Each power of two as likely as any other.
std::uint32_t by_magnitude(Random& random, std::uint32_t first, std::uint32_t last) {
  const auto shift = static_cast<std::uint32_t>(random.below(std::bit_width(last / first)));
  const std::int64_t low = std::int64_t{first} << shift;
  return static_cast<std::uint32_t>(random.between(low, std::min<std::int64_t>(2 * low, last)));
}

void draw_to_the_limits(Scenario& s, Random& random) {
  collective::ShardConfig& shard = s.group.shard;
  const auto often = [&] { return random.chance(0.4); };
  if (often()) shard.payload_bytes = by_magnitude(random, 1, kPayloadMax / 64) * 64;
  if (often()) shard.window_packets = by_magnitude(random, 2, kWindowMax);
  if (often()) shard.transit_packets = by_magnitude(random, 1, kTransitMax);
  if (often()) shard.eager_packets = by_magnitude(random, 1, kEagerMax);
  if (often()) {
    shard.exchange_bytes = random.pick<std::uint64_t>({1, 64, kExchangeMaxKib}) << 10;
  }
  if (often()) shard.max_active_ops = random.pick({1u, kActiveOpsMax});
  if (often()) shard.max_chunks = random.pick({kLaneChunksMin, 1u << 16});
  if (random.chance(0.2)) {
    s.group.lanes = static_cast<std::uint8_t>(by_magnitude(random, 1, kMaxLanes));
  }
  if (random.chance(0.1)) {
    s.group.members = static_cast<std::uint16_t>(by_magnitude(random, 1, kMaxMembers));
  }
}

OpPlan draw_plan(Random& random, std::uint64_t i) {
  OpPlan plan;
  plan.datatype = random.pick({DataType::kInt32, DataType::kInt32, DataType::kFloat32,
                               DataType::kFloat64, DataType::kInt8, DataType::kInt64,
                               DataType::kFloat16, DataType::kBfloat16, DataType::kUint8});
  plan.redop = random.pick({RedOp::kSum, RedOp::kSum, RedOp::kAvg, RedOp::kMin, RedOp::kMax,
                            RedOp::kBand, RedOp::kBor, RedOp::kBxor});
  if (!fits(plan.redop, plan.datatype)) plan.redop = RedOp::kSum;
  plan.in_place = random.chance(0.5);
  plan.seed = random.next();
  plan.tag = static_cast<std::uint32_t>(i);
  return plan;
}

/// Whether a seed of profile tiles has ops with formats: those that have none stay as they were
/// before there were formats.
bool has_formats(const Scenario& s) { return s.seed % 3 != 0; }

/// Whether in a seed that has formats an owner sums many more tiles than it has places for results:
/// else hardly a place is used twice while a rank still lacks what lay there.
bool uses_places_again(const Scenario& s) { return s.seed % 6 == 1; }
constexpr std::uint64_t kLongerBy = 8;  ///< than other sums are

/// Makes it an op that the format is for, of about as many bytes on the wire.
/// @param bytes  that it would have had.
void give_format(OpPlan& plan, WireFormat format, std::uint64_t bytes, std::uint64_t bytes_max,
                 Random& random) {
  plan.wire = format;
  if (!reduces(plan.collective)) {
    plan.collective = Collective::kAllReduce;
    plan.root = collective::kNoRoot;
  }
  plan.redop = random.pick({RedOp::kSum, RedOp::kSum, RedOp::kAvg});
  plan.datatype =
      format == WireFormat::kInt8 && random.chance(0.3) ? DataType::kBfloat16 : DataType::kFloat32;
  plan.element_bytes = 0;
  plan.feeds_back = plan.seed % 2 == 0;
  const std::uint64_t more = random.pick<std::uint64_t>({1, 2, 4});
  plan.count = std::min(more * bytes, bytes_max) / element_bytes(plan.datatype);
}

/// Some of the sums multiply first. Drawn apart, too.
void draw_factors(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 5);
  for (PlannedOp& op : s.ops) {
    OpPlan& plan = op.plan;
    const bool can = reduces(plan.collective) && is_float(plan.datatype) &&
                     (plan.redop == RedOp::kSum || plan.redop == RedOp::kProd);
    if (can && random.chance(0.3)) plan.redop = RedOp::kPremulSum;
  }
}

/// What each op does, and its root. Drawn apart, so that all else of a seed stays as it is without.
void draw_collectives(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 4);
  const std::uint32_t processes = s.group.ranks.empty()
                                      ? std::uint32_t{s.nranks} * s.group.members
                                      : static_cast<std::uint32_t>(s.group.ranks.size());
  for (PlannedOp& op : s.ops) {
    OpPlan& plan = op.plan;
    plan.collective =
        random.pick({Collective::kAllReduce, Collective::kAllReduce, Collective::kReduceScatter,
                     Collective::kReduceScatter, Collective::kReduce, Collective::kBroadcast,
                     Collective::kAllGather, Collective::kBarrier});
    if (has_root(plan.collective)) plan.root = static_cast<std::uint32_t>(random.below(processes));
    if (plan.collective == Collective::kAllGather ||
        plan.collective == Collective::kReduceScatter) {
      // Each process's block takes a chunk at least.
      if (processes > s.group.shard.max_chunks / 2) plan.collective = Collective::kAllReduce;
      plan.count = (plan.count + processes - 1) / processes;
    }
    if (plan.collective == Collective::kBarrier) plan.count = 0;
    if (reduces(plan.collective) || !random.chance(0.3)) continue;
    plan.element_bytes = static_cast<std::uint32_t>(random.between(1, 24));
    plan.count = plan.count * element_bytes(plan.datatype) / plan.element_bytes;
    plan.datatype = DataType::kBytes;
  }
}

/// Who has room to spare owns more; or nobody's is known.
void draw_rates(Scenario& s, Random& random) {
  const std::uint32_t most = random.pick({0u, 1u, 10u});
  for (std::size_t host = 0; host < s.hosts.size() && most > 0; ++host) {
    s.group.rates.push_back(static_cast<std::uint32_t>(1 + random.below(most)));
  }
}

}  // namespace

std::uint64_t pool_bytes(const Scenario& s) noexcept {
  // As World::make_pools() and PoolBank::take() do it, but for the drivers' rings.
  constexpr std::uint64_t kRings = 640;
  constexpr std::uint64_t kSmallestRoom = 1280 + 256;
  constexpr std::uint64_t kLargeRoom = 10'240 + 256;
  constexpr std::uint64_t kHeaders = 192 + 256;
  constexpr std::uint64_t kControlOfShard = 64;
  const std::uint64_t shards = std::uint64_t{s.group.lanes} * s.world.groups_per_host;
  const std::uint64_t packets =
      std::bit_ceil(packet_mbufs_needed(s.group.shard) * shards + kRings) *
      (s.group.shard.payload_bytes + kHeaders > kSmallestRoom ? kLargeRoom : kSmallestRoom);
  const std::uint64_t control = std::bit_ceil(kControlOfShard * shards + kRings) * kSmallestRoom;
  return s.nranks * (packets + control);
}

void fit_pools(Scenario& s) {
  collective::ShardConfig& shard = s.group.shard;
  const std::uint64_t most = s.seed % 16 == 0 ? 2 * kPoolBytesMax : kPoolBytesMax;
  while (pool_bytes(s) > most) {
    std::uint32_t& packets =
        std::max(2 * shard.window_packets, shard.transit_packets) > shard.eager_packets
            ? (2 * shard.window_packets > shard.transit_packets ? shard.window_packets
                                                                : shard.transit_packets)
            : shard.eager_packets;
    if (packets > 64) {
      packets /= 2;
    } else if (s.group.lanes > 3) {
      s.group.lanes /= 2;
    } else if (shard.payload_bytes > 256) {
      shard.payload_bytes = shard.payload_bytes / 128 * 64;
    } else {
      return;
    }
  }
}

void draw_sizes(Scenario& s, Random& random) {
  collective::ShardConfig& shard = s.group.shard;
  s.group.members = random.pick<std::uint16_t>({1, 1, 1, 2, 3});
  s.group.lanes = random.pick<std::uint8_t>({1, 1, 1, 2, 3});
  shard.payload_bytes = random.pick({64u, 64u, 192u, 256u});
  shard.window_packets = random.pick({2u, 4u, 16u, 64u});
  shard.transit_packets = random.pick({1u, 4u, 16u, 64u});
  shard.eager_packets = random.pick({1u, 4u, 16u, 32u});
  shard.exchange_bytes = random.pick<std::uint64_t>({0, 512u << 10});
  shard.max_active_ops = random.pick({2u, 8u, 64u, 256u});
  shard.max_chunks = 4096;
  if (random.chance(0.3)) draw_to_the_limits(s, random);
  fit_pools(s);
}

void draw_security(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 16);
  constexpr std::uint16_t kRanksMax = 16;  // keys of all pairs are made
  if (!random.chance(0.25) || s.nranks > kRanksMax) return;
  s.group.mode = random.pick({security::Mode::kAuthenticate, security::Mode::kEncrypt});
  // A generation lasts for longer than its key takes to come, and than what is under way.
  const auto least =
      static_cast<unsigned>(std::bit_width(64 * std::uint64_t{s.group.shard.window_packets}));
  s.group.generation_bits = std::max(least, random.pick({9u, 10u, 12u}));
  s.group.key_delay_ns = random.pick<TimeNs>({0, 20 * kUs, 200 * kUs});
  s.world.forging = random.pick({0.0, 0.0, 0.02, 0.2});
}

void draw_layout(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 8);
  if (!random.chance(0.2)) return;
  std::vector<std::uint16_t> ranks;
  const std::uint16_t most = std::max<std::uint16_t>(s.group.members, 2);
  for (std::uint16_t rank = 0; rank < s.nranks; ++rank) {
    ranks.insert(ranks.end(), 1 + random.below(most), rank);
  }
  for (std::size_t left = ranks.size(); left > 1; --left) {
    std::swap(ranks[left - 1], ranks[random.below(left)]);
  }
  const auto layout = ProcessLayout::make(ranks, s.nranks);
  // Daemons give a plain group none.
  if (!layout || layout->is_plain()) return;
  s.group.ranks = std::move(ranks);
  s.group.members = most;
}

void draw_payload_for_formats(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 16);
  if (!has_formats(s)) return;
  // One block of `int8` at least.
  const std::uint32_t least = random.pick({320u, 320u, 576u, 1408u});
  s.group.shard.payload_bytes = std::max(s.group.shard.payload_bytes, least);
}

void draw_formats(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 17);
  if (!has_formats(s)) return;
  const std::size_t processes = ranks_of(s.group).size();
  collective::ShardConfig& shard = s.group.shard;
  if (uses_places_again(s)) {
    shard.tiles.tile_bytes = 16 * shard.payload_bytes;  // a chunk of each rank
    shard.tiles.scratch_bytes = 4u << 10;
  }
  for (PlannedOp& op : s.ops) {
    if (op.plan.collective == Collective::kBarrier || !random.chance(0.6)) continue;
    const bool blocks =
        elements_in_chunk(WireFormat::kInt8, DataType::kFloat32, shard.payload_bytes) != 0;
    const bool int8 = blocks && random.chance(0.6);
    const bool scatters = op.plan.collective == Collective::kReduceScatter;
    const std::uint64_t most = kOpBytesMax / s.nranks / s.group.members;
    std::uint64_t bytes = op.plan.count * op.plan.width();
    // Not each of a series.
    if (uses_places_again(s) && bytes >= shard.payload_bytes) bytes *= kLongerBy;
    give_format(op.plan, int8 ? WireFormat::kInt8 : WireFormat::kBf16, bytes,
                scatters ? most / processes : most, random);
  }
}

void draw_owners(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 11);
  if (s.nranks < 3 || s.group.shard.direct.two_step_bytes == 0 || !random.chance(0.3)) return;
  const std::uint64_t few = random.pick<std::uint64_t>({1, 1, 2, s.nranks - 1u});
  while (s.group.owners.size() < few) {
    const auto host = static_cast<HostId>(random.below(s.nranks));
    if (std::ranges::count(s.group.owners, host) == 0) s.group.owners.push_back(host);
  }
}

void draw_folding_ranks(Scenario& s) {
  const bool tiles = s.group.shard.tiles.used;
  Random random(s.seed * 0x9e3779b97f4a7c15u + (tiles ? 18 : 12));
  if (s.group.shard.direct.two_step_bytes == 0 || !random.chance(tiles ? 0.6 : 0.4)) return;
  s.group.folding_ranks = random.chance(0.2) ? 2 : 1;
  if (tiles) s.group.folding_ranks = random.pick<std::uint16_t>({1, 1, 2, 3});
  s.group.folding_ranks = std::min(s.group.folding_ranks, s.nranks);
  if (s.nranks + s.group.folding_ranks > kMaxRanks) return void(s.group.folding_ranks = 0);
  // Owners beside them: as the seed says, or few.
  if (random.chance(0.5)) s.group.owners.clear();
  const TimeNs silence_ns = s.group.shard.timeouts.silence_ns;
  for (std::uint16_t i = 0; i < s.group.folding_ranks; ++i) {
    const auto host = static_cast<HostId>(s.nranks + i);
    s.group.hosts.push_back(host);
    HostProfile profile = s.hosts[random.below(s.nranks)];
    profile.max_active_ops = random.pick({0u, 0u, 1u, 4u});
    s.hosts.push_back(profile);
    s.start_late_ns.push_back(random.chance(0.3) ? random.between(0, 30 * kMs) : 0);
    const double what = random.unit();
    Fault fault{.a = host, .at = random.between(0, 100 * kMs)};
    if (what < 0.2) {
      fault.kind = FaultKind::kPause;
      fault.duration_ns = random.between(1, s.harmless_ns() / 2);
    } else if (what < 0.3) {
      fault.kind = FaultKind::kCrash;
      fault.duration_ns = random.between(1, 2 * silence_ns);
      s.may_abort = true;
    } else if (tiles && what < 0.5) {
      fault.kind = random.pick({FaultKind::kCutEdge, FaultKind::kClog});
      fault.b = static_cast<std::uint16_t>(random.below(s.nranks));
      if (random.chance(0.5)) std::swap(fault.a, fault.b);
      fault.duration_ns = random.between(1, s.harmless_ns());
    } else {
      continue;
    }
    s.faults.push_back(fault);
  }
  if (tiles) draw_rates(s, random);
  s.world.hosts = static_cast<std::uint16_t>(s.nranks + s.group.folding_ranks);
}

void draw_tile_model(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 21);
  if (!random.chance(0.4)) return;
  s.group.endpoint = {.packet_ns = random.pick<std::uint16_t>({1, 250}),
                      .byte_ps = random.pick<std::uint16_t>({1, 100, 3'000}),
                      .hop_ns = random.pick({100u, 5'000u, 50'000u})};
  if (s.group.rates.empty()) s.group.rates.assign(s.hosts.size(), 10);
}

void draw_plans(Scenario& s, Random& random) {
  const collective::ShardConfig& shard = s.group.shard;
  // A chunk travels 2(n-1) hops: the more ranks, the fewer chunks.
  std::uint64_t chunks = std::max<std::uint64_t>(4, 120 / s.nranks);
  std::uint64_t count = 1 + random.below(s.nranks > 8 ? 4 : 7);
  if (shard.window_packets > 64 && s.nranks <= 4 && random.chance(0.3)) {
    chunks = std::min<std::uint64_t>(2 * shard.window_packets, 1000);
    count = std::min<std::uint64_t>(count, 2);
  }
  std::uint64_t bytes_max = chunks * shard.payload_bytes;
  bytes_max = std::min(bytes_max, kOpBytesMax / s.nranks / s.group.members);
  bytes_max = std::min(bytes_max, std::uint64_t{shard.max_chunks} / 2 * shard.payload_bytes);
  const auto add = [&](double empty, std::uint64_t most) {
    PlannedOp op;
    op.plan = draw_plan(random, s.ops.size());
    const std::uint64_t bytes = random.chance(empty) ? 0
                                : random.chance(0.1) ? random.below(65)
                                                     : random.below(most);
    op.plan.count = bytes / element_bytes(op.plan.datatype);
    s.ops.push_back(std::move(op));
  };
  const auto add_series = [&] {
    // A series of many ops, all without elements or each in one packet, and then something to do.
    const double empty = random.pick({1.0, 0.9, 0.0});
    const std::int64_t series =
        random.between(kSeriesMin, kSeriesMax) / (empty < 0.5 && s.nranks > 6 ? 3 : 1);
    for (std::int64_t i = 0; i < series; ++i) add(empty, 64);
    add(0, bytes_max);
  };
  for (std::uint64_t i = 0; i < count; ++i) add(0.12, bytes_max);
  const bool crowded = s.profile == "crowd" && s.group.members <= 3;
  if (random.chance(crowded ? 0.6 : 0.06)) add_series();
  if (s.profile != "all-reduce") draw_collectives(s);
  draw_factors(s);
}

}  // namespace gradwire::sim
