// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One control message with its file descriptors over a SOCK_SEQPACKET socket, both ways. Used by
/// clients and the daemon; any thread, one at a time per socket; allocates. Each received message
/// is checked first: length, magic, version, number of descriptors.
///
/// Closing the last descriptor of a file may take as long as who sent it likes. The calls here
/// close none: they look at a message before they take it, and take it only if they have a
/// descriptor for each of its files. For that kMaxMessageFds free descriptors suffice; without them
/// the message is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "ipc/control_messages.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc {

/// Most descriptors that one message carries.
inline constexpr std::size_t kMaxMessageFds = 4;

struct Message {
  MessageHeader header;
  std::vector<std::byte> body;  ///< header.bytes - sizeof(MessageHeader)
  std::vector<UniqueFd> fds;

  [[nodiscard]] MessageType type() const noexcept { return static_cast<MessageType>(header.type); }
};

enum class SocketStatus : std::uint8_t {
  kDone,        ///< the message was sent or received
  kWouldBlock,  ///< a non-blocking socket has no message, or no room
  kClosed,      ///< the other end has closed
};

/// Sends one message. `header.type`, `request_id` and `error_code` are the caller's; the rest is
/// filled in. `fds` stay the caller's.
/// @return kInvalidArgument if the message is too large or has too many descriptors.
[[nodiscard]] Result<SocketStatus> send_message(int socket, MessageHeader header,
                                                std::span<const std::byte> body,
                                                std::span<const int> fds = {});

/// Receives one message into `out`.
/// @return kInvalidArgument if the other end broke the protocol: close the connection, since
/// nothing more can come and the message may still be in the socket. `out.header` then holds what
/// could be read of a header, for an answer, and `out.fds` whatever descriptors came: closing them
/// may take as long as the other end likes.
[[nodiscard]] Result<SocketStatus> receive_message(int socket, Message& out);

/// Clears what a message was copied from, or its body, if that may have a secret: a request for an
/// entry may bring a job's key.
void clear_if_secret(const MessageHeader& header, std::span<std::byte> bytes) noexcept;

/// Ends both directions of a connection, and takes a few messages that nobody received.
/// @return whether it is known that no descriptors are in the socket: closing it takes no time.
[[nodiscard]] bool end_connection(int socket);

}  // namespace gradwire::ipc
