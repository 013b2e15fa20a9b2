// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether a port can put payloads into a GPU's memory and headers into the host's: according to
/// the driver table and to what the device reports. The control thread calls it, before ports are
/// opened.
#pragma once

#include <cstdint>
#include <string>

#include "wire/frame.h"

namespace gradwire::port {

/// @return why the ethdev `device` cannot do it; empty if it can.
[[nodiscard]] std::string why_no_payload_split(const std::string& device);

/// Bytes before a payload, which are always the same number: Ethernet, a VLAN tag if there is one,
/// IP without options, UDP, and a packet's header.
[[nodiscard]] constexpr std::uint16_t split_header_bytes(bool vlan,
                                                         std::uint8_t ip_family) noexcept {
  return static_cast<std::uint16_t>(wire::kEthernetBytes + (vlan ? wire::kVlanBytes : 0) +
                                    wire::ip_header_bytes(ip_family) + wire::kUdpBytes +
                                    wire::kHeaderBytes);
}

}  // namespace gradwire::port
