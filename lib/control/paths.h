// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Addresses of this daemon, and how packets of a group get to its neighbours. Plain data; any
/// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/shard_config.h"
#include "wire/frame.h"

namespace gradwire::control {

/// One address of this daemon. `port` is what ShardPlacement's down_port and up_port mean.
struct LocalAddress {
  std::uint16_t port = 0;
  wire::IpAddress ip;
  std::uint8_t prefix_bits = 0;
  bool routed = false;       ///< the port has a route to hosts of other networks
  std::uint32_t rail = 0;    ///< rail_hash() of the port's rail
  bool single_peer = false;  ///< it leads to one other port alone
};

/// One path of frames to a neighbour. Both ends choose the same two addresses, since they apply the
/// same rule to the same table (see common_addresses).
struct NeighbourPath {
  std::uint16_t rank = 0;
  std::uint64_t incarnation = 0;
  std::uint16_t port = 0;
  wire::IpAddress local_ip;
  wire::IpAddress remote_ip;
  std::optional<wire::MacAddress> remote_mac;  ///< of `hop`; none until it has answered
  wire::IpAddress hop;  ///< remote_ip, or the router to it; set when its MAC address is requested
  std::uint16_t remote_base_udp_port = 0;  ///< its lane i listens there + i
};

/// The path that a lane uses: lanes take the paths to a neighbour in turn. `paths` is not empty.
[[nodiscard]] inline const NeighbourPath& path_of(std::span<const NeighbourPath> paths,
                                                  std::uint8_t lane) noexcept {
  return paths[lane % paths.size()];
}

/// A rank that is no neighbour on the ring: see control/peers.h.
struct PeerPaths {
  std::uint16_t rank = 0;
  std::vector<collective::LinkTokens> tokens;  ///< by lane
  std::vector<NeighbourPath> paths;            ///< as path_of() takes them
};

/// The tokens of one lane's packets to and from the neighbours; control/table.h computes them.
struct NeighbourTokens {
  collective::LinkTokens upstream;
  collective::LinkTokens downstream;
};

}  // namespace gradwire::control
