// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Addresses of this daemon, and how packets of a group get to its neighbors. Plain data and pure
/// functions; any thread; they allocate.
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
  bool routed = false;               ///< the port has a route to hosts of other networks
  std::uint32_t rail = 0;            ///< rail_hash() of the port's rail
  bool single_peer = false;          ///< it leads to one other port alone
  std::uint64_t rate_bps = 0;        ///< that the port may or can send; 0 = not known
  std::uint32_t rx_descriptors = 0;  ///< packets that a lane's receive ring holds; 0 = not known
};

/// One path of frames to a neighbor. Both ends choose the same two addresses, since they apply the
/// same rule to the same table (see common_addresses).
struct NeighborPath {
  std::uint16_t rank = 0;
  std::uint64_t incarnation = 0;
  std::uint16_t port = 0;
  wire::IpAddress local_ip;
  wire::IpAddress remote_ip;
  std::optional<wire::MacAddress> remote_mac;  ///< of `hop`; none until it has answered
  wire::IpAddress hop;  ///< remote_ip, or the router to it; set when its MAC address is requested
  bool asked = false;   ///< its MAC address was requested
  std::uint16_t remote_base_udp_port = 0;  ///< its lane i listens there + i
  std::uint16_t remote_source_ports = 0;   ///< as RankInfo's
  std::uint64_t rate_bps = 0;              ///< of this host's port; 0 = not known
};

/// Index of the path that a lane begins with. A lane carries as much as any other, so each takes
/// the path that leaves it the most, after the lanes before it; of equals, that of the fewest
/// lanes. So paths of equal rate, or one of an unknown rate, are taken in turn. `paths` is not
/// empty.
[[nodiscard]] std::size_t first_path(std::span<const NeighborPath> paths, std::uint8_t lane);
[[nodiscard]] inline const NeighborPath& path_of(std::span<const NeighborPath> paths,
                                                 std::uint8_t lane) {
  return paths[first_path(paths, lane)];
}
/// With how many paths so many lanes begin.
[[nodiscard]] std::size_t paths_used(std::span<const NeighborPath> paths, std::size_t lanes);
/// With how many lanes each path is begun with by one.
[[nodiscard]] std::size_t lanes_for_all(std::span<const NeighborPath> paths);

/// A rank that is no neighbor on the ring: see control/peers.h.
struct PeerPaths {
  std::uint16_t rank = 0;
  std::vector<collective::LinkTokens> tokens;  ///< by lane
  std::vector<NeighborPath> paths;             ///< as path_of() takes them
};

/// The tokens of one lane's packets to and from the neighbors; control/table.h computes them.
struct NeighborTokens {
  collective::LinkTokens upstream;
  collective::LinkTokens downstream;
};

}  // namespace gradwire::control
