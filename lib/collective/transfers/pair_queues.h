// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which pairs have something to say, pieces to send, or something due. Each is in a list once. One
/// lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <cstdint>

#include "base/require.h"
#include "collective/fixed_queue.h"
#include "collective/links/peer_links.h"
#include "collective/links/sweep.h"
#include "collective/shard_config.h"
#include "collective/transfers/pair_ends.h"
#include "collective/transfers/pair_table.h"

namespace gradwire::collective {

class PairQueues {
 public:
  /// All of them outlive it.
  PairQueues(const ShardConfig& config, const PeerLinks& links, const PairTable<OutPair>& outs,
             const PairTable<InPair>& ins)
      : config_(config),
        links_(links),
        outs_(outs),
        ins_(ins),
        words_(std::size_t{config.transfers.pairs_max} * 2),
        sending_(config.transfers.pairs_max),
        watched_(std::size_t{config.transfers.pairs_max} * 2) {}

  /// The pair says something.
  void queue(OutPair& out) noexcept { queue(out.timer, outs_.index_of(out) * 2); }
  void queue(InPair& in) noexcept { queue(in.timer, ins_.index_of(in) * 2 + 1); }
  /// Pieces of it are wanted.
  void queue_pieces(OutPair& out) noexcept {
    if (out.sending) return;
    out.sending = true;
    require(sending_.push(outs_.index_of(out)), "a pair is queued for its pieces once");
  }
  /// It is looked at when that is due.
  void watch(OutPair& out, TimeNs due) noexcept { watch(out.timer, outs_.index_of(out) * 2, due); }
  void watch(InPair& in, TimeNs due) noexcept { watch(in.timer, ins_.index_of(in) * 2 + 1, due); }
  /// For how long nothing new is heard of a pair until its packet is repeated.
  [[nodiscard]] TimeNs patience(std::uint16_t rank, std::uint32_t tries) const noexcept {
    const ShardTimeouts& timeouts = config_.timeouts;
    const TimeNs most = std::max(timeouts.ping_interval_ns,
                                 std::min(config_.sender.max_pto_ns, timeouts.silence_ns / 10));
    return links_.repeated_after(rank, tries, most);
  }

  /// Pairs that say something: twice the index, and 1 if it comes in.
  [[nodiscard]] FixedQueue<std::uint32_t>& words() noexcept { return words_; }
  [[nodiscard]] const FixedQueue<std::uint32_t>& words() const noexcept { return words_; }
  /// Out-pairs of which pieces are wanted.
  [[nodiscard]] FixedQueue<std::uint32_t>& sending() noexcept { return sending_; }
  [[nodiscard]] const FixedQueue<std::uint32_t>& sending() const noexcept { return sending_; }
  /// Pairs that may have something due, as words().
  [[nodiscard]] Sweep<std::uint32_t>& watched() noexcept { return watched_; }
  [[nodiscard]] const Sweep<std::uint32_t>& watched() const noexcept { return watched_; }

  /// That pairs are in these lists stays said at each: nothing is to be queued or watched any more.
  void clear() noexcept {
    words_.clear();
    sending_.clear();
    watched_.clear();
  }

 private:
  void queue(PairTimer& timer, std::uint32_t item) noexcept {
    if (timer.queued) return;
    timer.queued = true;
    require(words_.push(item), "a pair is queued once each way");
  }
  void watch(PairTimer& timer, std::uint32_t item, TimeNs due) noexcept {
    timer.due = due;
    if (timer.watched) return watched_.may_be_due(due);
    timer.watched = true;
    watched_.add(item, due);
  }

  const ShardConfig& config_;
  const PeerLinks& links_;
  const PairTable<OutPair>& outs_;
  const PairTable<InPair>& ins_;
  FixedQueue<std::uint32_t> words_;
  FixedQueue<std::uint32_t> sending_;
  Sweep<std::uint32_t> watched_;
};

}  // namespace gradwire::collective
