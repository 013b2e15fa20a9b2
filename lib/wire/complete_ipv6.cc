// SPDX-License-Identifier: BSD-3-Clause
// The last step of a frame over IPv6: what depends on its addresses and on all of its bytes.
#include <algorithm>
#include <cstring>

#include "wire/frame.h"
#include "wire/internet_checksum.h"
#include "wire/layout.h"

namespace gradwire::wire {
namespace {

/// Of an IPv6 header, and of the UDP header behind it.
struct Place {
  static constexpr std::size_t kLength = 4;
  static constexpr std::size_t kProtocol = 6;
  static constexpr std::size_t kAddresses = 8;
  static constexpr std::size_t kAddressesBytes = 32;
  static constexpr std::size_t kChecksum = kIpv6Bytes + 6;
  static constexpr std::uint8_t kUdp = 17;
};

}  // namespace

std::uint32_t address_crc(const IpAddress& source, const IpAddress& destination) noexcept {
  if (source.family != 6) return 0;
  const std::uint32_t first = crc32c(std::as_bytes(std::span(source.bytes)));
  return crc32c_extend(first, std::as_bytes(std::span(destination.bytes)));
}

bool complete_ipv6(std::span<std::byte> packet, UdpSum by) noexcept {
  constexpr std::size_t kHeaders = kIpv6Bytes + kUdpBytes;
  if (packet.size() < kHeaders + kHeaderBytes) return false;
  std::byte* const ip = packet.data();
  if (std::to_integer<unsigned>(ip[0]) >> 4 != 6 ||
      std::to_integer<unsigned>(ip[Place::kProtocol]) != Place::kUdp) {
    return false;
  }
  const std::span<const std::byte> addresses(ip + Place::kAddresses, Place::kAddressesBytes);
  auto* const header = reinterpret_cast<layout::Header*>(ip + kHeaders);
  header->header_crc.set(header->header_crc.get() ^ crc32c(addresses));

  const std::size_t udp_bytes = std::to_integer<std::size_t>(ip[Place::kLength]) << 8 |
                                std::to_integer<std::size_t>(ip[Place::kLength + 1]);
  InternetSum sum;
  sum.add(addresses);
  sum.add16(static_cast<std::uint16_t>(udp_bytes));
  sum.add16(Place::kUdp);
  std::uint16_t checksum = sum.folded();
  std::byte* const field = ip + Place::kChecksum;
  if (by == UdpSum::kCpu) {
    std::memset(field, 0, sizeof(checksum));
    sum.add(packet.subspan(kIpv6Bytes, std::min(udp_bytes, packet.size() - kIpv6Bytes)));
    checksum = static_cast<std::uint16_t>(~sum.folded());
    if (checksum == 0) checksum = 0xffff;  // 0 says that there is none
  }
  std::memcpy(field, &checksum, sizeof(checksum));
  return true;
}

}  // namespace gradwire::wire
