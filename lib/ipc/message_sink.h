// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where the control plane sends its answers; implemented by ControlServer and by tests. Only the
/// control thread calls it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/control_messages.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc {

/// One connection to the control socket; never reused while the daemon lives.
using ConnectionId = std::uint64_t;

/// The process at the other end, according to the kernel (SO_PEERCRED).
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// Sends or queues a message. `header.type`, `request_id` and `error_code` are the caller's. If
  /// the connection is closed or its queue overflows (which closes it), the message is lost.
  virtual void send(ConnectionId connection, const MessageHeader& header,
                    std::span<const std::byte> body, std::vector<UniqueFd> fds) = 0;
  /// Closes the connection; queued messages are sent as far as the socket accepts them without
  /// waiting. The close is reported later like any other.
  virtual void hang_up(ConnectionId connection) = 0;
  /// The connection may be silent from now on: it belongs to a client, or waits for an answer that
  /// takes long. Others are closed after a while.
  virtual void keep(ConnectionId /*connection*/) {}
};

}  // namespace gradwire::ipc
