// SPDX-License-Identifier: BSD-3-Clause
// Formulae to compare shapes with: hops, packets and bytes of algorithms, each in the terms of
// ShapeCosts. A packet's way costs a hop and both endpoints; an endpoint's packets and a port's
// bytes take turns, whichever is more.
#include <algorithm>
#include <cmath>

#include "sim/measure/shape_trial.h"

namespace gradwire::sim {
namespace {

constexpr double kFrameOverhead = 130;  ///< headers and what Ethernet adds

struct Model {
  double hop;
  double packet;
  double byte;
  double payload;

  explicit Model(const ShapeTrialOptions& o)
      : hop(static_cast<double>(o.costs.hop_ns)),
        packet(static_cast<double>(o.costs.packet_ns)),
        byte(8e9 / static_cast<double>(o.costs.rate_bps)),
        payload(o.payload_bytes) {}

  /// Of so many bytes that a rank sends while it receives as many, pipelined.
  [[nodiscard]] double stream(double bytes) const {
    const double packets = std::ceil(bytes / payload);
    return std::max(packets * 2 * packet, (bytes + packets * kFrameOverhead) * byte);
  }
  /// One message of so many bytes, from post to arrival; what is behind the first packet streams.
  [[nodiscard]] double message(double bytes) const {
    const double packets = std::max(1.0, std::ceil(bytes / payload));
    const double first = std::min(bytes, payload) + kFrameOverhead;
    return hop + 2 * packet + first * byte +
           (packets - 1) * std::max(packet, (payload + kFrameOverhead) * byte);
  }
};

/// How often an all-reduce's bytes go each way by the port that carries most, if all ports are
/// alike.
/// @param ranks    with members
/// @param folding  without
double carried(double ranks, double folding) {
  if (folding == 0) return 2 * (ranks - 1) / ranks;
  // A rank with members sends the op once, and what it owns to others; doc/protocol/tiles.md,
  // Owners and shares. Of two each sends it once whoever owns.
  const double with = ranks > 2 ? (1 - folding / ranks) / (ranks + folding * (ranks - 2) / ranks)
                                : 1 / (ranks + folding);
  const double own = std::max(with, 0.0);
  const double without = (1 - ranks * own) / folding;
  return std::max(1 + (ranks - 2) * own, ranks * without);
}

}  // namespace

ShapeFormulae formulae_for(const ShapeTrialOptions& options) {
  const Model model(options);
  const double n = options.ranks;
  const auto bytes = static_cast<double>(options.bytes);
  const double steps = std::ceil(std::log2(n));
  const bool whole = options.collective == Collective::kAllReduce;
  const double block = bytes / n;
  ShapeFormulae out;
  if (options.collective == Collective::kBarrier) {
    // A word that goes round twice; everyone to everyone in steps; up a tree and down again.
    out.ring_ns = 2 * (n - 1) * model.message(0);
    out.recursive_doubling_ns = steps * model.message(0);
    out.tree_ns = 2 * steps * model.message(0);
    return out;
  }
  // Cut through: what a segment has beyond its first packet follows at the stream's rate.
  const double hops = (whole ? 2 : 1) * (n - 1);
  const double first = std::min(block, model.payload);
  out.ring_ns = hops * model.message(first) +
                std::max(0.0, model.stream(hops * block) - hops * model.stream(first));
  for (double step = 1; step < n; step *= 2) {
    // An all-reduce exchanges all of it in each step, the others halves of it.
    out.recursive_doubling_ns += model.message(whole ? bytes : block * std::min(step, n - step));
  }
  // A binary tree, not pipelined: up with everything, and down again.
  out.tree_ns = (whole ? 2 : 1) * steps * model.message(bytes);
  // As doc/protocol/tiles.md, The choice, has it: each way, and a word for eight chunks both ways.
  const double each_way = bytes * (whole ? carried(n, options.folding) : (n - 1) / n);
  const double pieces = (whole ? 2 : 1) * (n - 1);  // of each owner one at least, each way
  const double chunks = std::max(std::ceil(each_way / model.payload), pieces);
  const double words = 8 * (n - 1) * std::max(1.0, std::ceil(chunks / (8 * (n - 1))));
  const double on_wire = (each_way + chunks * kFrameOverhead) * model.byte;
  out.tiles_ns = (whole ? 5 : 3) * (model.hop + 2 * model.packet) +
                 std::max(on_wire, (2 * chunks + words) * model.packet);
  return out;
}

}  // namespace gradwire::sim
