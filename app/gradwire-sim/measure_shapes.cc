// SPDX-License-Identifier: BSD-3-Clause
#include "measure_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include "base/sections.h"
#include "collective/shapes/tile_costs.h"
#include "collective/shard_config.h"
#include "sim/measure/shape_trial.h"

namespace gradwire::sim {
namespace {

using collective::Shape;

constexpr std::array<std::uint64_t, 4> kSizes = {64, 8u << 10, 64u << 10, 1u << 20};
constexpr std::array kMeasured = {Collective::kAllReduce, Collective::kAllGather,
                                  Collective::kReduceScatter, Collective::kBarrier};
/// Of the simulator: 1,024 hosts that all hold packets of 8,896 bytes take too much memory.
constexpr std::uint32_t kPayloadOfMany = 1'088;

double us(double ns) { return ns / 1e3; }

ShapeTrialOptions trial_of(const Options& options, std::uint16_t ranks, Collective collective,
                           std::uint64_t bytes) {
  ShapeTrialOptions o;
  o.ranks = ranks;
  o.collective = collective;
  o.bytes = bytes;
  o.costs.packet_ns = static_cast<TimeNs>(options.packet_ns);
  o.costs.hop_ns = static_cast<TimeNs>(options.hop_ns);
  if (ranks > 256) o.payload_bytes = kPayloadOfMany;
  o.ops = ranks > 64 ? 3 : 5;
  o.direct_kib = TransportSection{}.direct_kib;
  o.gathered_kib = TransportSection{}.gathered_kib;
  o.gathered_ranks = static_cast<std::uint16_t>(TransportSection{}.gathered_ranks);
  o.rx_descriptors = options.rx_descriptors;
  o.loss = options.loss;
  // Only as much scratch memory as this op wants, since the simulator holds that of all ranks.
  const std::uint64_t of_each =
      options.two_step_kib != 0 ? options.two_step_kib : TransportSection{}.two_step_kib;
  const std::uint64_t bound = std::min(of_each * ranks, collective::kTwoStepBytesMax >> 10);
  o.owners = static_cast<std::uint16_t>(std::min<std::uint64_t>(options.owners, ranks));
  const std::uint64_t owners = o.owners != 0 ? o.owners : ranks;
  const std::uint64_t segment = ((bytes + owners - 1) / owners + 63) / 64 * 64;
  const std::uint64_t wanted = (segment * ranks + 1023) / 1024;
  o.two_step_kib = wanted <= bound ? wanted : 0;
  o.tiles = options.tiles;
  if (!o.tiles) return o;
  o.direct_kib = o.two_step_kib = o.gathered_kib = 0;
  o.folding = std::min(options.folding, ranks);
  // A group with such ranks has ops in two steps: the smallest ones.
  if (o.folding != 0) o.direct_kib = o.two_step_kib = 1;
  return o;
}

/// The same by the ring alone; not where that is millions of packets.
std::optional<double> by_ring(ShapeTrialOptions o, bool& good) {
  const std::uint64_t chunks = std::max<std::uint64_t>(o.bytes / o.payload_bytes, o.ranks);
  if (o.collective == Collective::kBarrier || 2 * chunks * o.ranks > 600'000) return {};
  o.direct_kib = o.two_step_kib = o.gathered_kib = 0;
  o.tiles = false;
  o.folding = 0;
  o.ops = std::min(o.ops, 2u);
  const ShapeTrialResult r = run_shape_trial(o);
  good &= r.failure.empty();
  return r.failure.empty() ? std::optional(static_cast<double>(r.p50_ns)) : std::nullopt;
}

/// What transport.tiles = "auto" gives the op to, of those two: here a byte costs a core nothing.
const char* chosen(const ShapeTrialOptions& o) {
  const std::vector<std::uint32_t> rates(
      o.ranks + o.folding, static_cast<std::uint32_t>(o.costs.rate_bps / 100'000'000));
  const auto shares = collective::TileShares::make(rates, o.ranks);
  const collective::TileCosts costs({.packet_ns = static_cast<std::uint16_t>(o.costs.packet_ns),
                                     .byte_ps = 1,
                                     .hop_ns = static_cast<std::uint32_t>(o.costs.hop_ns)},
                                    rates, o.ranks, shares ? &*shares : nullptr, 1);
  return costs.tiles_are_faster(o.collective, o.bytes, o.payload_bytes) ? "tiles" : "ring";
}

bool measure_one(const ShapeTrialOptions& o) {
  const ShapeTrialResult r = run_shape_trial(o);
  if (!r.failure.empty()) {
    fmt::print("\nFAILED: {} of {} bytes, {} ranks: {}\n", name_of(o.collective), o.bytes, o.ranks,
               r.failure);
    return false;
  }
  bool good = true;
  const ShapeFormulae f = formulae_for(o);
  const auto ring = r.shape == Shape::kRing ? std::nullopt : by_ring(o, good);
  const auto p50 = static_cast<double>(r.p50_ns);
  fmt::print(
      "| {} | {} | {} | {} | {:.1f} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.0f} | {} | {} | "
      "{:.2f} | {} | {} |\n",
      o.ranks, name_of(o.collective), o.collective == Collective::kBarrier ? 0 : o.bytes,
      r.shape == Shape::kWord ? "words" : name_of(r.shape), us(p50),
      ring ? fmt::format("{:.1f}", us(*ring)) : std::string("-"), us(f.ring_ns),
      us(f.recursive_doubling_ns), us(f.tree_ns), us(f.tiles_ns), r.packets, r.retransmissions,
      r.overflow, static_cast<double>(r.formation_ns) / 1e6, r.memory_bytes >> 10,
      o.collective == Collective::kBarrier ? "-" : chosen(o));
  std::fflush(stdout);
  return good;
}

}  // namespace

bool measure_shapes(const Options& options) {
  fmt::print(
      "| ranks | op | bytes | shape | p50 us | ring measured | ring formula | recursive doubling | "
      "tree | tiles | packets of a rank | sent again | dropped | formation ms | memory KiB | "
      "chosen |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  bool good = true;
  const std::span<const std::uint64_t> sizes =
      options.bytes != 0 ? std::span(&options.bytes, 1) : std::span<const std::uint64_t>(kSizes);
  for (const std::uint16_t ranks : {2, 4, 16, 64, 256, 1024}) {
    // The smallest groups are for who asks: they have shapes of their own.
    if (options.ranks == 0 && ranks < 16) continue;
    if (options.ranks != 0 && options.ranks != ranks) continue;
    for (const Collective collective : kMeasured) {
      if (!options.collective.empty() && options.collective != name_of(collective)) continue;
      for (const std::uint64_t bytes : sizes) {
        if (collective == Collective::kBarrier && bytes != sizes[0]) continue;
        good &= measure_one(trial_of(options, ranks, collective, bytes));
      }
    }
  }
  return good;
}

bool measure_all_to_all(const Options& options) {
  const std::uint16_t ranks = options.ranks != 0 ? options.ranks : 64;
  ShapeTrialOptions o = trial_of(options, ranks, Collective::kAllToAll,
                                 options.bytes != 0 ? options.bytes : 64'000'000);
  o.ops = 1;
  const ShapeTrialResult r = run_shape_trial(o);
  if (!r.failure.empty()) {
    fmt::print("FAILED: {}\n", r.failure);
    return false;
  }
  // Each rank receives all blocks but its own, in frames with 106 bytes of headers and what
  // Ethernet adds.
  const double block = static_cast<double>(o.bytes) / ranks;
  const double frames = std::max(1.0, block / o.payload_bytes);
  const double wire =
      (ranks - 1) * (block + frames * 130) * 8e9 / static_cast<double>(o.costs.rate_bps);
  fmt::print(
      "| ranks | bytes | ms | wire ms | over | sent again | dropped | packets of a rank |\n"
      "|---|---|---|---|---|---|---|---|\n| {} | {} | {:.3f} | {:.3f} | {:+.1f} % | {} | {} | "
      "{:.0f} "
      "|\n",
      ranks, o.bytes, static_cast<double>(r.p50_ns) / 1e6, wire / 1e6,
      100 * (static_cast<double>(r.p50_ns) - wire) / wire, r.retransmissions, r.overflow,
      r.packets);
  return true;
}

}  // namespace gradwire::sim
