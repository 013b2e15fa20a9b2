// SPDX-License-Identifier: BSD-3-Clause
#include "port/neighbors/neighbor_message.h"

#include <algorithm>
#include <cstring>

#include "port/ethernet_start.h"
#include "port/neighbors/neighbor_discovery.h"

namespace gradwire::port {

namespace {

constexpr std::uint16_t kEtherTypeArp = 0x0806;
constexpr std::uint16_t kArpRequest = 1;
constexpr std::uint16_t kArpReply = 2;
constexpr std::size_t kArpBytes = 28;

NeighborFrame make_arp(const NeighborSender& from, std::uint16_t operation,
                       const wire::MacAddress& to, const wire::IpAddress& sender_ip,
                       const wire::MacAddress& target_mac,
                       const wire::IpAddress& target_ip) noexcept {
  NeighborFrame frame;
  std::byte* const p = put_ethernet(frame, from, to, kEtherTypeArp);
  store16(p, 1);           // Ethernet
  store16(p + 2, 0x0800);  // IPv4
  p[4] = std::byte{6};
  p[5] = std::byte{4};
  store16(p + 6, operation);
  std::memcpy(p + 8, from.mac.data(), 6);
  std::memcpy(p + 14, sender_ip.bytes.data(), 4);
  std::memcpy(p + 18, target_mac.data(), 6);
  std::memcpy(p + 24, target_ip.bytes.data(), 4);
  const auto used = static_cast<std::size_t>(p + kArpBytes - frame.bytes.data());
  frame.size = std::max(used, kMinFrameBytes);
  return frame;
}

MessageVerdict read_arp(const wire::FrameView& frame, NeighborMessage& out) noexcept {
  if (frame.payload.size() < kArpBytes) return MessageVerdict::kNone;
  const std::byte* p = frame.payload.data();
  if (load16(p) != 1 || load16(p + 2) != 0x0800 || p[4] != std::byte{6} || p[5] != std::byte{4}) {
    return MessageVerdict::kNone;
  }
  const std::uint16_t operation = load16(p + 6);
  if (operation != kArpRequest && operation != kArpReply) return MessageVerdict::kNone;
  out.is_question = operation == kArpRequest;
  out.sender_ip.family = out.target_ip.family = 4;
  std::memcpy(out.sender_mac.data(), p + 8, 6);
  std::memcpy(out.sender_ip.bytes.data(), p + 14, 4);
  std::memcpy(out.target_mac.data(), p + 18, 6);
  std::memcpy(out.target_ip.bytes.data(), p + 24, 4);
  // A host is no group of hosts (RFC 1812 section 3.3.2), and a reply goes to who asked.
  const bool good = is_unicast(out.sender_mac) && is_unicast(frame.source_mac) &&
                    (out.is_question || is_unicast(frame.destination_mac));
  return good ? MessageVerdict::kGood : MessageVerdict::kRefused;
}

}  // namespace

NeighborFrame make_question(const NeighborSender& from, const wire::IpAddress& target,
                            const std::optional<wire::MacAddress>& to) noexcept {
  if (target.family == 6) return make_solicitation(from, target, to);
  return make_arp(from, kArpRequest, to.value_or(wire::kBroadcastMac), from.ip, {}, target);
}

NeighborFrame make_probe(const NeighborSender& from) noexcept {
  if (from.ip.family == 6) return make_duplicate_question(from);
  return make_arp(from, kArpRequest, wire::kBroadcastMac, {}, {}, from.ip);
}

NeighborFrame make_answer(const NeighborSender& from, const NeighborMessage& question) noexcept {
  if (from.ip.family == 6) return make_advertisement(from, question);
  return make_arp(from, kArpReply, question.sender_mac, from.ip, question.sender_mac,
                  question.sender_ip);
}

MessageVerdict read_message(const wire::FrameView& frame, NeighborMessage& out) noexcept {
  out = NeighborMessage{};
  if (frame.kind == wire::FrameKind::kArp) return read_arp(frame, out);
  if (frame.kind == wire::FrameKind::kDiscovery) return read_discovery(frame, out);
  return MessageVerdict::kNone;
}

const char* protocol_name(const wire::IpAddress& ip) noexcept {
  return ip.family == 6 ? "neighbor discovery" : "ARP";
}

}  // namespace gradwire::port
