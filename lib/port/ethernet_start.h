// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How the frames begin that ask for neighbors, and numbers in network byte order. Any thread;
/// nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "port/neighbors/neighbor_message.h"

namespace gradwire::port {

inline constexpr std::size_t kMinFrameBytes = 60;  ///< Ethernet's smallest, CRC not counted

[[nodiscard]] inline std::uint16_t load16(const std::byte* p) noexcept {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(p[0]) << 8 |
                                    std::to_integer<unsigned>(p[1]));
}

inline void store16(std::byte* p, std::uint16_t value) noexcept {
  p[0] = static_cast<std::byte>(value >> 8);
  p[1] = static_cast<std::byte>(value & 0xff);
}

/// Whether one host can have it.
[[nodiscard]] inline bool is_unicast(const wire::MacAddress& mac) noexcept {
  return (mac[0] & 1) == 0 && mac != wire::MacAddress{};
}

/// @return where what follows the Ethernet header goes.
[[nodiscard]] inline std::byte* put_ethernet(NeighborFrame& frame, const NeighborSender& from,
                                             const wire::MacAddress& to,
                                             std::uint16_t ether_type) noexcept {
  constexpr std::uint16_t kEtherTypeVlan = 0x8100;
  std::byte* p = frame.bytes.data();
  std::memcpy(p, to.data(), 6);
  std::memcpy(p + 6, from.mac.data(), 6);
  p += 12;
  if (from.vlan_id) {
    store16(p, kEtherTypeVlan);
    store16(p + 2, *from.vlan_id);
    p += 4;
  }
  store16(p, ether_type);
  return p + 2;
}

}  // namespace gradwire::port
