// SPDX-License-Identifier: BSD-3-Clause
#include <rte_ethdev.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/profile.h"
#include "base/require.h"
#include "lane/receive/lane_receiver.h"
#include "port/payload_split.h"

namespace gradwire::lane {

namespace {

std::span<std::byte> bytes_of(rte_mbuf* frame) noexcept {
  return {rte_pktmbuf_mtod(frame, std::byte*), rte_pktmbuf_data_len(frame)};
}

/// Whether it asks for that address or answers it, or says that it is the sender's. `arp` has at
/// least 28 bytes.
bool is_arp_for(const wire::IpAddress& ip, std::span<const std::byte> arp) noexcept {
  constexpr std::size_t kSenderOffset = 14;
  constexpr std::size_t kTargetOffset = 24;
  return std::memcmp(arp.data() + kTargetOffset, ip.bytes.data(), 4) == 0 ||
         std::memcmp(arp.data() + kSenderOffset, ip.bytes.data(), 4) == 0;
}

/// Whether a neighbor solicitation or advertisement does.
bool is_discovery_for(const wire::IpAddress& ip, const wire::FrameView& view) noexcept {
  constexpr std::size_t kTargetOffset = 8;
  return std::memcmp(view.payload.data() + kTargetOffset, ip.bytes.data(), ip.bytes.size()) == 0 ||
         view.destination_ip == ip || view.source_ip == ip;
}

/// Its MAC and IPv4 address: whoever floods in another's name does not keep that one from being
/// heard.
std::span<const std::byte> arp_sender(std::span<const std::byte> arp) noexcept {
  constexpr std::size_t kSenderOffset = 8;
  constexpr std::size_t kSenderBytes = 10;
  return arp.subspan(kSenderOffset, kSenderBytes);
}

/// The MAC and IPv6 address that it comes from, for the reason of arp_sender().
std::array<std::byte, 22> discovery_sender(const wire::FrameView& view) noexcept {
  std::array<std::byte, 22> sender;
  std::memcpy(sender.data(), view.source_mac.data(), view.source_mac.size());
  std::memcpy(sender.data() + view.source_mac.size(), view.source_ip.bytes.data(),
              view.source_ip.bytes.size());
  return sender;
}

wire::Drop decode_header(const wire::FrameView& view, wire::Packet& out) noexcept {
  if (view.source_ip.family == 4) [[likely]]
    return wire::decode_header(view.payload, out);
  return wire::decode_header(view.payload, out,
                             wire::address_crc(view.source_ip, view.destination_ip));
}

}  // namespace

LaneReceiver::LaneReceiver(const LaneConfig& config, std::vector<LanePort>& ports,
                           GroupSlots& slots, Rests& rests, LaneCounters& counters)
    : config_(config),
      ports_(ports),
      slots_(slots),
      rests_(rests),
      counters_(counters),
      groups_(config.hash_secret, config.max_groups) {
  touched_.reserve(config.max_groups);
}

void LaneReceiver::add_group(const GroupSlot& slot) {
  require(slot.shard != nullptr && !slot.closed, "packets go to a group that is open");
  groups_.add(slot.shard->config(), slots_.index_of(slot));
  runs_.forget();
}

void LaneReceiver::remove_group(const GroupSlot& slot) noexcept {
  groups_.remove(slot.shard->config(), slots_.index_of(slot));
  runs_.forget();
}

inline void LaneReceiver::receive_frame(std::uint16_t port_index, rte_mbuf* frame,
                                        TimeNs now) noexcept {
  const profile::Stage stage(profile::StageId::kDecode);
  if (frame->nb_segs == 1 && runs_.take(port_index, bytes_of(frame), frame)) {
    if (runs_.size() == 1) {
      touch(run_slot_);
      flowed_ = true;
    }
    return;
  }
  receive_unlike(port_index, frame, now);
}

bool LaneReceiver::receive(TimeNs now) noexcept {
  flowed_ = false;
  bool received_any = false;
  std::array<rte_mbuf*, kMaxBurst> frames;
  for (std::uint16_t p = 0; p < ports_.size(); ++p) {
    ports_[p].takes_bursts = ports_[p].port->takes_bursts(config_.lane);
    if (!ports_[p].takes_bursts) continue;
    const std::uint16_t burst = ports_[p].rx_burst;
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint16_t received = 0;
    // A burst has as many frames as make up a round's bytes if all are full. If frames are small, a
    // round takes several bursts: that costs nothing if there are few, and if there are many they
    // must not fill the port's queue.
    do {
      {
        const profile::Stage stage(profile::StageId::kRx);
        received = rte_eth_rx_burst(ports_[p].port_id, config_.lane, frames.data(), burst);
      }
      require(received <= burst, "a driver gives no more than it was asked for");
      const std::span<rte_mbuf* const> passed =
          ports_[p].pass_faults(std::span(frames).first(received), now);
      // Headers are in two cache lines. Without prefetching, waiting for them would be most of a
      // small frame's cost.
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
    runs_.end(now);  // A run may go through all bursts of the round.
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

void LaneReceiver::receive_unlike(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  runs_.end(now);
  // A payload must be in one piece to be reduced. If payloads are not split off, a chain of mbufs
  // is rare.
  if (frame->nb_segs > 1) {
    receive_segments(port_index, frame, now);
  } else {
    receive_whole(port_index, frame, now);
  }
}

void LaneReceiver::receive_whole(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  wire::FrameView& view = view_;
  const wire::Drop why = wire::parse_frame(bytes_of(frame), view);
  if (why != wire::Drop::kNone) {
    drop(frame, why);
    return;
  }
  const LanePort& port = ports_[port_index];
  if (!port.gets(view)) {
    drop(frame, wire::Drop::kForeign);
    return;
  }
  switch (view.kind) {
    case wire::FrameKind::kUdp:
      if (is_for_lane(port, view)) {
        receive_packet(port_index, frame, view, now);
        return;
      }
      break;
    case wire::FrameKind::kArp:
      // Most ARP requests are for other hosts; the control thread need not see them.
      if (is_arp_for(port.ip, view.payload)) {
        pass_to_control(port_index, frame, arp_sender(view.payload), now);
        return;
      }
      break;
    case wire::FrameKind::kDiscovery:
      if (is_discovery_for(port.ip, view)) {
        pass_to_control(port_index, frame, discovery_sender(view), now);
        return;
      }
      break;
    case wire::FrameKind::kIcmpTooBig:
      if (port.is_meant_by(view)) {
        too_big(port_index, frame, view, now);
        return;
      }
      break;
    case wire::FrameKind::kIcmpEcho:
      if (port.is_meant_by(view)) {
        echo(port_index, frame, view, now);
        return;
      }
      break;
    case wire::FrameKind::kOther:
      break;
  }
  drop(frame, wire::Drop::kForeign);
}

std::uint16_t LaneReceiver::slot_of(const wire::IpAddress& source,
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

void LaneReceiver::receive_packet(std::uint16_t port_index, rte_mbuf* frame, wire::FrameView& view,
                                  TimeNs now) noexcept {
  wire::Drop why = decode_header(view, packet_);
  if (why == wire::Drop::kVersion) note_other_version(view, now);
  collective::PacketSource from;
  std::span<const std::byte> packet = view.payload;
  std::uint16_t found = GroupIndex::kNoSlot;
  if (why == wire::Drop::kNone) {
    found = slot_of(view.source_ip, from);
    if (found == GroupIndex::kNoSlot) {
      why = wire::Drop::kUnknownGroup;
      note_other_group(view, now);
    } else if (from.drop == wire::Drop::kNone) {
      // What is not opened is no neighbor's.
      if (from.sealed) from.drop = open_packet(*slots_[found].shard, frame, view, packet);
      if (from.drop == wire::Drop::kNone) why = wire::decode_body(packet, packet_);
    }
  }
  if (why != wire::Drop::kNone) {
    drop(frame, why);
    return;
  }
  // decode_body() assumes that a payload follows its header.
  if (frame->nb_segs > 1) {
    packet_.payload = {rte_pktmbuf_mtod(frame->next, const std::byte*), packet_.payload.size()};
  }
  GroupSlot& slot = slots_[found];
  if (from.drop != wire::Drop::kNone && packet_.common.type == wire::PacketType::kHello) {
    note_unfit_hello(*slot.shard, from.drop, view.source_ip);
  }
  // A packet that no neighbor sent does not end a group's rest: the shard only counts and drops
  // it.
  if (from.drop == wire::Drop::kNone) touch(found);
  const wire::PacketType type = packet_.common.type;
  flowed_ |= slot.touched && type != wire::PacketType::kPing && type != wire::PacketType::kAck;
  constexpr std::uint8_t kCongestionExperienced = 3;
  const bool ecn_ce = view.ecn == kCongestionExperienced;
  if (type == wire::PacketType::kData && from.drop == wire::Drop::kNone && frame->nb_segs == 1) {
    runs_.begin(*slot.shard, from, packet_, ecn_ce, port_index, bytes_of(frame), view, frame);
    run_slot_ = found;
    return;
  }
  slot.shard->on_packet(frame, packet_, from, ecn_ce, now);
}

wire::Drop LaneReceiver::open_packet(collective::Shard& shard, rte_mbuf*& frame,
                                     wire::FrameView& view,
                                     std::span<const std::byte>& packet) const noexcept {
  const wire::Drop drop = shard.open(packet_.common, frame, packet);
  // It may lie in another buffer now.
  view.payload = {packet.data(), view.payload.size()};
  return drop;
}

/// A packet came that concerns the group.
void LaneReceiver::touch(std::uint16_t index) noexcept {
  GroupSlot& slot = slots_[index];
  if (slot.touched) return;
  require(slot.shard != nullptr && !slot.closed, "a packet concerns a group that is open");
  rests_.wake(slot);
  slot.touched = true;
  touched_.push_back(index);
}

void LaneReceiver::receive_segments(std::uint16_t port_index, rte_mbuf* frame,
                                    TimeNs now) noexcept {
  const LanePort& port = ports_[port_index];
  const bool splits = port.port->splits_payload();
  if (splits && rte_pktmbuf_data_len(frame) >=
                    port::split_header_bytes(port.vlan_id.has_value(), port.ip.family)) {
    receive_split(port_index, frame, now);
  } else if (splits ? gather(frame) : rte_pktmbuf_linearize(frame) == 0) {
    receive_whole(port_index, frame, now);
  } else {
    drop(frame, wire::Drop::kNoBuffer);
  }
}

/// Handles a frame whose first segment has all headers, including the packet's. The rest may be in
/// GPU memory, which is slow to read, so it is read only for neighbors and for pings that will be
/// answered.
void LaneReceiver::receive_split(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept {
  const LanePort& port = ports_[port_index];
  // Parsing reads only headers; of the rest it needs only the length.
  wire::FrameView& view = view_;
  const wire::Drop why =
      wire::parse_frame({rte_pktmbuf_mtod(frame, const std::byte*), frame->pkt_len}, view);
  if (why != wire::Drop::kNone) {
    drop(frame, why);
  } else if (!port.gets(view)) {
    drop(frame, wire::Drop::kForeign);
  } else if (view.kind == wire::FrameKind::kIcmpEcho && port.is_meant_by(view)) {
    echo(port_index, frame, view, now);
  } else if (view.kind == wire::FrameKind::kIcmpTooBig && port.is_meant_by(view)) {
    too_big(port_index, frame, view, now);
  } else if (view.kind == wire::FrameKind::kDiscovery && is_discovery_for(port.ip, view)) {
    // Longer than a packet's headers by its options.
    if (gather(frame)) {
      receive_whole(port_index, frame, now);
    } else {
      drop(frame, wire::Drop::kNoBuffer);
    }
  } else if (view.kind != wire::FrameKind::kUdp || !is_for_lane(port, view) ||
             (!groups_.has_neighbor(view.source_ip) && !is_of_a_rank(view))) {
    drop(frame, wire::Drop::kForeign);
  } else if (is_split_chunk(frame, view) || gather(frame)) {
    receive_packet(port_index, frame, view, now);
  } else {
    drop(frame, wire::Drop::kNoBuffer);
  }
}

/// Whether the packet's header, which is in the first segment, is of a rank that is no neighbor.
bool LaneReceiver::is_of_a_rank(const wire::FrameView& view) noexcept {
  collective::PacketSource from;
  return decode_header(view, packet_) == wire::Drop::kNone &&
         slot_of(view.source_ip, from) != GroupIndex::kNoSlot && from.drop == wire::Drop::kNone;
}

/// Whether it is a chunk whose header ends the first segment and whose payload is the second. Reads
/// nothing of the payload, since only the GPU can.
bool LaneReceiver::is_split_chunk(const rte_mbuf* frame, const wire::FrameView& view) noexcept {
  const auto* const end = rte_pktmbuf_mtod_offset(frame, const std::byte*, frame->data_len);
  return frame->nb_segs == 2 && view.payload.size() >= wire::kHeaderBytes &&
         view.payload.data() + wire::kHeaderBytes == end &&
         view.payload[1] == static_cast<std::byte>(wire::PacketType::kData) &&
         view.payload.size() - wire::kHeaderBytes <= frame->next->data_len;
}

/// Copies all segments into the first one, those in GPU memory through its mapping.
bool LaneReceiver::gather(rte_mbuf* frame) noexcept {
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

bool LaneReceiver::is_for_lane(const LanePort& port, const wire::FrameView& view) const noexcept {
  return view.destination_ip == port.ip && view.destination_port == config_.udp_port;
}

void LaneReceiver::drop(rte_mbuf* frame, wire::Drop why) noexcept {
  count(counters_.drops[static_cast<std::size_t>(why)]);
  rte_pktmbuf_free(frame);
}

}  // namespace gradwire::lane
