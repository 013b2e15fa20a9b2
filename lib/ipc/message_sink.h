// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where the control plane sends its answers: implemented by ControlServer, and by tests. Called by
/// the control thread alone.
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

/// Who is at the other end, as the kernel says (SO_PEERCRED).
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// Sends or queues a message. `header.type`, `request_id` and `error_code` are the caller's. A
  /// connection that is gone, or whose queue overflows (then it is hung up), loses it.
  virtual void send(ConnectionId connection, const MessageHeader& header,
                    std::span<const std::byte> body, std::vector<UniqueFd> fds) = 0;
  /// Hangs up; what is queued goes out as far as the socket takes it without waiting. The hang-up
  /// is reported later as any other.
  virtual void hang_up(ConnectionId connection) = 0;
  /// The connection may be silent from now on: it is a client's, or waits for an answer that takes
  /// its time. Others are hung up after a while.
  virtual void keep(ConnectionId /*connection*/) {}
};

}  // namespace gradwire::ipc
