// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Corrects the checksums of a packet, so that the decoder looks at what was mutated. A
/// mutated packet with wrong ones is dropped at the first check, and a fuzzer would learn nothing.
#pragma once

#include <cstring>
#include <span>

#include "wire/frame.h"
#include "wire/layout.h"
#include "wire/packet.h"

namespace gradwire::fuzz {

/// Version and both CRCs of a chunk packet.
inline void repair_packet(std::span<std::byte> packet) {
  if (packet.size() < wire::kHeaderBytes) return;
  packet[0] = std::byte{wire::kProtocolVersion};
  wire::layout::Big32 crc;
  crc.set(wire::crc32c(packet.subspan(wire::kHeaderBytes)));
  std::memcpy(packet.data() + offsetof(wire::layout::Header, payload_crc), &crc, sizeof crc);
  crc.set(wire::layout::header_crc(packet.data()));
  std::memcpy(packet.data() + offsetof(wire::layout::Header, header_crc), &crc, sizeof crc);
}

/// The checksum of an IPv4 header of `header_bytes` bytes.
inline void repair_ipv4(std::span<std::byte> header) {
  header[10] = header[11] = std::byte{0};
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < header.size(); i += 2) {
    sum += std::to_integer<std::uint32_t>(header[i]) << 8 |
           std::to_integer<std::uint32_t>(header[i + 1]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  header[10] = static_cast<std::byte>(~sum >> 8 & 0xff);
  header[11] = static_cast<std::byte>(~sum & 0xff);
}

/// IPv4's checksum of a frame, and the CRCs of the chunk packet in it, over IPv6 without what
/// wire::complete_ipv6() does.
inline void repair_frame(std::span<std::byte> frame) {
  std::size_t ip = wire::kEthernetBytes;
  if (frame.size() < ip + wire::kVlanBytes) return;
  if (frame[12] == std::byte{0x81} && frame[13] == std::byte{0}) ip += wire::kVlanBytes;
  if (frame[ip - 2] == std::byte{0x86} && frame[ip - 1] == std::byte{0xdd}) {
    constexpr std::size_t kHeaders = wire::kIpv6Bytes + wire::kUdpBytes;
    if (frame.size() > ip + kHeaders) repair_packet(frame.subspan(ip + kHeaders));
    return;
  }
  if (frame.size() < ip + wire::kIpv4Bytes) return;
  const std::size_t header_bytes = (std::to_integer<std::size_t>(frame[ip]) & 15) * 4;
  if (header_bytes < wire::kIpv4Bytes || frame.size() < ip + header_bytes) return;
  const std::size_t udp = ip + header_bytes;
  if (frame.size() > udp + wire::kUdpBytes) repair_packet(frame.subspan(udp + wire::kUdpBytes));
  repair_ipv4(frame.subspan(ip, header_bytes));
}

}  // namespace gradwire::fuzz
