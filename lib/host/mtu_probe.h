// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finds the largest IP packet that reaches a peer and returns without fragmentation, by echo
/// requests that must not be fragmented. It uses the kernel's route to the peer. Control thread;
/// needs CAP_NET_RAW, waits for answers, allocates.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "host/finding.h"

namespace gradwire::host {

struct PathMtu {
  std::string interface;  ///< through which the route leaves
  std::uint32_t interface_mtu = 0;
  std::uint32_t path_mtu = 0;  ///< 0: the peer does not even answer the smallest
};

/// @param peer        an IPv4 or IPv6 address; a link-local one with its interface (fe80::2%eth0).
/// @param timeout_ms  for each of three requests of a size.
[[nodiscard]] Result<PathMtu> probe_path_mtu(const std::string& peer, int timeout_ms = 300);

/// The finding of `gradwire doctor --peer`.
[[nodiscard]] Finding check_path_mtu(const std::string& peer, const Result<PathMtu>& probed,
                                     std::uint64_t wanted_mtu);

}  // namespace gradwire::host
