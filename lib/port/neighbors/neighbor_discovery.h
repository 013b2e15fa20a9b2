// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// IPv6's neighbor discovery (RFC 4861 sections 4.3 and 4.4, RFC 4862 section 5.4) as frames: what
/// ARP is to IPv4. neighbor_message.h chooses between the two. Routers' advertisements and
/// redirects are never read: a port has the gateway that it was configured with. Any thread;
/// nothing here allocates.
#pragma once

#include <optional>

#include "port/neighbors/neighbor_message.h"
#include "wire/frame.h"

namespace gradwire::port {

/// Every host of the link (RFC 4291 section 2.7.1).
[[nodiscard]] wire::IpAddress all_nodes() noexcept;
/// The group in which whoever has the address listens (RFC 4291 section 2.7.1).
[[nodiscard]] wire::IpAddress solicited_node(const wire::IpAddress& ip) noexcept;
/// To which Ethernet address packets to a group go (RFC 2464 section 7).
[[nodiscard]] wire::MacAddress group_mac(const wire::IpAddress& group) noexcept;

/// @param to  nothing: to the solicited-node group of `target`.
[[nodiscard]] NeighborFrame make_solicitation(const NeighborSender& from,
                                              const wire::IpAddress& target,
                                              const std::optional<wire::MacAddress>& to) noexcept;
/// From no address: whether somebody has the sender's.
[[nodiscard]] NeighborFrame make_duplicate_question(const NeighborSender& from) noexcept;
/// To whoever asked; to all hosts if that one has no address yet.
[[nodiscard]] NeighborFrame make_advertisement(const NeighborSender& from,
                                               const NeighborMessage& question) noexcept;
/// Tells switches that the port listens in its solicited-node group (RFC 3810 section 5.2), so that
/// those that look for listeners let questions through. It comes from no address, as from a host
/// whose link-local address is not there yet: switches take it (RFC 4541 section 3).
[[nodiscard]] NeighborFrame make_membership_report(const NeighborSender& from) noexcept;

/// Of a frame of kind kDiscovery. What RFC 4861 sections 7.1.1 and 7.1.2 forbid is no message.
[[nodiscard]] MessageVerdict read_discovery(const wire::FrameView& frame,
                                            NeighborMessage& out) noexcept;

}  // namespace gradwire::port
