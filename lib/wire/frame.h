// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is around a chunk packet: Ethernet (one VLAN tag at most), IPv4 or IPv6, UDP. A template of
/// those bytes is made once per neighbor; per packet only the lengths and IPv4's checksum change.
/// The UDP checksum is 0 over IPv4 (allowed by RFC 768): the packet has its own CRCs. Over IPv6 it
/// must not be (RFC 8200 section 8.1), and complete_ipv6() computes it once the packet is whole.
/// Any thread; nothing here allocates.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "wire/packet.h"

namespace gradwire::wire {

using MacAddress = std::array<std::uint8_t, 6>;
inline constexpr MacAddress kBroadcastMac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

struct IpAddress {
  std::uint8_t family = 0;               ///< 0 = none, 4, 6
  std::array<std::uint8_t, 16> bytes{};  ///< network order; IPv4 in the first four
  friend bool operator==(const IpAddress& a, const IpAddress& b) noexcept {
    // As two words: the compiler's own would be a call of memcmp for each packet.
    using Words = std::array<std::uint64_t, 2>;
    return a.family == b.family && std::bit_cast<Words>(a.bytes) == std::bit_cast<Words>(b.bytes);
  }
};
[[nodiscard]] std::optional<IpAddress> parse_ip(std::string_view text) noexcept;
[[nodiscard]] std::string to_string(const IpAddress& address);
[[nodiscard]] std::optional<MacAddress> parse_mac(std::string_view text) noexcept;
[[nodiscard]] std::string to_string(const MacAddress& address);
/// Whether IPv6 uses it on one link only (fe80::/10): every link has such addresses.
[[nodiscard]] bool is_link_local(const IpAddress& address) noexcept;
/// @return whether both addresses lie in one network of `prefix_bits`.
[[nodiscard]] bool same_network(const IpAddress& a, const IpAddress& b, int prefix_bits) noexcept;

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kVlanBytes = 4;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kIpv6Bytes = 40;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kMaxFrameHeaderBytes =
    kEthernetBytes + kVlanBytes + kIpv6Bytes + kUdpBytes;
/// Of a header without options, which is what is sent.
[[nodiscard]] constexpr std::size_t ip_header_bytes(std::uint8_t ip_family) noexcept {
  return ip_family == 6 ? kIpv6Bytes : kIpv4Bytes;
}

/// Chunk payload that fits `mtu` (the IP packet's bytes), rounded down to 64; 0 if none does.
[[nodiscard]] std::uint32_t max_payload_bytes(std::uint32_t mtu, std::uint8_t ip_family) noexcept;
/// Of a full packet: the MTU that it needs.
[[nodiscard]] constexpr std::uint32_t full_packet_bytes(std::uint32_t payload_bytes,
                                                        std::uint8_t ip_family) noexcept {
  return static_cast<std::uint32_t>(ip_header_bytes(ip_family) + kUdpBytes + kHeaderBytes) +
         payload_bytes;
}

struct FrameAddresses {
  MacAddress source_mac{};
  MacAddress destination_mac{};
  std::optional<std::uint16_t> vlan_id;
  IpAddress source_ip;
  IpAddress destination_ip;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint8_t dscp = 0;  ///< 0 ... 63
  std::uint8_t ecn = 0;   ///< 0 ... 3; 2 is ECT(0)
};

/// The bytes before a chunk packet, made once per neighbor.
class FrameTemplate {
 public:
  FrameTemplate() = default;
  /// @return nothing if the addresses do not fit together: one family each, or none.
  [[nodiscard]] static std::optional<FrameTemplate> make(const FrameAddresses& addresses) noexcept;

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Of a template that was made.
  [[nodiscard]] std::uint16_t source_port() const noexcept;
  void set_source_port(std::uint16_t port) noexcept;
  /// So many bytes follow each packet that is written: a sealed packet's tag.
  void set_trailer_bytes(std::size_t bytes) noexcept { trailer_bytes_ = bytes; }
  /// Writes bytes() bytes to `out` for a UDP payload of `udp_payload_bytes` and the trailer. Over
  /// IPv6 the UDP checksum is left 0, for complete_ipv6().
  void write(std::byte* out, std::size_t udp_payload_bytes) const noexcept;
  friend bool operator==(const FrameTemplate&, const FrameTemplate&) = default;

 private:
  void write_ipv6(std::byte* out, std::size_t udp_payload_bytes) const noexcept;

  std::array<std::byte, kMaxFrameHeaderBytes> template_{};
  std::size_t bytes_ = 0;
  std::size_t ip_offset_ = 0;
  std::size_t trailer_bytes_ = 0;
  std::uint32_t checksum_base_ = 0;  ///< one's complement sum of the IP header without its length
};

/// Who computes the UDP checksum of what is sent over IPv6.
enum class UdpSum : std::uint8_t {
  kCpu,
  kDevice,  ///< the NIC, from the pseudo-header's sum, which the field holds until then
};

/// Completes a frame over IPv6 whose packet is whole: takes the addresses into its header's CRC
/// (doc/protocol) and computes its UDP checksum. Frames of other protocols stay as they are. It
/// must be called once for each write().
/// @param packet  from the IP header on. With kDevice its payload need not be there.
/// @return whether it was a UDP datagram.
bool complete_ipv6(std::span<std::byte> packet, UdpSum by) noexcept;
/// What a header's CRC is XORed with: over IPv6 the CRC32C of both addresses, source first, since
/// an IPv6 header has no checksum of its own; over IPv4 0.
[[nodiscard]] std::uint32_t address_crc(const IpAddress& source,
                                        const IpAddress& destination) noexcept;

enum class FrameKind : std::uint8_t { kUdp, kArp, kDiscovery, kIcmpEcho, kIcmpTooBig, kOther };

/// What parse_frame saw. `payload` is the UDP payload by UDP's and IP's lengths (Ethernet padding
/// cut off), or the ARP packet (28 bytes at least, with Ethernet's padding), or the ICMP message
/// (IPv4's or IPv6's, 8 bytes at least, 24 of kDiscovery, padding cut off). For kOther only the
/// Ethernet fields are sure to be set.
struct FrameView {
  FrameKind kind = FrameKind::kOther;
  MacAddress source_mac{};
  MacAddress destination_mac{};
  std::optional<std::uint16_t> vlan_id;  ///< a priority tag (id 0) counts as none
  IpAddress source_ip;
  IpAddress destination_ip;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint8_t ecn = 0;
  std::size_t ip_offset = 0;  ///< of what follows the Ethernet header
  std::span<const std::byte> payload;
};

/// Parses Ethernet, VLAN, IPv4 (header checksum checked, options skipped, fragments refused) or
/// IPv6 (what has an extension header, as a fragment does, is kOther), UDP (its checksum is not
/// computed, since a chunk packet has its CRCs, but over IPv6 it must not be 0); tells ARP, IPv6's
/// neighbor solicitations and advertisements (kDiscovery: those that no router has forwarded, by
/// their hop limit), ICMP echo requests and ICMP "too big" apart. Everything else that is
/// well-formed, a second VLAN tag included, is kOther.
/// @return Drop::kNone, or why the frame is to be dropped: kShort, kMalformed, or kForeign for a
/// fragment.
[[nodiscard]] Drop parse_frame(std::span<const std::byte> frame, FrameView& out) noexcept;

}  // namespace gradwire::wire
