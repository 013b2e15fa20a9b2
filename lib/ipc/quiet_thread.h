// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Threads of the daemon that get no signals: those are the main thread's.
#pragma once

#include <functional>
#include <thread>

namespace gradwire::ipc {

/// Starts a thread in which signals are blocked, except those of a fault: SIGBUS must reach its
/// handler. Throws std::system_error if there can be no more threads.
/// @param name  of at most 15 characters.
[[nodiscard]] std::thread start_quiet_thread(const char* name, std::function<void()> body);

}  // namespace gradwire::ipc
