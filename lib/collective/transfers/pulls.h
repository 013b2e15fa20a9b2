// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which chunks are pulled: from a few pairs at a time, the first that were ready, and within one
/// window. Pairs that have their turn go round, so that a small window does. One lane owns it; it
/// allocates at construction only; time is a parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/fixed_queue.h"
#include "collective/links/peer_links.h"
#include "collective/links/pull_window.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/transfers/pair_ends.h"
#include "collective/transfers/pair_queues.h"
#include "collective/transfers/pair_table.h"

namespace gradwire::collective {

class Pulls {
 public:
  /// Pairs from which chunks are pulled at a time.
  static constexpr std::size_t kTurns = 4;

  /// All of them outlive it.
  Pulls(const ShardConfig& config, PeerLinks& links, PullWindow& window, PairTable<InPair>& ins,
        PairQueues& queues, ShardCounters& counters);

  /// A pair that is ready waits for its turn.
  void line_up(InPair& in, TimeNs now) noexcept;
  /// Pairs that wait get the turns that are free.
  void give_turns(TimeNs now) noexcept;
  /// Pulls what there is room for.
  void pull_more(TimeNs now) noexcept;
  /// Chunks that were pulled, and did not come.
  void pull_again(InPair& in, std::uint64_t chunks, TimeNs now) noexcept;
  /// A chunk that was pulled came.
  void came(InPair& in, std::uint32_t chunk, bool ecn_ce, TimeNs now) noexcept;
  /// A pair that has all has no turn any more.
  void finish(InPair& in) noexcept;
  void drop_all() noexcept;

 private:
  bool pull_new(InPair& in, TimeNs now) noexcept;

  PeerLinks& links_;
  PairTable<InPair>& ins_;
  PairQueues& queues_;
  ShardCounters& counters_;
  PullWindow& window_;
  FixedQueue<std::uint32_t> ready_;   ///< pairs that wait for their turn
  std::vector<std::uint32_t> turns_;  ///< pairs that have it
};

}  // namespace gradwire::collective
