// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Addresses of simulated hosts: 10.RAIL.x.y or fd00::RAIL:xy, one UDP port for each lane. Any
/// thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/defaults.h"
#include "wire/frame.h"

namespace gradwire::sim {

inline constexpr std::uint16_t kBaseUdpPort = defaults::kBaseUdpPort;

/// @param family  4 or 6, of the rail.
[[nodiscard]] inline wire::IpAddress ip_of(std::uint16_t host, std::uint8_t rail = 0,
                                           std::uint8_t family = 4) noexcept {
  wire::IpAddress ip;
  ip.family = family;
  const auto high = static_cast<std::uint8_t>((host + 1) >> 8);
  const auto low = static_cast<std::uint8_t>(host + 1);
  if (family == 4) {
    ip.bytes = {10, rail, high, low};
  } else {
    ip.bytes = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, rail, high, low};
  }
  return ip;
}

[[nodiscard]] inline wire::MacAddress mac_of(std::uint16_t host, std::uint8_t rail = 0) noexcept {
  return {2, 0, 0, rail, static_cast<std::uint8_t>(host >> 8), static_cast<std::uint8_t>(host)};
}

/// Of a MAC address that mac_of() made.
[[nodiscard]] inline std::uint16_t host_of(const std::byte* mac) noexcept {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(mac[4]) << 8 |
                                    std::to_integer<unsigned>(mac[5]));
}
[[nodiscard]] inline std::uint8_t rail_of(const std::byte* mac) noexcept {
  return std::to_integer<std::uint8_t>(mac[3]);
}

[[nodiscard]] inline wire::FrameTemplate frame_between(std::uint16_t from, std::uint16_t to,
                                                       std::uint8_t lane, std::uint8_t rail = 0,
                                                       std::uint8_t family = 4) noexcept {
  constexpr std::uint8_t kEct0 = 2;
  wire::FrameAddresses addresses;
  addresses.source_mac = mac_of(from, rail);
  addresses.destination_mac = mac_of(to, rail);
  addresses.source_ip = ip_of(from, rail, family);
  addresses.destination_ip = ip_of(to, rail, family);
  addresses.source_port = static_cast<std::uint16_t>(kBaseUdpPort + lane);
  addresses.destination_port = static_cast<std::uint16_t>(kBaseUdpPort + lane);
  addresses.ecn = kEct0;
  return *wire::FrameTemplate::make(addresses);
}

}  // namespace gradwire::sim
