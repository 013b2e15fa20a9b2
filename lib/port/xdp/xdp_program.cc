// SPDX-License-Identifier: BSD-3-Clause
#include "port/xdp/xdp_program.h"

#include <algorithm>
#include <cstring>

#include "port/xdp/settings.h"

namespace gradwire::port {

Result<std::vector<std::byte>> make_xdp_program(const XdpTraffic& traffic) {
  const auto object = xdp_program_object();
  if (object.empty()) {
    return fail(ErrorCode::kUnsupported,
                "gradwire was built without its XDP program because clang was missing");
  }
  gradwire_xdp_settings settings{};
  static_assert(sizeof(GRADWIRE_XDP_MARK) == GRADWIRE_XDP_MARK_BYTES);
  std::memcpy(settings.mark, GRADWIRE_XDP_MARK, sizeof settings.mark);
  static_assert(sizeof settings.ip == sizeof traffic.ip.bytes);
  std::memcpy(&settings.ip, traffic.ip.bytes.data(), sizeof settings.ip);
  settings.is_ipv6 = traffic.ip.family == 6 ? 1 : 0;
  settings.first_udp_port = traffic.first_udp_port;
  settings.udp_ports = traffic.udp_ports;
  settings.vlan_id = traffic.vlan_id;

  std::vector<std::byte> program(object.begin(), object.end());
  const std::span<const std::byte> mark = std::as_bytes(std::span(settings.mark));
  const auto found = std::search(program.begin(), program.end(), mark.begin(), mark.end());
  const auto room = static_cast<std::size_t>(program.end() - found);
  if (found == program.end() || room < sizeof settings ||
      std::search(found + 1, program.end(), mark.begin(), mark.end()) != program.end()) {
    return fail(ErrorCode::kInternal,
                "the settings were not found in the built-in XDP program: this is a bug of "
                "gradwire's build");
  }
  std::memcpy(&*found, &settings, sizeof settings);
  return program;
}

}  // namespace gradwire::port
