// SPDX-License-Identifier: BSD-3-Clause
#include "lane/tx_queue.h"

#include <rte_ethdev.h>

#include <algorithm>
#include <cstring>

#include "base/profile.h"
#include "base/require.h"
#include "port/udp_sum.h"

namespace gradwire::lane {

std::uint64_t TxQueue::push(std::span<rte_mbuf* const> frames) noexcept {
  std::uint64_t bytes = 0;
  for (rte_mbuf* const frame : frames) {
    bytes += frame->pkt_len;
    if (count_ == kCapacity) [[unlikely]] {
      rte_pktmbuf_free(frame);  // The caller did not check room(): lose a frame, not memory.
      continue;
    }
    if (completion_.kind != TxCompletion::Kind::kNone) complete(frame);
    frames_[(head_ + count_) % kCapacity] = frame;
    ++count_;
  }
  return bytes;
}

void TxQueue::complete(rte_mbuf* frame) const noexcept {
  frame->ol_flags &= ~port::kUdpSumMarks;
  if (completion_.kind != TxCompletion::Kind::kIpv6) return;
  constexpr std::byte kIpv6[] = {std::byte{0x86}, std::byte{0xdd}};
  const std::size_t ip = wire::kEthernetBytes + (completion_.vlan ? wire::kVlanBytes : 0);
  const std::span<std::byte> bytes(rte_pktmbuf_mtod(frame, std::byte*),
                                   rte_pktmbuf_data_len(frame));
  // The answer to a ping may have a tag where others have none.
  if (bytes.size() < ip || std::memcmp(&bytes[ip - 2], kIpv6, 2) != 0) return;
  if (!wire::complete_ipv6(bytes.subspan(ip), completion_.by)) return;
  if (completion_.by == wire::UdpSum::kDevice) port::ask_for_udp_sum(*frame, ip);
}

bool TxQueue::flush(TimeNs now, bool link_up, LaneCounters& counters, TxTrace& trace) noexcept {
  const profile::Stage stage(profile::StageId::kTx);
  if (stalled_since_ != kNever && now < next_try_ && now - stalled_since_ >= kSlow &&
      now - stalled_since_ < kStall) {
    return false;
  }
  next_try_ = now + kRetry;
  bool sent_any = false;
  while (count_ != 0) {
    const std::size_t contiguous = std::min(count_, kCapacity - head_);
    const auto offered = static_cast<std::uint16_t>(std::min<std::size_t>(contiguous, burst_));
    std::uint64_t bytes = 0;  // read first, because the driver may free a frame at once
    std::array<std::uint32_t, kCapacity> lengths;
    for (std::uint16_t i = 0; i < offered; ++i) lengths[i] = frames_[head_ + i]->pkt_len;
    const std::uint16_t sent = link_up
                                   ? rte_eth_tx_burst(port_id_, queue_id_, &frames_[head_], offered)
                                   : std::uint16_t{0};
    require(sent <= offered, "a driver takes no more than it was offered");
    for (std::uint16_t i = 0; i < sent; ++i) bytes += lengths[i];
    head_ = (head_ + sent) % kCapacity;
    count_ -= sent;
    count(counters.tx_packets, sent);
    count(counters.tx_bytes, bytes);
    trace.record(now, bytes);
    sent_any |= sent != 0;
    if (sent < offered) {
      count(counters.tx_refused, offered - sent);
      break;
    }
  }
  if (count_ == 0 || sent_any) {
    stalled_since_ = kNever;
  } else if (stalled_since_ == kNever) {
    stalled_since_ = now;
  } else if (now - stalled_since_ >= kStall) {
    count(counters.tx_dropped, clear());
    stalled_since_ = kNever;
  }
  return sent_any;
}

std::size_t TxQueue::clear() noexcept {
  const std::size_t cleared = count_;
  for (; count_ != 0; --count_) {
    rte_pktmbuf_free(frames_[head_]);
    head_ = (head_ + 1) % kCapacity;
  }
  return cleared;
}

}  // namespace gradwire::lane
