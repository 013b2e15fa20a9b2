// SPDX-License-Identifier: BSD-3-Clause
#include "port/too_big.h"

#include <algorithm>
#include <cstring>

namespace gradwire::port {

namespace {

constexpr std::size_t kIcmpBytes = 8;
constexpr std::uint8_t kProtocolIcmp = 1;
constexpr std::uint8_t kNextIcmpv6 = 58;
constexpr std::uint8_t kProtocolUdp = 17;

unsigned load8(std::span<const std::byte> bytes, std::size_t at) noexcept {
  return std::to_integer<unsigned>(bytes[at]);
}

unsigned load16(std::span<const std::byte> bytes, std::size_t at) noexcept {
  return load8(bytes, at) << 8 | load8(bytes, at + 1);
}

wire::IpAddress ip_at(std::span<const std::byte> bytes, std::size_t at,
                      std::uint8_t family = 4) noexcept {
  wire::IpAddress ip{.family = family};
  std::memcpy(ip.bytes.data(), &bytes[at], family == 4 ? 4 : 16);
  return ip;
}

/// The IPv4 header at the front; nothing unless it is whole and of that protocol.
std::optional<std::size_t> header_bytes(std::span<const std::byte> packet,
                                        std::uint8_t protocol) noexcept {
  if (packet.size() < wire::kIpv4Bytes || load8(packet, 0) >> 4 != 4) return std::nullopt;
  const std::size_t bytes = std::size_t{load8(packet, 0) & 15} * 4;
  if (bytes < wire::kIpv4Bytes || bytes > packet.size() || load8(packet, 9) != protocol) {
    return std::nullopt;
  }
  return bytes;
}

/// Whether an IPv6 header is at the front, whole, and that protocol follows it.
bool is_ipv6(std::span<const std::byte> packet, std::uint8_t protocol) noexcept {
  return packet.size() >= wire::kIpv6Bytes && load8(packet, 0) >> 4 == 6 &&
         load8(packet, 6) == protocol;
}

std::optional<TooBig> read_ipv6(std::span<const std::byte> packet,
                                const wire::IpAddress& own) noexcept {
  if (!is_ipv6(packet, kNextIcmpv6) || ip_at(packet, 24, 6) != own) return std::nullopt;
  const auto icmp = packet.subspan(wire::kIpv6Bytes);
  if (icmp.size() < kIcmpBytes || load8(icmp, 0) != 2 || load8(icmp, 1) != 0) return std::nullopt;
  const auto quoted = icmp.subspan(kIcmpBytes);
  if (!is_ipv6(quoted, kProtocolUdp) || ip_at(quoted, 8, 6) != own) return std::nullopt;
  return TooBig{ip_at(packet, 8, 6), ip_at(quoted, 24, 6),
                static_cast<std::uint32_t>(wire::kIpv6Bytes) + load16(quoted, 4),
                load16(icmp, 4) << 16 | load16(icmp, 6)};
}

}  // namespace

std::optional<TooBig> read_too_big(std::span<const std::byte> frame,
                                   const wire::IpAddress& own) noexcept {
  std::size_t offset = wire::kEthernetBytes;
  if (frame.size() < offset + wire::kVlanBytes) return std::nullopt;
  if (load16(frame, 12) == 0x8100) offset += wire::kVlanBytes;
  const auto packet = frame.subspan(offset);
  if (load16(frame, offset - 2) == 0x86dd && own.family == 6) return read_ipv6(packet, own);
  if (load16(frame, offset - 2) != 0x0800 || own.family != 4) return std::nullopt;
  const auto outer = header_bytes(packet, kProtocolIcmp);
  if (!outer || ip_at(packet, 16) != own) return std::nullopt;
  const auto icmp = packet.subspan(*outer);
  if (icmp.size() < kIcmpBytes || load8(icmp, 0) != 3 || load8(icmp, 1) != 4) return std::nullopt;
  const auto quoted = icmp.subspan(kIcmpBytes);
  const auto inner = header_bytes(quoted, kProtocolUdp);
  if (!inner || ip_at(quoted, 12) != own) return std::nullopt;
  return TooBig{ip_at(packet, 12), ip_at(quoted, 16), load16(quoted, 2), load16(icmp, 6)};
}

bool TooBigTable::add(const TooBig& message) {
  const auto found = std::find_if(messages_.begin(), messages_.end(), [&](const TooBig& known) {
    return known.destination == message.destination;
  });
  if (found != messages_.end()) {
    const bool is_new = found->router != message.router || found->mtu != message.mtu;
    *found = message;
    return is_new;
  }
  if (messages_.size() < kDestinations) {
    messages_.push_back(message);
  } else {
    messages_[next_] = message;
    next_ = (next_ + 1) % kDestinations;
  }
  return true;
}

std::optional<TooBig> TooBigTable::find(const wire::IpAddress& destination) const noexcept {
  for (const TooBig& message : messages_) {
    if (message.destination == destination) return message;
  }
  return std::nullopt;
}

}  // namespace gradwire::port
