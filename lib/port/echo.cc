// SPDX-License-Identifier: BSD-3-Clause
#include "port/echo.h"

#include <cstring>

namespace gradwire::port {

namespace {

std::uint16_t load16(const std::byte* p) noexcept {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(p[0]) << 8 |
                                    std::to_integer<unsigned>(p[1]));
}

void store16(std::byte* p, std::uint16_t value) noexcept {
  p[0] = static_cast<std::byte>(value >> 8);
  p[1] = static_cast<std::byte>(value & 0xff);
}

bool is_group(const wire::MacAddress& mac) noexcept { return (mac[0] & 1) != 0; }

/// Whether a host may send from that IPv4 address (RFC 1122 section 3.2.1.3): no host has an
/// address in 0/8 or 127/8, or a multicast, reserved or broadcast address.
bool is_host(const wire::IpAddress& ip) noexcept {
  return ip.bytes[0] != 0 && ip.bytes[0] != 127 && ip.bytes[0] < 224;
}

}  // namespace

bool answer_echo(std::span<std::byte> frame, const wire::FrameView& view) noexcept {
  constexpr std::size_t kIcmpBytes = 8;
  if (view.kind != wire::FrameKind::kIcmpEcho || view.payload.size() < kIcmpBytes) return false;
  if (view.ip_offset + wire::kIpv4Bytes > frame.size()) return false;
  if (is_group(view.source_mac) || !is_host(view.source_ip) ||
      view.source_ip == view.destination_ip) {
    return false;
  }
  const auto icmp_offset = static_cast<std::size_t>(view.payload.data() - frame.data());
  if (icmp_offset + view.payload.size() > frame.size()) return false;

  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < view.payload.size(); i += 2) sum += load16(&view.payload[i]);
  if (view.payload.size() % 2 != 0) sum += std::to_integer<std::uint32_t>(view.payload.back()) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  if (sum != 0xffff) return false;

  std::byte* ethernet = frame.data();
  std::memcpy(ethernet, view.source_mac.data(), 6);
  std::memcpy(ethernet + 6, view.destination_mac.data(), 6);
  std::byte* ip = frame.data() + view.ip_offset;
  std::memcpy(ip + 12, view.destination_ip.bytes.data(), 4);  // the sum does not change by a swap
  std::memcpy(ip + 16, view.source_ip.bytes.data(), 4);
  std::byte* icmp = frame.data() + icmp_offset;
  icmp[0] = std::byte{0};
  // Type 8 became 0: the checksum grows by 0x0800 in one's complement.
  std::uint32_t checksum = load16(icmp + 2) + 0x0800u;
  checksum = (checksum & 0xffff) + (checksum >> 16);
  store16(icmp + 2, static_cast<std::uint16_t>(checksum));
  return true;
}

}  // namespace gradwire::port
