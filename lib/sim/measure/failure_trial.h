// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How long it takes until every survivor's client knows that a rank is gone: ops run without
/// pause, a daemon dies during one at a random time, and the time is taken until each other rank
/// has an error for everything unfinished. One thread; it allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"
#include "collective/shard_config.h"

namespace gradwire::sim {

struct FailureTrialOptions {
  std::uint16_t ranks = 3;
  std::uint64_t seed = 1;
  TimeNs silence_ns = collective::ShardTimeouts{}.silence_ns;
  TimeNs ping_interval_ns = collective::ShardTimeouts{}.ping_interval_ns;
  /// Lanes run on their own cores and are never preempted. Otherwise hosts sleep between polls and
  /// stand still, for up to 20 ms, when the scheduler gives their core to somebody else.
  bool own_cores = false;
  double loss = 0;  ///< of every link
  /// How long the host pauses, and then goes on. 0: it dies instead.
  TimeNs frozen_ns = 0;
};

struct FailureTrialResult {
  /// Empty: every survivor named the dead rank, its op and the silence; or, of a freeze, nobody
  /// aborted and ops went on.
  std::string failure;
  std::vector<TimeNs> told_ns;  ///< by survivor: from the death until it had its error
};

[[nodiscard]] FailureTrialResult run_failure_trial(const FailureTrialOptions& options);

}  // namespace gradwire::sim
