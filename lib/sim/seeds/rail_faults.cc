// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/rail_faults.h"

#include <algorithm>

namespace gradwire::sim {
namespace {

/// One way of a rail, the other, or both.
void draw_ways(Scenario& s, Random& random, Fault fault, std::uint16_t a, std::uint16_t b) {
  const std::uint64_t ways = random.below(4);
  fault.a = a, fault.b = b;
  if (ways != 0) s.faults.push_back(fault);
  fault.a = b, fault.b = a;
  if (ways != 1) s.faults.push_back(fault);
}

/// A loose plug: shorter and longer than it takes to leave the rail.
void draw_flapping(Scenario& s, Random& random, std::uint8_t rail, std::uint16_t a, std::uint16_t b,
                   TimeNs at, TimeNs until) {
  const TimeNs silence = s.group.shard.timeouts.silence_ns;
  const auto a_while = [&] { return random.between(silence / 50, silence / 2); };
  while (at < until) {
    const TimeNs lasts = std::min(a_while(), until - at);
    const Fault cut{
        .kind = FaultKind::kCutRail, .at = at, .duration_ns = lasts, .rail = rail, .amount = 0};
    draw_ways(s, random, cut, a, b);
    at += lasts;
    at += a_while();
  }
}

/// What happens to the rails between two hosts: at any time one of them is whole, by turns.
void draw_rails_between(Scenario& s, Random& random, std::uint16_t a, std::uint16_t b, TimeNs end) {
  using enum FaultKind;
  const TimeNs silence = s.group.shard.timeouts.silence_ns;
  for (TimeNs at = random.between(0, silence); at < end;) {
    const TimeNs until = at + random.between(silence, 3 * silence);
    const std::uint64_t whole = random.below(s.world.rails);
    for (std::uint8_t rail = 0; rail < s.world.rails; ++rail) {
      if (rail == whole || random.chance(0.3)) continue;
      if (random.chance(0.2)) {
        draw_flapping(s, random, rail, a, b, at, until);
        continue;
      }
      const Fault fault{.kind = random.pick({kCutRail, kCutRail, kCutRail, kLossyRail, kSlowRail}),
                        .at = at,
                        .duration_ns = until - at,
                        .rail = rail,
                        .amount = static_cast<std::uint32_t>(random.below(2'000))};
      draw_ways(s, random, fault, a, b);
    }
    at = until;
  }
}

/// A link that does not get through asks by hellos, and is asked: ports that cannot carry these
/// are full of nothing else, and then no path is good within two path limits.
void carry_questions(Scenario& s) {
  // In a 32nd of the silence limit a lane sends 4 hellos to one rank, and 2 answers to each of the
  // 4 that another one sends, all as long as full packets (doc/protocol/paths.md, Source ports).
  constexpr std::uint64_t kFrames = 4 + 2 * 4;
  constexpr std::uint64_t kOverhead = 200;  // at most, with all headers and the preamble
  const collective::ShardConfig& shard = s.group.shard;
  const auto spacing_ns = static_cast<std::uint64_t>(shard.timeouts.silence_ns / 32);
  const std::uint64_t bytes = kFrames * s.group.lanes * (shard.payload_bytes + kOverhead);
  std::uint64_t& rate_bps = s.world.port.rate_bps;
  const std::uint64_t least = bytes * 8 * 1'000'000'000 / spacing_ns;
  if (rate_bps == 0 || rate_bps >= least) return;
  // The queue holds as much time as before.
  s.world.port.queue_bytes = s.world.port.queue_bytes * (least / 1'000) / (rate_bps / 1'000);
  rate_bps = least;
}

/// What happens to the paths of equal cost from one host to another, which nobody sees: half of
/// them are whole at any time. The way back is drawn apart.
void draw_spines_from(Scenario& s, Random& random, std::uint16_t a, std::uint16_t b, TimeNs end) {
  using enum FaultKind;
  const TimeNs silence = s.group.shard.timeouts.silence_ns;
  for (TimeNs at = random.between(0, silence / 2); at < end;) {
    const TimeNs until = at + random.between(silence, 4 * silence);
    const auto first = static_cast<unsigned>(random.below(s.world.spines));
    for (unsigned i = 0; i < s.world.spines / 2u; ++i) {
      Fault fault{.kind = random.pick({kCutRail, kCutRail, kCutRail, kCutRail, kLossyRail,
                                       kShortRail, kShortRail, kSlowRail}),
                  .a = a,
                  .b = b,
                  .at = at,
                  .duration_ns = until - at,
                  .spine = static_cast<std::uint8_t>((first + i) % s.world.spines),
                  .amount = static_cast<std::uint32_t>(random.below(2'000))};
      if (random.chance(0.2)) continue;
      for (fault.rail = 0; fault.rail < s.world.rails; ++fault.rail) s.faults.push_back(fault);
    }
    at = until + (random.chance(0.3) ? random.between(0, silence) : 0);
  }
}

}  // namespace

void draw_paths(Scenario& s, Random& random) {
  if (s.kind() == "rails") s.world.rails = static_cast<std::uint8_t>(2 + random.below(3));
  // Drawn apart, so that a seed is what it was before there were source ports.
  Random apart(s.seed * 0x9e3779b97f4a7c15u + 12);
  if (apart.chance(0.5)) s.world.source_ports = wire::kSourcePortsMax;
  if (s.kind() != "fabric") return;
  s.world.rails = random.chance(0.2) ? 2 : 1;
  s.world.spines = static_cast<std::uint8_t>(2 + random.below(3));
  s.world.source_ports = wire::kSourcePortsMax;
}

void draw_rails(Scenario& s, Random& random) {
  const TimeNs silence = s.group.shard.timeouts.silence_ns;
  const TimeNs end = random.between(2 * silence, 8 * silence);
  const auto steps = static_cast<TimeNs>(s.ops.size());
  for (PlannedOp& op : s.ops) {
    // Whoever is later than others wait before they leave is missed.
    const TimeNs most = std::min(2 * end / steps, s.group.shard.timeouts.leave_ns / 4);
    for (TimeNs& late : op.late_ns) late = random.between(0, most);
  }
  for (std::uint16_t a = 0; a < s.nranks; ++a) {
    for (auto b = static_cast<std::uint16_t>(a + 1); b < s.nranks; ++b) {
      if (s.world.spines == 1) {
        draw_rails_between(s, random, a, b, end);
        continue;
      }
      draw_spines_from(s, random, a, b, end);
      draw_spines_from(s, random, b, a, end);
    }
  }
  // What else may happen meanwhile: a host stands still, and a daemon dies and comes back.
  const auto some_rank = [&] { return static_cast<std::uint16_t>(random.below(s.nranks)); };
  if (random.chance(0.2)) {
    s.faults.push_back({.kind = FaultKind::kPause,
                        .a = some_rank(),
                        .at = random.between(0, end),
                        .duration_ns = random.between(0, s.harmless_ns())});
  }
  if (random.chance(0.1)) {
    s.faults.push_back({.kind = FaultKind::kCrash,
                        .a = some_rank(),
                        .at = random.between(0, end),
                        .duration_ns = random.between(silence * 13 / 10, silence * 3)});
    s.may_abort = true;
  }
  s.world.ipv6_rails = static_cast<std::uint32_t>(random.below(1u << s.world.rails));
  if (s.world.spines > 1) carry_questions(s);
}

const char* name_of(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::kPause:
      return "pause";
    case FaultKind::kCrash:
      return "crash";
    case FaultKind::kCutEdge:
      return "one way is cut";
    case FaultKind::kCutHost:
      return "host is cut off";
    case FaultKind::kPartition:
      return "partition";
    case FaultKind::kClog:
      return "one way is clogged";
    case FaultKind::kDrought:
      return "mbufs run out";
    case FaultKind::kClientDies:
      return "client dies";
    case FaultKind::kClientAborts:
      return "client aborts";
    case FaultKind::kCutRail:
      return "one way of a rail is cut";
    case FaultKind::kLossyRail:
      return "one way of a rail loses most";
    case FaultKind::kSlowRail:
      return "one way of a rail is slow";
    case FaultKind::kShortRail:
      return "one way of a rail loses full packets";
  }
  return "fault?";
}

}  // namespace gradwire::sim
