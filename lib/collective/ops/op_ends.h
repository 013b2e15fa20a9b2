// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How an op ends, whatever its shape: it is closed when nothing of it is left to do, and whoever
/// called it hears of that. One lane owns it; it allocates nothing.
#pragma once

#include "collective/event_queue.h"
#include "collective/links/link.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class OpEnds {
 public:
  /// All of them outlive it.
  /// @param tells  whether somebody here calls ops, and hears of their ends.
  OpEnds(const ShardConfig& config, const Links& links, OpTable& ops, FoldQueue& folds,
         EventQueue& events, ShardCounters& counters, bool tells) noexcept
      : config_(config),
        links_(links),
        ops_(ops),
        folds_(folds),
        events_(events),
        counters_(counters),
        tells_(tells) {}

  /// Call it whenever something of the op was done. It may be gone afterwards.
  void finish_if_done(Op& op) noexcept {
    if (op.state == Op::State::kActive && op.finished()) finish(op);
  }

 private:
  void finish(Op& op) noexcept;

  const ShardConfig& config_;
  const Links& links_;
  OpTable& ops_;
  FoldQueue& folds_;
  EventQueue& events_;
  ShardCounters& counters_;
  bool tells_;
};

}  // namespace gradwire::collective
