// SPDX-License-Identifier: BSD-3-Clause
#include "port/echo.h"

#include <algorithm>
#include <cstring>

#include "port/ethernet_start.h"
#include "wire/internet_checksum.h"

namespace gradwire::port {

namespace {

void swap_macs(std::span<std::byte> frame, const wire::FrameView& view) noexcept {
  std::memcpy(frame.data(), view.source_mac.data(), 6);
  std::memcpy(frame.data() + 6, view.destination_mac.data(), 6);
}

/// Whether a host may send from that IPv4 address (RFC 1122 section 3.2.1.3): no host has an
/// address in 0/8 or 127/8, or a multicast, reserved or broadcast address.
bool is_ipv4_host(const wire::IpAddress& ip) noexcept {
  return ip.bytes[0] != 0 && ip.bytes[0] != 127 && ip.bytes[0] < 224;
}

/// Likewise IPv6 (RFC 4291 section 2.5): neither a group nor :: nor ::1, nor what embeds an IPv4
/// address in zeros.
bool is_ipv6_host(const wire::IpAddress& ip) noexcept {
  const auto front = std::span(ip.bytes).first<10>();
  const bool zeros = std::ranges::all_of(front, [](std::uint8_t byte) { return byte == 0; });
  return !zeros && ip.bytes[0] != 0xff;
}

/// What a checksum is after the sum that it complements shrank by `more` (RFC 1624).
std::uint16_t plus(std::uint16_t checksum, std::uint32_t more) noexcept {
  const std::uint32_t sum = checksum + more;
  return static_cast<std::uint16_t>((sum & 0xffff) + (sum >> 16));
}

bool answer_echo6(std::span<std::byte> frame, const wire::FrameView& view,
                  std::size_t icmp_offset) noexcept {
  constexpr std::byte kEchoReply{129};
  constexpr std::byte kHopLimit{64};
  if (!is_ipv6_host(view.source_ip) ||
      !wire::icmpv6_sum_ok(view.source_ip, view.destination_ip, view.payload)) {
    return false;
  }
  std::byte* ip = frame.data() + view.ip_offset;
  ip[7] = kHopLimit;
  std::memcpy(ip + 8, view.destination_ip.bytes.data(), 16);  // the sum does not change by a swap
  std::memcpy(ip + 24, view.source_ip.bytes.data(), 16);
  std::byte* icmp = frame.data() + icmp_offset;
  icmp[0] = kEchoReply;
  // Type 128 became 129: the checksum shrinks by 0x0100.
  store16(icmp + 2, plus(load16(icmp + 2), 0xffff - 0x0100));
  return true;
}

}  // namespace

bool answer_echo(std::span<std::byte> frame, const wire::FrameView& view) noexcept {
  constexpr std::size_t kIcmpBytes = 8;
  if (view.kind != wire::FrameKind::kIcmpEcho || view.payload.size() < kIcmpBytes) return false;
  if (view.ip_offset + wire::ip_header_bytes(view.source_ip.family) > frame.size()) return false;
  if ((view.source_mac[0] & 1) != 0 || view.source_ip == view.destination_ip) return false;
  const auto icmp_offset = static_cast<std::size_t>(view.payload.data() - frame.data());
  if (icmp_offset + view.payload.size() > frame.size()) return false;
  if (view.source_ip.family == 6) {
    if (!answer_echo6(frame, view, icmp_offset)) return false;
    swap_macs(frame, view);
    return true;
  }
  if (!is_ipv4_host(view.source_ip)) return false;

  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < view.payload.size(); i += 2) sum += load16(&view.payload[i]);
  if (view.payload.size() % 2 != 0) sum += std::to_integer<std::uint32_t>(view.payload.back()) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  if (sum != 0xffff) return false;

  swap_macs(frame, view);
  std::byte* ip = frame.data() + view.ip_offset;
  std::memcpy(ip + 12, view.destination_ip.bytes.data(), 4);  // the sum does not change by a swap
  std::memcpy(ip + 16, view.source_ip.bytes.data(), 4);
  std::byte* icmp = frame.data() + icmp_offset;
  icmp[0] = std::byte{0};
  // Type 8 became 0: the checksum grows by 0x0800 in one's complement.
  store16(icmp + 2, plus(load16(icmp + 2), 0x0800));
  return true;
}

}  // namespace gradwire::port
