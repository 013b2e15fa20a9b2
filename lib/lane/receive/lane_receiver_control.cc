// SPDX-License-Identifier: BSD-3-Clause
// Frames that are none of a shard's: those for the control thread, and pings.
#include <rte_ring.h>

#include <algorithm>
#include <cstring>

#include "lane/receive/lane_receiver.h"
#include "port/echo.h"

namespace gradwire::lane {
namespace {

std::span<std::byte> first_segment(rte_mbuf* frame) noexcept {
  return {rte_pktmbuf_mtod(frame, std::byte*), rte_pktmbuf_data_len(frame)};
}

}  // namespace

/// Routers may be anywhere, so what they say has a limit of its own, below what the control thread
/// does for neighbors.
void LaneReceiver::too_big(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
                           TimeNs now) noexcept {
  if (!ports_[port_index].too_big.allow(now)) {
    count(counters_.neighbor_drops);
    rte_pktmbuf_free(frame);
    return;
  }
  pass_to_control(port_index, frame, std::as_bytes(std::span(view.source_ip.bytes)), now);
}

/// Passes a frame to the control thread, as a copy of its front in an mbuf of no lane. In a flood
/// it copies only as many as would be answered.
void LaneReceiver::pass_to_control(std::uint16_t port_index, rte_mbuf* frame,
                                   std::span<const std::byte> sender, TimeNs now) noexcept {
  if (!ports_[port_index].arp.allow(sender, now)) {
    count(counters_.neighbor_drops);
    rte_pktmbuf_free(frame);
    return;
  }
  rte_mbuf* copy = rte_pktmbuf_alloc(config_.shared.exchange_pool);
  const std::span<std::byte> whole = first_segment(frame);
  const auto bytes = whole.first(std::min(whole.size(), kControlFrameBytes));
  char* room = copy == nullptr ? nullptr
                               : rte_pktmbuf_append(copy, static_cast<std::uint16_t>(bytes.size()));
  if (room != nullptr) {
    std::memcpy(room, bytes.data(), bytes.size());
    copy->port = port_index;
  }
  if (room != nullptr && rte_ring_mp_enqueue(config_.shared.neighbor_frames, copy) == 0) {
    count(counters_.neighbor_frames);
    config_.shared.control_bell->ring();
  } else {
    count(counters_.neighbor_drops);
    rte_pktmbuf_free(copy);
  }
  rte_pktmbuf_free(frame);
}

void LaneReceiver::echo(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
                        TimeNs now) noexcept {
  LanePort& port = ports_[port_index];
  const bool ours = rte_mbuf_refcnt_read(frame) == 1 && RTE_MBUF_DIRECT(frame);
  // Pings may use at most half of the backlog; the rest stays free for packets.
  const bool may = (ours || port.rx_exclusive) && port.tx.room() > TxQueue::kCapacity / 2;
  if (!may || !port.echoes.allow(now)) {
    count(counters_.replies_withheld);
  } else if ((frame->nb_segs == 1 || gather(frame)) &&
             port::answer_echo(first_segment(frame), view)) {
    count(counters_.echo_replies);
    port.tx.push(frame);
    return;
  }
  drop(frame, wire::Drop::kForeign);
}

}  // namespace gradwire::lane
