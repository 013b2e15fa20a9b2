// SPDX-License-Identifier: BSD-3-Clause
#include "wire/frame.h"

#include <algorithm>
#include <cstring>

#include "base/require.h"

namespace gradwire::wire {
namespace {

constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr std::uint16_t kEtherTypeArp = 0x0806;
constexpr std::uint16_t kEtherTypeVlan = 0x8100;
constexpr std::uint8_t kProtocolIcmp = 1;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kIcmpEchoRequest = 8;
constexpr std::uint8_t kIcmpUnreachable = 3;
constexpr std::uint8_t kIcmpTooBigCode = 4;
constexpr std::size_t kIcmpHeaderBytes = 8;
constexpr std::size_t kArpBytes = 28;  // of IPv4 over Ethernet
constexpr std::uint8_t kProtocolIcmpv6 = 58;
constexpr std::uint8_t kIcmpv6TooBig = 2;
constexpr std::uint8_t kIcmpv6EchoRequest = 128;
constexpr std::uint8_t kIcmpv6Solicitation = 135;
constexpr std::uint8_t kIcmpv6Advertisement = 136;
constexpr std::size_t kDiscoveryBytes = 24;  // up to the options
constexpr std::uint8_t kNotForwarded = 255;  // the hop limit
constexpr std::uint8_t kTimeToLive = 64;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kMoreFragmentsOrOffset = 0x3fff;
constexpr std::uint32_t kMaxIpBytes = 65535;

constexpr std::size_t kIpLengthOffset = 2;
constexpr std::size_t kIpChecksumOffset = 10;
constexpr std::size_t kUdpLengthOffset = 4;
constexpr std::size_t kUdpChecksumOffset = 6;
constexpr std::size_t kIpv6LengthOffset = 4;

std::uint8_t load8(const std::byte* at) noexcept { return std::to_integer<std::uint8_t>(*at); }

std::uint16_t load16(const std::byte* at) noexcept {
  return static_cast<std::uint16_t>(load8(at) << 8 | load8(at + 1));
}

void store8(std::byte* at, unsigned value) noexcept { *at = static_cast<std::byte>(value); }

void store16(std::byte* at, std::size_t value) noexcept {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}

/// Sum of big-endian 16-bit words (RFC 1071), not folded.
std::uint32_t sum_words(std::span<const std::byte> bytes) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += load16(bytes.data() + i);
  return sum;
}

std::uint16_t fold(std::uint32_t sum) noexcept {
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

/// Whether the header's words sum up to all ones. That does not depend on the byte order nor on the
/// width of the words (RFC 1071 section 2), so they are taken as they lie, four bytes at a time.
bool checksum_ok(std::span<const std::byte> header) noexcept {
  const auto word = [header](std::size_t i) {
    std::uint32_t value;
    std::memcpy(&value, header.data() + 4 * i, sizeof(value));
    return std::uint64_t{value};
  };
  std::uint64_t sum = word(0) + word(1) + word(2) + word(3) + word(4);
  for (std::size_t i = 5; i < header.size() / 4; ++i) sum += word(i);
  sum = (sum & 0xffffffff) + (sum >> 32);
  return fold(static_cast<std::uint32_t>((sum & 0xffff) + (sum >> 16))) == 0xffff;
}

Drop parse_udp(std::span<const std::byte> datagram, FrameView& out) noexcept {
  if (datagram.size() < kUdpBytes) return Drop::kShort;
  const std::size_t length = load16(datagram.data() + kUdpLengthOffset);
  if (length < kUdpBytes) return Drop::kMalformed;
  if (length > datagram.size()) return Drop::kShort;
  out.source_port = load16(datagram.data());
  out.destination_port = load16(datagram.data() + 2);
  out.payload = datagram.subspan(kUdpBytes, length - kUdpBytes);
  out.kind = FrameKind::kUdp;
  return Drop::kNone;
}

/// `packet` starts at the IP header and ends with the frame.
Drop parse_ipv4(std::span<const std::byte> packet, FrameView& out) noexcept {
  if (packet.size() < kIpv4Bytes) return Drop::kShort;
  const std::uint8_t version_and_length = load8(packet.data());
  const std::size_t header_bytes = std::size_t{version_and_length} % 16 * 4;
  if (version_and_length >> 4 != 4 || header_bytes < kIpv4Bytes) return Drop::kMalformed;
  if (header_bytes > packet.size()) return Drop::kShort;
  if (!checksum_ok(packet.first(header_bytes))) return Drop::kMalformed;
  const std::size_t total_bytes = load16(packet.data() + kIpLengthOffset);
  if (total_bytes < header_bytes) return Drop::kMalformed;
  if (total_bytes > packet.size()) return Drop::kShort;
  // What we send may not be fragmented, so a fragment is not ours.
  if ((load16(packet.data() + 6) & kMoreFragmentsOrOffset) != 0) return Drop::kForeign;

  out.ecn = load8(packet.data() + 1) & 3;
  out.source_ip.family = out.destination_ip.family = 4;
  std::memcpy(out.source_ip.bytes.data(), packet.data() + 12, 4);
  std::memcpy(out.destination_ip.bytes.data(), packet.data() + 16, 4);

  const auto content = packet.subspan(header_bytes, total_bytes - header_bytes);
  const std::uint8_t protocol = load8(packet.data() + 9);
  if (protocol == kProtocolUdp) return parse_udp(content, out);
  if (protocol == kProtocolIcmp) {
    if (content.size() < kIcmpHeaderBytes) return Drop::kShort;
    out.payload = content;
    const std::uint8_t type = load8(content.data());
    const std::uint8_t code = load8(content.data() + 1);
    if (type == kIcmpEchoRequest && code == 0) out.kind = FrameKind::kIcmpEcho;
    if (type == kIcmpUnreachable && code == kIcmpTooBigCode) out.kind = FrameKind::kIcmpTooBig;
  }
  return Drop::kNone;
}

/// `packet` starts at the IP header and ends with the frame.
Drop parse_ipv6(std::span<const std::byte> packet, FrameView& out) noexcept {
  if (packet.size() < kIpv6Bytes) return Drop::kShort;
  if (load8(packet.data()) >> 4 != 6) return Drop::kMalformed;
  const std::size_t content_bytes = load16(packet.data() + kIpv6LengthOffset);
  if (content_bytes > packet.size() - kIpv6Bytes) return Drop::kShort;
  out.ecn = load8(packet.data() + 1) >> 4 & 3;
  out.source_ip.family = out.destination_ip.family = 6;
  std::memcpy(out.source_ip.bytes.data(), packet.data() + 8, 16);
  std::memcpy(out.destination_ip.bytes.data(), packet.data() + 24, 16);

  const auto content = packet.subspan(kIpv6Bytes, content_bytes);
  const std::uint8_t protocol = load8(packet.data() + 6);
  if (protocol == kProtocolUdp) {
    if (const Drop why = parse_udp(content, out); why != Drop::kNone) return why;
    return load16(content.data() + kUdpChecksumOffset) == 0 ? Drop::kMalformed : Drop::kNone;
  }
  if (protocol != kProtocolIcmpv6) return Drop::kNone;
  if (content.size() < kIcmpHeaderBytes) return Drop::kShort;
  out.payload = content;
  const std::uint8_t type = load8(content.data());
  if (load8(content.data() + 1) != 0) return Drop::kNone;  // none of these has another code
  if (type == kIcmpv6EchoRequest) out.kind = FrameKind::kIcmpEcho;
  if (type == kIcmpv6TooBig) out.kind = FrameKind::kIcmpTooBig;
  if ((type == kIcmpv6Solicitation || type == kIcmpv6Advertisement) &&
      load8(packet.data() + 7) == kNotForwarded) {
    if (content.size() < kDiscoveryBytes) return Drop::kShort;
    out.kind = FrameKind::kDiscovery;
  }
  return Drop::kNone;
}

/// All but the lengths.
void fill_ipv6(std::byte* ip, const FrameAddresses& addresses) noexcept {
  const unsigned traffic_class = addresses.dscp << 2 | addresses.ecn;
  store8(ip, 0x60 | traffic_class >> 4);
  // Routers choose among paths of equal cost by the flow label or by the ports (RFC 6438): the
  // source port is a link's path, so it is the label too.
  store8(ip + 1, (traffic_class & 15) << 4);
  store16(ip + 2, addresses.source_port);
  store8(ip + 6, kProtocolUdp);
  store8(ip + 7, kTimeToLive);
  std::memcpy(ip + 8, addresses.source_ip.bytes.data(), 16);
  std::memcpy(ip + 24, addresses.destination_ip.bytes.data(), 16);
}

}  // namespace

std::uint32_t max_payload_bytes(std::uint32_t mtu, std::uint8_t ip_family) noexcept {
  if (ip_family != 4 && ip_family != 6) return 0;
  const std::size_t headers = ip_header_bytes(ip_family) + kUdpBytes + kHeaderBytes;
  // The MTU of a link may be more than IP's length field can express (memif, loopback).
  const std::uint32_t usable = std::min(mtu, kMaxIpBytes);
  if (usable <= headers) return 0;
  return static_cast<std::uint32_t>(usable - headers) / 64 * 64;
}

std::optional<FrameTemplate> FrameTemplate::make(const FrameAddresses& addresses) noexcept {
  const std::uint8_t family = addresses.source_ip.family;
  if (family != addresses.destination_ip.family || (family != 4 && family != 6))
    return std::nullopt;
  if (addresses.vlan_id.has_value() && *addresses.vlan_id > 4094) return std::nullopt;
  if (addresses.dscp > 63 || addresses.ecn > 3) return std::nullopt;

  FrameTemplate result;
  std::byte* at = result.template_.data();
  std::memcpy(at, addresses.destination_mac.data(), 6);
  std::memcpy(at + 6, addresses.source_mac.data(), 6);
  at += 12;
  if (addresses.vlan_id.has_value()) {
    store16(at, kEtherTypeVlan);
    store16(at + 2, *addresses.vlan_id);
    at += kVlanBytes;
  }
  store16(at, family == 4 ? kEtherTypeIpv4 : kEtherTypeIpv6);
  std::byte* const ip = at + 2;
  result.ip_offset_ = static_cast<std::size_t>(ip - result.template_.data());
  result.bytes_ = result.ip_offset_ + ip_header_bytes(family) + kUdpBytes;
  std::byte* const udp = ip + ip_header_bytes(family);
  store16(udp, addresses.source_port);
  store16(udp + 2, addresses.destination_port);
  if (family == 6) {
    fill_ipv6(ip, addresses);
    return result;
  }
  store8(ip, 0x45);
  store8(ip + 1, addresses.dscp << 2 | addresses.ecn);
  // The identification stays 0: a datagram that is never fragmented needs none (RFC 6864).
  store16(ip + 6, kDontFragment);
  store8(ip + 8, kTimeToLive);
  store8(ip + 9, kProtocolUdp);
  std::memcpy(ip + 12, addresses.source_ip.bytes.data(), 4);
  std::memcpy(ip + 16, addresses.destination_ip.bytes.data(), 4);
  result.checksum_base_ = sum_words({ip, kIpv4Bytes});
  return result;
}

std::uint16_t FrameTemplate::source_port() const noexcept {
  return load16(template_.data() + bytes_ - kUdpBytes);
}

void FrameTemplate::set_source_port(std::uint16_t port) noexcept {
  require(bytes_ != 0, "a frame that has a source port was made");
  store16(template_.data() + bytes_ - kUdpBytes, port);
  // IPv4's checksum is of its header alone; the flow label is the port.
  if (bytes_ - ip_offset_ == kIpv6Bytes + kUdpBytes) {
    store16(template_.data() + ip_offset_ + 2, port);
  }
}

void FrameTemplate::write(std::byte* out, std::size_t udp_payload_bytes) const noexcept {
  udp_payload_bytes += trailer_bytes_;
  const std::size_t ip_bytes = kIpv4Bytes + kUdpBytes + udp_payload_bytes;
  require(bytes_ != 0 && ip_bytes <= kMaxIpBytes, "a frame is made, and fits an IP packet");
  // A constant length makes the copy a few moves instead of a call; there are only four lengths.
  constexpr std::size_t kPlainBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;
  if (bytes_ == kPlainBytes) {
    std::memcpy(out, template_.data(), kPlainBytes);
  } else if (bytes_ > kPlainBytes + kVlanBytes) {
    return write_ipv6(out, udp_payload_bytes);
  } else {
    std::memcpy(out, template_.data(), kPlainBytes + kVlanBytes);
  }
  std::byte* const ip = out + ip_offset_;
  store16(ip + kIpLengthOffset, ip_bytes);
  const std::uint32_t sum = checksum_base_ + static_cast<std::uint32_t>(ip_bytes);
  store16(ip + kIpChecksumOffset, static_cast<std::uint16_t>(~fold(sum)));
  store16(ip + kIpv4Bytes + kUdpLengthOffset, kUdpBytes + udp_payload_bytes);
}

void FrameTemplate::write_ipv6(std::byte* out, std::size_t udp_payload_bytes) const noexcept {
  constexpr std::size_t kPlainBytes = kEthernetBytes + kIpv6Bytes + kUdpBytes;
  if (bytes_ == kPlainBytes) {
    std::memcpy(out, template_.data(), kPlainBytes);
  } else {
    std::memcpy(out, template_.data(), kPlainBytes + kVlanBytes);
  }
  std::byte* const ip = out + ip_offset_;
  const std::size_t udp_bytes = kUdpBytes + udp_payload_bytes;
  store16(ip + kIpv6LengthOffset, udp_bytes);
  store16(ip + kIpv6Bytes + kUdpLengthOffset, udp_bytes);
}

Drop parse_frame(std::span<const std::byte> frame, FrameView& out) noexcept {
  // Field by field: the compiler would clear it as a block, which takes longer than all the rest.
  out.kind = FrameKind::kOther;
  out.vlan_id.reset();
  out.source_ip = out.destination_ip = IpAddress{};
  out.source_port = out.destination_port = 0;
  out.ecn = 0;
  out.ip_offset = 0;
  out.payload = {};
  if (frame.size() < kEthernetBytes) return Drop::kShort;
  std::memcpy(out.destination_mac.data(), frame.data(), 6);
  std::memcpy(out.source_mac.data(), frame.data() + 6, 6);
  std::size_t offset = kEthernetBytes;
  std::uint16_t ether_type = load16(frame.data() + 12);
  if (ether_type == kEtherTypeVlan) {
    if (frame.size() < kEthernetBytes + kVlanBytes) return Drop::kShort;
    // Id 0 is a priority tag: the frame belongs to no VLAN.
    const auto vlan_id = static_cast<std::uint16_t>(load16(frame.data() + 14) & 0xfff);
    if (vlan_id != 0) out.vlan_id = vlan_id;
    ether_type = load16(frame.data() + 16);
    offset += kVlanBytes;
  }
  out.ip_offset = offset;
  const auto content = frame.subspan(offset);
  if (ether_type == kEtherTypeIpv4) return parse_ipv4(content, out);
  if (ether_type == kEtherTypeIpv6) return parse_ipv6(content, out);
  out.payload = content;
  if (ether_type == kEtherTypeArp) {
    if (content.size() < kArpBytes) return Drop::kShort;
    out.kind = FrameKind::kArp;
  }
  return Drop::kNone;
}

}  // namespace gradwire::wire
