// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A socket pair, and functions that send without any check, as a hostile client can.
#pragma once

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "ipc/message_socket.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc::test {

inline std::pair<UniqueFd, UniqueFd> socket_pair() {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

inline MessageHeader header(MessageType type, std::uint32_t request_id = 1) {
  MessageHeader h;
  h.type = static_cast<std::uint16_t>(type);
  h.request_id = request_id;
  h.bytes = sizeof(h);
  return h;
}

inline void send_raw(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {}) {
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[512] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

/// Descriptors that this process has open.
inline std::size_t open_fds() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

}  // namespace gradwire::ipc::test
