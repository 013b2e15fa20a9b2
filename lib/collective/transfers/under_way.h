// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transfers that are under way on this lane, in the order in which their ends were posted, and how
/// many with each rank; and ends that are done until the lane takes them. Each end under way has a
/// place among those that are done. One lane owns it; it allocates at construction only.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/fixed_queue.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/transfers/pair_ends.h"
#include "collective/transfers/pair_table.h"

namespace gradwire::collective {

class UnderWay {
 public:
  /// The pairs and the counters outlive it.
  UnderWay(const ShardConfig& config, PairTable<OutPair>& outs, PairTable<InPair>& ins,
           ShardCounters& counters);

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t count_with(std::uint16_t rank) const noexcept {
    return peers_[rank].count;
  }
  /// Whether one more may begin.
  [[nodiscard]] bool has_room() const noexcept {
    return done_.size() + count_ < std::size_t{pairs_max_} * 2;
  }
  void begin(const OutPair& out, TimeNs now) noexcept {
    begin(outs_.index_of(out) * 2, out.rank, now);
  }
  void begin(const InPair& in, TimeNs now) noexcept {
    begin(ins_.index_of(in) * 2 + 1, in.rank, now);
  }
  void end(const OutPair& out) noexcept { end(outs_.index_of(out) * 2, out.rank, out.id); }
  void end(const InPair& in) noexcept { end(ins_.index_of(in) * 2 + 1, in.rank, in.id); }
  /// @return whether the end of a transfer was taken: its id.
  [[nodiscard]] bool pop_done(std::uint64_t& id) noexcept;

  /// As PairOrder names it; kNobody if nothing is under way.
  [[nodiscard]] std::uint32_t oldest() const noexcept { return oldest_; }
  /// One of a rank's pairs, as PairOrder names it, of which a question may be.
  [[nodiscard]] std::uint32_t asked_of(std::uint16_t rank) const noexcept {
    return peers_[rank].item;
  }

 private:
  struct Peer {
    std::uint32_t count = 0;
    std::uint32_t item = PairOrder::kNobody;
  };

  void begin(std::uint32_t item, std::uint16_t rank, TimeNs now) noexcept;
  void end(std::uint32_t item, std::uint16_t rank, std::uint64_t id) noexcept;
  [[nodiscard]] PairOrder& order_of(std::uint32_t item) noexcept {
    return item % 2 == 1 ? ins_[item / 2].order : outs_[item / 2].order;
  }

  const std::uint16_t own_rank_;
  const std::uint32_t pairs_max_;
  PairTable<OutPair>& outs_;
  PairTable<InPair>& ins_;
  ShardCounters& counters_;
  std::vector<Peer> peers_;         ///< [nranks]; of this rank only `count`
  FixedQueue<std::uint64_t> done_;  ///< ids
  std::uint32_t count_ = 0;
  std::uint32_t oldest_ = PairOrder::kNobody;
  std::uint32_t newest_ = PairOrder::kNobody;
};

}  // namespace gradwire::collective
