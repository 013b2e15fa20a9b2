// SPDX-License-Identifier: BSD-3-Clause
// Frames in a world: from the wire into a host, out of it, and while its driver holds them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/require.h"
#include "sim/describe.h"
#include "sim/world/addresses.h"
#include "sim/world/world.h"

namespace gradwire::sim {
namespace {

/// What Ethernet adds to a frame: preamble, checksum, gap between frames.
constexpr std::uint32_t kEthernetOverhead = 24;

std::uint64_t digest_of(const rte_mbuf* mbuf) noexcept {
  const auto* bytes = rte_pktmbuf_mtod(mbuf, const std::byte*);
  std::uint64_t digest = mbuf->data_len;
  std::size_t i = 0;
  for (; i + 8 <= mbuf->data_len; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    digest = (std::rotl(digest, 23) ^ word) * 0x9e3779b97f4a7c15;
  }
  for (; i < mbuf->data_len; ++i)
    digest = std::rotl(digest, 8) ^ static_cast<std::uint8_t>(bytes[i]);
  return digest;
}

}  // namespace

std::vector<collective::LinkPath> World::other_paths(HostId from, HostId to,
                                                     std::uint8_t lane) const {
  std::vector<collective::LinkPath> paths;
  for (std::uint8_t i = 1; i < options_.rails; ++i) {
    const auto rail = static_cast<std::uint8_t>((lane + i) % options_.rails);
    const std::uint8_t family = family_of(rail);
    paths.push_back({ip_of(to, rail, family), frame_between(from, to, lane, rail, family), rail});
  }
  return paths;
}

std::uint8_t World::spine_of(HostId from, HostId to, std::uint16_t source_port) const {
  std::uint64_t hash = options_.seed;
  for (const std::uint64_t part : {from, to, source_port}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return static_cast<std::uint8_t>((hash >> 32) % options_.spines);
}

void World::arrive(std::uint32_t flight_index) {
  Flight& flight = network_.flight(flight_index);
  Host& host = hosts_[flight.to % options_.hosts];
  if (!host.alive) {
    network_.release(flight_index);
    return;
  }
  if (host.stock.empty() && host.profile.rx_stock != 0) refill(host);
  if (host.stock.empty()) {
    ++receive_overruns_;
    trace_.mix(now_, 30, flight.to);
    trace_.line(now_, "host {:<3} has no receive descriptor: a frame is gone", flight.to);
    network_.release(flight_index);
    return;
  }
  rte_mbuf* mbuf = host.stock.back();
  host.stock.pop_back();
  require(flight.bytes.size() + RTE_PKTMBUF_HEADROOM <= mbuf->buf_len, "a frame fits its mbuf");
  mbuf->data_off = RTE_PKTMBUF_HEADROOM;
  mbuf->data_len = static_cast<std::uint16_t>(flight.bytes.size());
  mbuf->pkt_len = mbuf->data_len;
  std::memcpy(rte_pktmbuf_mtod(mbuf, std::byte*), flight.bytes.data(), flight.bytes.size());
  host.rx.push_back({mbuf, flight.marked});
  network_.release(flight_index);
  const TimeNs jitter = host.profile.round_jitter_ns;
  wake(host, std::max(now_, host.last_poll + host.profile.round_ns) +
                 (jitter > 0 ? random_.between(0, jitter) : 0));
}

void World::refill(Host& host) {
  const std::size_t most =
      host.profile.rx_stock != 0 ? host.profile.rx_stock : host.profile.rx_descriptors;
  while (host.stock.size() < most &&
         host.stock.size() + host.rx.size() < host.profile.rx_descriptors) {
    rte_mbuf* mbuf = rte_pktmbuf_alloc(host.packets->get());
    if (mbuf == nullptr) return;
    host.stock.push_back(mbuf);
  }
}

void World::look_at_piece(std::span<const std::byte> bytes) {
  wire::Packet packet;
  if (wire::decode_header(bytes, packet) != wire::Drop::kNone) return;
  // Of a sealed one the header is in clear, which is all that is looked at.
  if (packet.common.sealed != 0) return;
  if (wire::decode_body(bytes, packet) != wire::Drop::kNone) return;
  for (const Group& group : groups_) {
    const std::uint16_t rank = packet.common.from_rank;
    if (wire::group_tag(group.options.key) != packet.common.group_tag) continue;
    if (rank >= group.ranks.size()) continue;
    const auto& lanes_done = group.ranks[rank].lanes_done;
    const std::uint64_t op_seq = packet.tile.op_seq;
    // Encoded results lie in the owner's scratch memory until all have them.
    if (packet.tile.result && packet.tile.format != WireFormat::kSame) continue;
    if (op_seq >= lanes_done.size() || lanes_done[op_seq] != group.options.lanes) continue;
    ++late_pieces_;
  }
}

void World::transmit(Host& host, rte_mbuf* mbuf, std::uint16_t rail) {
  const std::span<std::byte> frame(rte_pktmbuf_mtod(mbuf, std::byte*), mbuf->data_len);
  require(rail_of(frame.data() + 6) == rail, "a frame goes by the port that its addresses name");
  HostId to = port_of(host_of(frame.data()), rail_of(frame.data()));
  const HostId from = port_of(host_id(host), static_cast<std::uint8_t>(rail));
  std::uint32_t wire_bytes = mbuf->data_len + kEthernetOverhead;
  const std::uint8_t family = family_of(static_cast<std::uint8_t>(rail));
  const std::size_t headers =
      wire::kEthernetBytes + wire::ip_header_bytes(family) + wire::kUdpBytes;
  if (options_.spines > 1) {
    const auto high = std::to_integer<unsigned>(frame[headers - wire::kUdpBytes]);
    const auto low = std::to_integer<unsigned>(frame[headers - wire::kUdpBytes + 1]);
    const auto spine = spine_of(from, to, static_cast<std::uint16_t>(high << 8 | low));
    to = port_of(host_of(frame.data()), rail_of(frame.data()), spine);
  }
  // As a lane's queue does it.
  require(
      family == 4 || wire::complete_ipv6(frame.subspan(wire::kEthernetBytes), wire::UdpSum::kCpu),
      "what goes by a rail with IPv6 is a datagram of that");
  const auto type = static_cast<wire::PacketType>(frame[headers + 1]);
  if (type == wire::PacketType::kData && options_.payload_scale > 1) {
    const auto payload = static_cast<std::uint32_t>(frame.size() - headers - wire::kHeaderBytes);
    wire_bytes += payload * (options_.payload_scale - 1);
  }
  if (type == wire::PacketType::kTilePiece) look_at_piece(frame.subspan(headers));
  keys_.look_at(frame.subspan(headers));
  if (trace_.prints()) {
    trace_.line(now_, "host {:<3} -> {} to host {}", host_id(host), describe_frame(frame), to);
  }
  if (!loses_ || !loses_(from, to, type)) put_on_wire(host, from, to, frame, wire_bytes);
  if (options_.forging > 0 && random_.chance(options_.forging)) forge(from, to, frame, headers);
  if (recorded_.size() < records_wanted_ && random_.below(4) == 0) {
    recorded_.push_back({from, to, {frame.begin(), frame.end()}});
  }
  if (host.profile.driver_holds_ns == 0) {
    rte_pktmbuf_free(mbuf);
    return;
  }
  if (host.held.empty()) {
    events_.push(now_ + host.profile.driver_holds_ns, QueuedEvent::Kind::kDriverDone,
                 host_id(host));
  }
  host.held.push_back({now_ + host.profile.driver_holds_ns, mbuf, digest_of(mbuf)});
}

void World::put_on_wire(Host& host, HostId from, HostId to, std::span<const std::byte> frame,
                        std::uint32_t wire_bytes) {
  if (host.profile.packet_ns == 0) return network_.send(now_, from, to, frame, wire_bytes);
  host.busy_until = std::max(host.busy_until, now_) + host.profile.packet_ns;
  at(host.busy_until,
     [this, from, to, wire_bytes, copy = std::vector<std::byte>(frame.begin(), frame.end())] {
       network_.send(now_, from, to, copy, wire_bytes);
     });
}

void World::driver_done(Host& host) {
  while (!host.held.empty() && host.held.front().until <= now_) {
    const Held held = host.held.front();
    host.held.pop_front();
    if (digest_of(held.mbuf) != held.digest) {
      ++frames_changed_;
      trace_.line(now_, "host {:<3} changed a frame that its driver still held", host_id(host));
    }
    rte_pktmbuf_free(held.mbuf);
  }
  if (!host.held.empty()) {
    events_.push(host.held.front().until, QueuedEvent::Kind::kDriverDone, host_id(host));
  }
  wake(host, now_);
}

}  // namespace gradwire::sim
