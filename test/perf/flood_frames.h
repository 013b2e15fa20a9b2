// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Foreign frames of each kind and any length, as a stranger on the network would send them to one
/// port. Any thread; allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::perf {

struct FloodTarget {
  wire::MacAddress mac{};
  wire::IpAddress ip;
  std::uint16_t udp_port = 0;
};

/// `drop`: the reason that the lane must count; kNone if it may answer.
struct FloodKind {
  std::string_view name;
  std::string_view what;
  wire::Drop drop = wire::Drop::kNone;
};
inline constexpr std::array<FloodKind, 7> kFloodKinds = {{
    {"data", "a chunk, header right to its CRC, of no group here", wire::Drop::kUnknownGroup},
    {"hello", "a hello, right to both CRCs, of no group here", wire::Drop::kUnknownGroup},
    {"garbage", "another protocol to the lane's UDP port", wire::Drop::kVersion},
    {"port", "another UDP port", wire::Drop::kForeign},
    {"mac", "another MAC address", wire::Drop::kForeign},
    {"ping", "ICMP echo requests to the port's address", wire::Drop::kNone},
    {"arp", "ARP requests for the port's address", wire::Drop::kNone},
}};

namespace flood_detail {

constexpr std::size_t kUdpPayload = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;

inline void store16(std::vector<std::byte>& frame, std::size_t at, std::size_t value) {
  frame[at] = static_cast<std::byte>(value >> 8);
  frame[at + 1] = static_cast<std::byte>(value);
}

/// RFC 1071, of frame[from, to) with `skip` taken for zero.
inline std::size_t internet_checksum(const std::vector<std::byte>& frame, std::size_t from,
                                     std::size_t to, std::size_t skip) {
  std::uint64_t sum = 0;
  for (std::size_t i = from; i < to; ++i) {
    if (i == skip || i == skip + 1) continue;
    sum += std::to_integer<std::uint64_t>(frame[i]) << ((i - from) % 2 == 0 ? 8 : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

inline std::vector<std::byte> arp_request(const FloodTarget& target, std::size_t bytes) {
  constexpr std::array<std::uint8_t, 32> kAfterMacs = {
      2, 9, 9, 9, 9, 9, 8,  6, 0, 1,  8, 0, 6, 4, 0, 1,  // source, ARP, IPv4 over Ethernet, request
      2, 9, 9, 9, 9, 9, 10, 0, 0, 66, 0, 0, 0, 0, 0, 0};
  std::vector<std::byte> frame(bytes);
  std::memset(frame.data(), 0xff, 6);
  std::memcpy(frame.data() + 6, kAfterMacs.data(), kAfterMacs.size());
  std::memcpy(frame.data() + 38, target.ip.bytes.data(), 4);
  return frame;
}

}  // namespace flood_detail

/// @param bytes  of the frame without Ethernet's CRC; 60 at least, and for a packet of ours its
///               header's and body's length.
/// @return nothing if such a frame does not fit into `bytes`.
inline std::optional<std::vector<std::byte>> flood_frame(std::string_view kind,
                                                         const FloodTarget& target,
                                                         std::size_t bytes) {
  using namespace flood_detail;
  if (bytes < 60 || bytes > 9'216) return std::nullopt;
  if (kind == "arp") return arp_request(target, bytes);
  wire::FrameAddresses addresses;
  addresses.source_mac = {2, 9, 9, 9, 9, 9};
  addresses.destination_mac = target.mac;
  if (kind == "mac") addresses.destination_mac = {2, 8, 8, 8, 8, 8};
  addresses.source_ip = *wire::parse_ip("10.0.0.66");
  addresses.destination_ip = target.ip;
  addresses.source_port = 40'000;
  addresses.destination_port = kind == "port" ? std::uint16_t{53} : target.udp_port;
  const auto header = wire::FrameTemplate::make(addresses);
  if (!header) return std::nullopt;
  std::vector<std::byte> frame(bytes, std::byte{0x5a});
  header->write(frame.data(), bytes - kUdpPayload);
  const std::span payload = std::span(frame).subspan(kUdpPayload);
  if (kind == "ping") {
    constexpr std::size_t kIcmp = wire::kEthernetBytes + wire::kIpv4Bytes;
    frame[23] = std::byte{1};  // the protocol, under the IP header's checksum
    store16(frame, 24, internet_checksum(frame, 14, kIcmp, 24));
    std::memset(frame.data() + kIcmp, 0, 8);
    frame[kIcmp] = std::byte{8};
    store16(frame, kIcmp + 2, internet_checksum(frame, kIcmp, bytes, kIcmp + 2));
    return frame;
  }
  wire::CommonHeader common;
  common.group_tag = 0x40000001;
  common.packet_number = 1;
  if (kind == "data") {
    if (payload.size() < wire::kHeaderBytes + 4) return std::nullopt;
    const std::size_t count = (payload.size() - wire::kHeaderBytes) / 4;
    wire::DataHeader data;
    data.op_seq = 1;
    data.total_count = count;
    header->write(frame.data(), wire::kHeaderBytes + 4 * count);
    wire::encode_data(payload.first<wire::kHeaderBytes>(), common, data, 0);
  } else if (kind == "hello") {
    wire::HelloBody hello;
    hello.key = {99, 1};
    hello.payload_bytes = 1024;
    hello.to_rank = 1;
    hello.nranks = 2;
    hello.lanes = 1;
    common.group_tag = wire::group_tag(hello.key);
    if (wire::encode_hello(payload, wire::PacketType::kHello, common, hello, payload.size()) !=
        payload.size()) {
      return std::nullopt;
    }
  }
  return frame;
}

}  // namespace gradwire::perf
