// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Reaching a daemon's control socket: its path, the connection, and the one request that needs no
/// client. Any thread; it allocates; no call waits past its deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "ipc/control_messages.h"
#include "ipc/message_socket.h"
#include "ipc/unique_fd.h"

namespace gradwire::client {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// `path`, else GRADWIRE_SOCKET of the environment, else /run/gradwire/gradwired.sock.
[[nodiscard]] std::string resolve_socket_path(const char* path);

/// @return a connected, non-blocking socket.
[[nodiscard]] Result<ipc::UniqueFd> connect_to_daemon(const std::string& path, Deadline deadline);

/// Sends an operator's request (kStatus, ...) over a connection of its own.
/// @return the text of the reply.
[[nodiscard]] Result<std::string> daemon_request(const std::string& path, ipc::MessageType type,
                                                 std::span<const std::byte> body,
                                                 Deadline deadline);
/// The daemon's status: JSON text.
[[nodiscard]] Result<std::string> daemon_status(const std::string& path, Deadline deadline);

/// Milliseconds until `deadline` for poll(): rounded up, from 0.
[[nodiscard]] int poll_timeout_ms(Deadline deadline) noexcept;

}  // namespace gradwire::client
