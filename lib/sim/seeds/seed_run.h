// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One scenario from its beginning to its end, under every oracle:
/// - each op ends at each living rank with the reference's bits or with an error, in bounded time;
///   with no fault that may end the epoch, with the bits;
/// - an op that every rank has posted moves and ends while packets get through (progress.h): a ring
///   that waits for itself is a failure however much it pings;
/// - after the first abort no op completes that a failed rank had not posted;
/// - the culprit named is a rank, or an end of an edge, of what was made to fail;
/// - each contribution is in the sum once (the bits say so);
/// - no client memory is touched after its op ended;
/// - a pool of the size that design rule 3 asks for is never empty; nothing is freed twice; no
///   frame changes that a driver holds; all mbufs come home;
/// - packets of the old epoch are dropped in the new one, every one, and the new one works.
/// One thread; it allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/seeds/scenario.h"
#include "sim/trace.h"

namespace gradwire::sim {

struct SeedResult {
  std::string failure;  ///< empty: nothing is wrong
  std::uint64_t hash = 0;
  TimeNs virtual_ns = 0;
  std::uint64_t frames = 0;
  std::uint64_t polls = 0;
  std::uint64_t ops_completed = 0;  ///< by each rank
  std::uint64_t transfer_ends = 0;  ///< sends and receives that were completed
  std::uint64_t ops_one_sided = 0;
  std::uint64_t epochs_aborted = 0;
  std::uint64_t old_packets = 0;  ///< replayed into the new epoch, and dropped
  std::uint64_t retransmissions = 0;
  std::uint64_t spills = 0;
  std::uint64_t copies = 0;
  std::uint64_t early_packets = 0;
  TimeNs longest_still_ns = 0;  ///< nothing moved, though an op was due
  TimeNs longest_op_ns = 0;     ///< from when every rank had posted it and packets got through
  /// Of a crash: from the death until each survivor's clients had their error.
  std::vector<TimeNs> detection_ns;
};

[[nodiscard]] SeedResult run_scenario(const Scenario& scenario, Trace& trace);

}  // namespace gradwire::sim
