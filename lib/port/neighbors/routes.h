// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finds the next hop to an IP address: the address itself if it is on the port's network, else the
/// gateway of the route with the longest prefix that contains it. Any thread; pure functions.
#pragma once

#include <optional>
#include <span>

#include "wire/frame.h"

namespace gradwire::port {

/// Addresses in network/prefix_bits are reached through `via`, which is on the port's network.
/// A default gateway has prefix_bits 0.
struct Route {
  wire::IpAddress network;
  int prefix_bits = 0;
  wire::IpAddress via;
  friend bool operator==(const Route&, const Route&) = default;
};

/// @param own the port's address; its network has `prefix_bits`.
/// @return nothing if no route leads to `destination`.
[[nodiscard]] inline std::optional<wire::IpAddress> next_hop(const wire::IpAddress& destination,
                                                             const wire::IpAddress& own,
                                                             int prefix_bits,
                                                             std::span<const Route> routes) {
  if (wire::same_network(destination, own, prefix_bits)) return destination;
  const Route* best = nullptr;
  for (const Route& route : routes) {
    if (!wire::same_network(destination, route.network, route.prefix_bits)) continue;
    if (best == nullptr || route.prefix_bits > best->prefix_bits) best = &route;
  }
  if (best == nullptr) return std::nullopt;
  return best->via;
}

}  // namespace gradwire::port
