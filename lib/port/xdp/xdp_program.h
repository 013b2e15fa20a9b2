// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The XDP program (xdp/steer.bpf.c), built into the daemon, that keeps an af_xdp port from taking
/// the kernel's traffic. Any thread; make_xdp_program() allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "wire/frame.h"

namespace gradwire::port {

/// The daemon's part of an interface's traffic: UDP to these ports of `ip`, ARP or neighbor
/// discovery for `ip`, pings.
struct XdpTraffic {
  wire::IpAddress ip;
  std::uint16_t first_udp_port = 0;
  std::uint16_t udp_ports = 0;
  std::uint16_t vlan_id = 0;  ///< 0: untagged
};

/// The compiled program, an ELF object; empty if clang was missing when gradwire was built.
[[nodiscard]] std::span<const std::byte> xdp_program_object() noexcept;

/// @return that object, configured for `traffic`. kUnsupported if there is no object.
[[nodiscard]] Result<std::vector<std::byte>> make_xdp_program(const XdpTraffic& traffic);

}  // namespace gradwire::port
