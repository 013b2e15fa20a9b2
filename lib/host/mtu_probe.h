// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The largest IP packet that comes to a peer and back in one piece, found by echo requests that
/// nobody on the way may split. It goes by the kernel's route to the peer. Control thread; needs
/// CAP_NET_RAW, waits for answers, allocates.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "host/finding.h"

namespace gradwire::host {

struct PathMtu {
  std::string interface;  ///< that the route leaves by
  std::uint32_t interface_mtu = 0;
  std::uint32_t path_mtu = 0;  ///< 0: the peer does not answer the smallest either
};

/// @param peer        an IPv4 address.
/// @param timeout_ms  for each of three requests of a size.
[[nodiscard]] Result<PathMtu> probe_path_mtu(const std::string& peer, int timeout_ms = 300);

/// The finding of `gradwire doctor --peer`.
[[nodiscard]] Finding check_path_mtu(const std::string& peer, const Result<PathMtu>& probed,
                                     std::uint64_t wanted_mtu);

}  // namespace gradwire::host
