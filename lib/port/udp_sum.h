// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How a NIC is asked for the UDP checksum of a frame over IPv6. Any thread; nothing allocates.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>

#include "wire/frame.h"

namespace gradwire::port {

inline constexpr std::uint64_t kUdpSumMarks = RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM;

/// @param ip_offset  bytes before the IPv6 header, which has no options.
inline void ask_for_udp_sum(rte_mbuf& frame, std::size_t ip_offset) noexcept {
  frame.ol_flags |= kUdpSumMarks;
  frame.l2_len = ip_offset;
  frame.l3_len = wire::kIpv6Bytes;
}

}  // namespace gradwire::port
