// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The kernel's socket below a port of DPDK's af_xdp or af_packet driver. It becomes readable when
/// a packet comes and stays so until the driver has taken all, so a lane can sleep on it; the
/// driver has no call that gives it away. It is found among the files of the process by what the
/// kernel says of each, without the driver's private records.
///
/// Control thread. No call waits.
#pragma once

#include <cstdint>
#include <vector>

namespace gradwire::port {

/// Files of this process that are AF_XDP sockets, in ascending order.
[[nodiscard]] std::vector<int> xdp_sockets();

/// The only file that is in `after` and not in `before`, which are in ascending order.
/// @return -1 if there is none, or several.
[[nodiscard]] int only_new(const std::vector<int>& before, const std::vector<int>& after) noexcept;

/// The only packet socket of this process that is bound to that interface.
/// @return -1 if there is none, or several.
[[nodiscard]] int packet_socket_of(unsigned if_index);

/// How many packets the kernel has dropped at a packet socket since it was asked last, because the
/// driver had not taken those before; the driver counts none of them. 0 if the kernel does not say.
[[nodiscard]] std::uint64_t packets_dropped(int packet_socket) noexcept;

}  // namespace gradwire::port
