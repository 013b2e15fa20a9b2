// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How long ops of each size take where endpoints cost something: a group of one lane a rank on a
/// network with a rate, whose hosts take a time of their own for each packet sent and received. All
/// ranks post an op at once, and the next one when the last of them is through with it. One thread;
/// it allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"
#include "collective/shapes/shape.h"

namespace gradwire::sim {

/// Of one op, in the terms of a cost model.
struct ShapeCosts {
  TimeNs hop_ns = 5'000;   ///< from wire to wire
  TimeNs packet_ns = 250;  ///< of an endpoint, for each packet sent and for each received
  std::uint64_t rate_bps = 100'000'000'000;
};

struct ShapeTrialOptions {
  std::uint16_t ranks = 16;   ///< that have members
  std::uint16_t folding = 0;  ///< hosts beside them that only sum, by ports like theirs
  Collective collective = Collective::kAllReduce;  ///< or kAllToAll
  /// Of the larger buffer of a process, as in nccl-tests; each block has an element at least.
  std::uint64_t bytes = 64;
  std::uint32_t payload_bytes = 8'896;
  ShapeCosts costs;
  std::uint32_t ops = 5;  ///< that count; one goes before them
  // As rank 0's table entry says; 0: no op has that shape.
  std::uint64_t direct_kib = 0;
  std::uint64_t two_step_kib = 0;
  std::uint16_t owners = 0;  ///< the first ranks, so many, sum ops in two steps; 0: all do
  std::uint64_t gathered_kib = 0;
  std::uint16_t gathered_ranks = 64;
  bool tiles = false;                    ///< what would go round the ring goes by tiles
  std::uint32_t rx_descriptors = 1'024;  ///< of a host's receive ring
  double loss = 0;                       ///< of packets, once the group has formed
};

struct ShapeTrialResult {
  std::string failure;  ///< empty: every op ended, and the outputs are right
  collective::Shape shape = collective::Shape::kRing;
  TimeNs formation_ns = 0;         ///< from the first start to the last rank formed
  TimeNs p50_ns = 0;               ///< of an op, from the post to the last rank that is through
  double packets = 0;              ///< that a rank sends for an op, receipts and the like included
  std::uint64_t memory_bytes = 0;  ///< of a rank's shard, on the heap
  std::uint64_t retransmissions = 0;
  std::uint64_t overflow = 0;  ///< frames that full queues of the network dropped
};
[[nodiscard]] ShapeTrialResult run_shape_trial(const ShapeTrialOptions& options);

/// What a barrier, an all-reduce, ... of `bytes` takes at best, by formula.
struct ShapeFormulae {
  double ring_ns = 0;
  double recursive_doubling_ns = 0;
  double tree_ns = 0;
  double tiles_ns = 0;  ///< five hops, or three; pulls and packets received are counted
};
[[nodiscard]] ShapeFormulae formulae_for(const ShapeTrialOptions& options);

}  // namespace gradwire::sim
