// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DPDK 22.11's memif driver unmaps a link's memory on the EAL's interrupt thread as soon as the
/// peer has gone, and a lane may be copying from it at that moment. It has told rx_burst and
/// tx_burst before that the link is down, so it is enough that every lane makes another round
/// first. The library's munmap() waits for that, on that thread alone; the driver's calls are bound
/// to it because the program exports the name (a symbol of the program goes before libc's).
///
/// Lanes are registered by the control thread; their rounds are read by the interrupt thread.
#pragma once

#include <cstdint>

namespace gradwire::port {

/// From here on until forget_rounds() an unmapping waits for `rounds`, which a lane counts
/// (base/counter.h).
void watch_rounds(const std::uint64_t* rounds);
void forget_rounds(const std::uint64_t* rounds);

/// Waits until every watched lane has finished the round that it is in, or for 250 ms: a lane that
/// makes none for so long is not in a burst, its thread is elsewhere.
void wait_for_rounds() noexcept;

}  // namespace gradwire::port
