// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DPDK 22.11's memif driver unmaps a link's memory on the EAL's interrupt thread as soon as the
/// peer has gone, and a lane may be copying from it at that moment. Before that the driver has
/// marked the link as down for rx_burst and tx_burst, so the memory is safe to unmap once every
/// lane has begun another round. It closes the rings' eventfds there too, to one of which a lane
/// may be about to write. This library defines a munmap() and a close() that wait for it, on that
/// thread only. The driver calls these instead of libc's because the program exports the symbols.
///
/// Lanes are registered by the control thread; their rounds are read by the interrupt thread.
#pragma once

#include <cstdint>

namespace gradwire::port {

/// From now until forget_rounds(), munmap() and close() wait for the lane that counts its rounds in
/// `rounds` (base/counter.h).
void watch_rounds(const std::uint64_t* rounds);
void forget_rounds(const std::uint64_t* rounds);

/// Waits until every watched lane has finished its current round, but at most 250 ms: a lane that
/// takes longer is not inside a burst.
void wait_for_rounds() noexcept;

}  // namespace gradwire::port
