// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Drivers handle what happens by itself on the EAL's interrupt thread: DPDK 22.11's memif frees a
/// link's memory there when the peer goes. Whoever stops or closes such a port on another thread
/// frees the same memory at the same moment (seen: a segmentation fault of a bench whose two ranks
/// ended together). Control thread.
#pragma once

#include <functional>

namespace gradwire::port {

/// Does `work` on the interrupt thread, and waits for its end. Where that thread does not come to
/// it for two seconds, or takes no work, the caller does it.
void on_interrupt_thread(const std::function<void()>& work);

/// On the interrupt thread: whether it does such work, for a caller that waits.
[[nodiscard]] bool is_work_asked_for() noexcept;

}  // namespace gradwire::port
