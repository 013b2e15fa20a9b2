// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Addresses of this daemon, and how packets of a group get to its neighbours. Plain data; any
/// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/shard_config.h"
#include "wire/frame.h"

namespace gradwire::control {

/// One address of this daemon. `port` is what ShardPlacement's down_port and up_port mean.
struct LocalAddress {
  std::uint16_t port = 0;
  wire::IpAddress ip;
  std::uint8_t prefix_bits = 0;
  bool routed = false;     ///< the port has a route to hosts of other networks
  std::uint32_t rail = 0;  ///< rail_hash() of the port's rail
};

/// One way of frames to a neighbour: both ends choose the same two addresses, since they choose
/// from the same table by the same rule (see common_addresses).
struct NeighbourPath {
  std::uint16_t rank = 0;
  std::uint64_t incarnation = 0;
  std::uint16_t port = 0;
  wire::IpAddress local_ip;
  wire::IpAddress remote_ip;
  std::optional<wire::MacAddress> remote_mac;  ///< of `hop`; none until it has answered
  wire::IpAddress hop;  ///< remote_ip, or the router that leads there; set when it is asked
  std::uint16_t remote_base_udp_port = 0;  ///< its lane i listens there + i
};

/// The ways to one neighbour are shared out among the lanes: rails. `paths` is not empty.
[[nodiscard]] inline const NeighbourPath& path_of(std::span<const NeighbourPath> paths,
                                                  std::uint8_t lane) noexcept {
  return paths[lane % paths.size()];
}

/// What packets of one lane carry, to and from the neighbours: control/table.h makes them.
struct NeighbourTokens {
  collective::LinkTokens upstream;
  collective::LinkTokens downstream;
};

}  // namespace gradwire::control
