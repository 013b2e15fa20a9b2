// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Removes the socket file of a listener that was killed, which would keep the next one from
/// listening there. Any thread; allocates; makes system calls.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "base/result.h"

namespace gradwire::ipc {

/// @return whether a SOCK_SEQPACKET socket of a living process is bound to `address`, a path. The
/// test makes no connection (the kernel refuses a stream socket), because some servers take one
/// that is closed at once for a lost peer (the memif driver of DPDK 22.11 then uses freed memory).
[[nodiscard]] bool is_socket_alive(const sockaddr_un& address) noexcept;

/// Removes the SOCK_SEQPACKET socket at `path` if nobody listens there. Two processes that do this
/// for one path at the same moment need a lock between them.
/// @return whether one was removed; kBusy if somebody listens, kInvalidArgument if something
/// else than a socket is there.
[[nodiscard]] Result<bool> remove_stale_socket(const std::string& path);

}  // namespace gradwire::ipc
