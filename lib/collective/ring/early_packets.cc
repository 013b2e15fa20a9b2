// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ring/early_packets.h"

namespace gradwire::collective {

bool EarlyPackets::holds(const wire::DataHeader& header) const noexcept {
  return std::any_of(packets_.begin(), packets_.end(), [&](const EarlyPacket& early) {
    return early.header.op_seq == header.op_seq && early.header.chunk == header.chunk &&
           early.header.hop == header.hop;
  });
}

bool EarlyPackets::has_place(const wire::DataHeader& header, std::size_t in_transit,
                             const OpTable& ops) const noexcept {
  // Packets of posted ops wait until this rank has read its own part, and may take what transit
  // leaves: an op that keeps its own has none.
  const std::size_t busy = std::min<std::size_t>(in_transit, transit_);
  if (packets_.size() >= eager_ + transit_ - busy) return false;
  if (ops.was_posted(header.op_seq) || packets_.size() < eager_) return true;
  const auto ahead = std::count_if(packets_.begin(), packets_.end(), [&](const EarlyPacket& early) {
    return !ops.was_posted(early.header.op_seq);
  });
  return static_cast<std::size_t>(ahead) < eager_;
}

bool EarlyPackets::has_any_of(std::uint64_t op_seq) const noexcept {
  return std::any_of(packets_.begin(), packets_.end(),
                     [&](const EarlyPacket& early) { return early.header.op_seq == op_seq; });
}

void EarlyPackets::add(const EarlyPacket& packet) noexcept {
  require(packets_.size() < packets_.capacity(), "an early packet is held if it has a place");
  packets_.push_back(packet);
}

std::uint64_t EarlyPackets::op_that_may_go(const OpTable& ops) const noexcept {
  for (const EarlyPacket& early : packets_) {
    if (ops.was_posted(early.header.op_seq) && !ops.waits_for_own(early.header)) {
      return early.header.op_seq;
    }
  }
  return 0;
}

bool EarlyPackets::take(std::uint64_t op_seq, const OpTable& ops, std::size_t& from,
                        EarlyPacket& out) noexcept {
  for (; from < packets_.size(); ++from) {
    const wire::DataHeader& header = packets_[from].header;
    if (header.op_seq != op_seq || ops.waits_for_own(header)) continue;
    out = packets_[from];
    packets_[from] = packets_.back();
    packets_.pop_back();
    return true;
  }
  return false;
}

void EarlyPackets::free_all() noexcept {
  for (const EarlyPacket& early : packets_) rte_pktmbuf_free(early.mbuf);
  packets_.clear();
}

}  // namespace gradwire::collective
