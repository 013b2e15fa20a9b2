// SPDX-License-Identifier: BSD-3-Clause
// From the port to the shard: what comes in is told apart, checked, counted, and given away.
#include <rte_ethdev.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/profile.h"
#include "lane/lane.h"
#include "port/echo.h"
#include "port/payload_split.h"

namespace gradwire::lane {

namespace {

std::span<std::byte> bytes_of(rte_mbuf* frame) noexcept {
  return {rte_pktmbuf_mtod(frame, std::byte*), rte_pktmbuf_data_len(frame)};
}

/// Without a call of memcmp, which std::array's operator is.
bool same_mac(const wire::MacAddress& a, const wire::MacAddress& b) noexcept {
  using Words = std::array<std::uint16_t, 3>;
  const auto x = std::bit_cast<Words>(a);
  const auto y = std::bit_cast<Words>(b);
  return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2])) == 0;
}

bool is_multicast(const wire::MacAddress& mac) noexcept { return (mac[0] & 1) != 0; }

/// Whether it asks for that address or answers it, or says that it is the sender's. `arp` has 28
/// bytes at least.
bool is_arp_for(const wire::IpAddress& ip, std::span<const std::byte> arp) noexcept {
  constexpr std::size_t kSenderOffset = 14;
  constexpr std::size_t kTargetOffset = 24;
  return std::memcmp(arp.data() + kTargetOffset, ip.bytes.data(), 4) == 0 ||
         std::memcmp(arp.data() + kSenderOffset, ip.bytes.data(), 4) == 0;
}

/// Its MAC and IPv4 address: whoever floods in another's name does not keep that one from being
/// heard.
std::span<const std::byte> arp_sender(std::span<const std::byte> arp) noexcept {
  constexpr std::size_t kSenderOffset = 8;
  constexpr std::size_t kSenderBytes = 10;
  return arp.subspan(kSenderOffset, kSenderBytes);
}

}  // namespace

bool Lane::receive(TimeNs now) noexcept {
  bool received_any = false;
  std::array<rte_mbuf*, kMaxBurst> frames;
  for (std::uint16_t p = 0; p < ports_.size(); ++p) {
    ports_[p].takes_bursts = ports_[p].port->takes_bursts();
    if (!ports_[p].takes_bursts) continue;
    const std::uint16_t burst = ports_[p].rx_burst;
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint16_t received = 0;
    // A burst is as many frames as are a round's bytes if all are full. Of small ones a round takes
    // more: it costs the same for few, and what nobody takes fills the port's queue.
    do {
      {
        const profile::Stage stage(profile::StageId::kRx);
        received = rte_eth_rx_burst(ports_[p].port_id, config_.lane, frames.data(), burst);
      }
      std::span<rte_mbuf* const> passed(frames.data(), received);
      if (ports_[p].faults != nullptr) passed = pass_faults(ports_[p], passed, now);
      // Headers take two lines. Waiting for them one by one is most of what a small frame costs.
      for (rte_mbuf* frame : passed) {
        rte_prefetch0(rte_pktmbuf_mtod(frame, void*));
        rte_prefetch0(rte_pktmbuf_mtod_offset(frame, void*, RTE_CACHE_LINE_SIZE));
      }
      for (rte_mbuf* frame : passed) {
        bytes += frame->pkt_len;
        receive_frame(p, frame, now);
      }
      packets += passed.size();
    } while (received == burst && bytes < kRoundBytes && packets + burst <= kMaxBurst);
    if (packets == 0) continue;
    received_any = true;
    count(counters_.rx_packets, packets);
    count(counters_.rx_bytes, bytes);
  }
  for (const std::uint16_t index : touched_) {
    slots_[index].touched = false;
    slots_[index].shard->flush(now);
  }
  touched_.clear();
  return received_any;
}

/// Faults stand before the lane's own counters: what they take away never arrived.
std::span<rte_mbuf* const> Lane::pass_faults(LanePort& port, std::span<rte_mbuf* const> arrived,
                                             TimeNs now) noexcept {
  const std::span<rte_mbuf* const> passed = port.faults->pass(arrived, now);
  if (port.faults->idle()) port.faults = nullptr;
  return passed;
}

void Lane::receive_frame(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  const profile::Stage stage(profile::StageId::kDecode);
  // A payload is reduced as one piece. Where none is split off a chain is the exception.
  if (frame->nb_segs > 1) {
    receive_segments(port_index, frame, now);
  } else {
    receive_whole(port_index, frame, now);
  }
}

void Lane::receive_whole(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  wire::FrameView& view = view_;
  const wire::Drop why = wire::parse_frame(bytes_of(frame), view);
  if (why != wire::Drop::kNone) {
    drop(frame, why);
    return;
  }
  const LanePort& port = ports_[port_index];
  if (!comes_to(port, view)) {
    drop(frame, wire::Drop::kForeign);
    return;
  }
  switch (view.kind) {
    case wire::FrameKind::kUdp:
      if (is_for_lane(port, view)) {
        receive_packet(frame, view, now);
        return;
      }
      break;
    case wire::FrameKind::kArp:
      // A network is full of requests for others; the control thread need not see them.
      if (is_arp_for(port.ip, view.payload)) {
        pass_to_control(port_index, frame, now);
        return;
      }
      break;
    case wire::FrameKind::kIcmpEcho:
      if (view.destination_ip == port.ip && !is_multicast(view.destination_mac)) {
        echo(port_index, frame, view, now);
        return;
      }
      break;
    case wire::FrameKind::kOther:
      break;
  }
  drop(frame, wire::Drop::kForeign);
}

std::uint16_t Lane::slot_of(const wire::IpAddress& source,
                            collective::PacketSource& from) const noexcept {
  std::uint16_t found = GroupIndex::kNoSlot;
  for (std::uint16_t slot = groups_.find(packet_.common.group_tag); slot != GroupIndex::kNoSlot;
       slot = groups_.next(slot)) {
    found = slot;
    from = slots_[slot].shard->source_of(packet_.common, source);
    if (from.drop == wire::Drop::kNone) break;
  }
  return found;
}

/// A group that does not form should say so if its neighbour speaks another version. Seldom asked:
/// whoever sends such packets may send many.
void Lane::note_other_version(const wire::FrameView& view, TimeNs now) noexcept {
  constexpr TimeNs kNoteNs = 1'000'000;
  if (now < next_version_note_ || !groups_.has_neighbour(view.source_ip)) return;
  next_version_note_ = now + kNoteNs;
  for (const std::uint16_t index : in_use_) {
    slots_[index].shard->on_other_version(view.source_ip, wire::version_of(view.payload));
  }
}

void Lane::receive_packet(rte_mbuf* frame, const wire::FrameView& view, TimeNs now) noexcept {
  wire::Drop why = wire::decode_header(view.payload, packet_);
  if (why == wire::Drop::kVersion) note_other_version(view, now);
  collective::PacketSource from;
  std::uint16_t found = GroupIndex::kNoSlot;
  if (why == wire::Drop::kNone) {
    found = slot_of(view.source_ip, from);
    if (found == GroupIndex::kNoSlot) {
      why = wire::Drop::kUnknownGroup;
    } else if (from.drop == wire::Drop::kNone) {
      why = wire::decode_body(view.payload, packet_);
    }
  }
  if (why != wire::Drop::kNone) {
    drop(frame, why);
    return;
  }
  // decode_body() takes a payload to follow its header.
  if (frame->nb_segs > 1) {
    packet_.payload = {rte_pktmbuf_mtod(frame->next, const std::byte*), packet_.payload.size()};
  }
  GroupSlot& slot = slots_[found];
  // One that the shard counts and drops, since it is no neighbour's, lets a resting group rest.
  if (!slot.touched && from.drop == wire::Drop::kNone) {
    wake(slot);
    slot.touched = true;
    touched_.push_back(found);
  }
  const wire::PacketType type = packet_.common.type;
  flowed_ |= slot.touched && type != wire::PacketType::kPing && type != wire::PacketType::kAck;
  constexpr std::uint8_t kCongestionExperienced = 3;
  slot.shard->on_packet(frame, packet_, from, view.ecn == kCongestionExperienced, now);
}

void Lane::receive_segments(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  const LanePort& port = ports_[port_index];
  const bool splits = port.port->splits_payload();
  if (splits && rte_pktmbuf_data_len(frame) >= port::split_header_bytes(port.vlan_id.has_value())) {
    receive_split(port_index, frame, now);
  } else if (splits ? gather(frame) : rte_pktmbuf_linearize(frame) == 0) {
    receive_whole(port_index, frame, now);
  } else {
    drop(frame, wire::Drop::kNoBuffer);
  }
}

/// A frame whose first segment has all headers up to a packet's. What lies behind may be in GPU
/// memory, which is slow to read: it is read for neighbours alone, and for as many pings as are
/// answered.
void Lane::receive_split(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  const LanePort& port = ports_[port_index];
  // Parsing looks at headers alone; of the rest it asks how much there is.
  wire::FrameView& view = view_;
  const wire::Drop why =
      wire::parse_frame({rte_pktmbuf_mtod(frame, const std::byte*), frame->pkt_len}, view);
  if (why != wire::Drop::kNone) {
    drop(frame, why);
  } else if (!comes_to(port, view)) {
    drop(frame, wire::Drop::kForeign);
  } else if (view.kind == wire::FrameKind::kIcmpEcho && view.destination_ip == port.ip &&
             !is_multicast(view.destination_mac)) {
    echo(port_index, frame, view, now);
  } else if (view.kind != wire::FrameKind::kUdp || !is_for_lane(port, view) ||
             !groups_.has_neighbour(view.source_ip)) {
    drop(frame, wire::Drop::kForeign);
  } else if (is_split_chunk(frame, view) || gather(frame)) {
    receive_packet(frame, view, now);
  } else {
    drop(frame, wire::Drop::kNoBuffer);
  }
}

/// Whether it is a chunk whose header ends the first segment and whose payload is the second.
/// Nothing of that payload is read, which only the GPU can.
bool Lane::is_split_chunk(const rte_mbuf* frame, const wire::FrameView& view) noexcept {
  const auto* const end = rte_pktmbuf_mtod_offset(frame, const std::byte*, frame->data_len);
  return frame->nb_segs == 2 && view.payload.size() >= wire::kHeaderBytes &&
         view.payload.data() + wire::kHeaderBytes == end &&
         view.payload[1] == static_cast<std::byte>(wire::PacketType::kData) &&
         view.payload.size() - wire::kHeaderBytes <= frame->next->data_len;
}

/// Into the first segment, what lies in GPU memory by way of its mapping.
bool Lane::gather(rte_mbuf* frame) noexcept {
  if (frame->pkt_len - frame->data_len > rte_pktmbuf_tailroom(frame)) return false;
  for (rte_mbuf* segment = frame->next; segment != nullptr; segment = segment->next) {
    const void* from = rte_pktmbuf_mtod(segment, const void*);
    if (RTE_MBUF_HAS_EXTBUF(segment)) {
      from = config_.payloads->for_cpu(from, segment->data_len);
      if (from == nullptr) return false;
    }
    std::memcpy(rte_pktmbuf_mtod_offset(frame, std::byte*, frame->data_len), from,
                segment->data_len);
    frame->data_len = static_cast<std::uint16_t>(frame->data_len + segment->data_len);
  }
  rte_pktmbuf_free(frame->next);
  frame->next = nullptr;
  frame->nb_segs = 1;
  return true;
}

bool Lane::comes_to(const LanePort& port, const wire::FrameView& view) noexcept {
  return view.vlan_id == port.vlan_id &&
         (same_mac(view.destination_mac, port.mac) || is_multicast(view.destination_mac));
}

bool Lane::is_for_lane(const LanePort& port, const wire::FrameView& view) const noexcept {
  return view.destination_ip == port.ip && view.destination_port == config_.udp_port;
}

void Lane::drop(rte_mbuf* frame, wire::Drop why) noexcept {
  count(counters_.drops[static_cast<std::size_t>(why)]);
  rte_pktmbuf_free(frame);
}

/// ARP is the control thread's: it gets a copy in an mbuf that is no lane's. Of a flood only as
/// much as it would answer is copied.
void Lane::pass_to_control(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  if (!ports_[port_index].arp.allow(arp_sender(view_.payload), now)) {
    count(counters_.neighbor_drops);
    rte_pktmbuf_free(frame);
    return;
  }
  rte_mbuf* copy = rte_pktmbuf_alloc(config_.shared.exchange_pool);
  const std::span<std::byte> bytes = bytes_of(frame);
  char* room = copy == nullptr || bytes.size() > UINT16_MAX
                   ? nullptr
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

void Lane::echo(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
                TimeNs now) noexcept {
  LanePort& port = ports_[port_index];
  const bool ours = rte_mbuf_refcnt_read(frame) == 1 && RTE_MBUF_DIRECT(frame);
  // Half of the backlog stays for packets, whoever pings.
  const bool may = (ours || port.rx_exclusive) && port.tx.room() > TxQueue::kCapacity / 2;
  if (!may || !port.echoes.allow(now)) {
    count(counters_.replies_withheld);
  } else if ((frame->nb_segs == 1 || gather(frame)) && port::answer_echo(bytes_of(frame), view)) {
    count(counters_.echo_replies);
    port.tx.push(frame);
    return;
  }
  drop(frame, wire::Drop::kForeign);
}

bool Lane::take_control_frames() noexcept {
  bool worked = false;
  void* object = nullptr;
  while (rte_ring_sc_dequeue(config_.rings.frames, &object) == 0) {
    auto* frame = static_cast<rte_mbuf*>(object);
    worked = true;
    if (frame->port < ports_.size() && ports_[frame->port].tx.room() != 0) {
      ports_[frame->port].tx.push(frame);
    } else {
      rte_pktmbuf_free(frame);
    }
  }
  return worked;
}

}  // namespace gradwire::lane
