// SPDX-License-Identifier: BSD-3-Clause
#include "collective/transfers/under_way.h"

#include "base/require.h"

namespace gradwire::collective {

UnderWay::UnderWay(const ShardConfig& config, PairTable<OutPair>& outs, PairTable<InPair>& ins,
                   ShardCounters& counters)
    : own_rank_(config.rank),
      pairs_max_(config.transfers.pairs_max),
      outs_(outs),
      ins_(ins),
      counters_(counters),
      peers_(config.nranks),
      done_(std::size_t{config.transfers.pairs_max} * 2) {}

void UnderWay::begin(std::uint32_t item, std::uint16_t rank, TimeNs now) noexcept {
  require(has_room() && rank < peers_.size(), "a transfer begins if there is room for its end");
  order_of(item) = {now, 0, newest_, PairOrder::kNobody};
  (newest_ == PairOrder::kNobody ? oldest_ : order_of(newest_).newer) = item;
  newest_ = item;
  Peer& peer = peers_[rank];
  ++count_;
  if (peer.count++ == 0 && rank != own_rank_) peer.item = item;
}

void UnderWay::end(std::uint32_t item, std::uint16_t rank, std::uint64_t id) noexcept {
  const PairOrder order = order_of(item);
  (order.older == PairOrder::kNobody ? oldest_ : order_of(order.older).newer) = order.newer;
  (order.newer == PairOrder::kNobody ? newest_ : order_of(order.newer).older) = order.older;
  require(count_ > 0 && peers_[rank].count > 0, "a transfer that ends was begun");
  --count_;
  --peers_[rank].count;
  ++counters_.transfer_ends_done;
  require(done_.push(id), "there is room for the end of every transfer under way");
}

bool UnderWay::pop_done(std::uint64_t& id) noexcept {
  if (done_.empty()) return false;
  id = done_.front();
  done_.pop();
  return true;
}

}  // namespace gradwire::collective
