// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Drivers handle asynchronous events on the EAL's interrupt thread: DPDK's memif frees the
/// memory of a link there when the peer disconnects. If another thread stops or closes such a port
/// at the same moment, both free the same memory (observed: a segmentation fault of a benchmark
/// whose two ranks ended together). Control thread.
#pragma once

#include <functional>

namespace gradwire::port {

/// Runs `work` on the interrupt thread and waits until it is done. If that thread does not start it
/// within two seconds, or accepts no work, the caller runs it.
void on_interrupt_thread(const std::function<void()>& work);

/// On the interrupt thread: whether it is running such work for a caller that waits.
[[nodiscard]] bool is_work_asked_for() noexcept;

}  // namespace gradwire::port
