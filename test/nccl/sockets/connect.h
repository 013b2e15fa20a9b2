// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How a channel of the reference plug-in comes to be: the receiver listens, its address goes to
/// the sender in NCCL's handle, and the sender opens a control connection and those for data. No
/// call waits: each goes on from where the one before ended. State of a connect is kept by the
/// handle, which NCCL passes again at each call. Allocates. Any thread, one at a time for an
/// object.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "nccl/sockets/channel.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl {

/// What is in NCCL's handle.
struct Handle {
  std::uint64_t token = 0;
  sockaddr_in address{};
  std::uint32_t connections = 0;  ///< with the control connection
  void* connecting = nullptr;     ///< of the process that connects
};
static_assert(sizeof(Handle) <= nccl_net::kHandleBytes);

/// The first bytes on each connection.
struct Greeting {
  std::uint64_t token = 0;
  std::uint64_t connection = 0;
};

class Listener {
 public:
  /// @param connections  how many it can tell apart. Null if the system has no port.
  static std::unique_ptr<Listener> open(Handle& handle, std::size_t connections);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// *channel stays null as long as connections are missing.
  nccl_net::Status accept(std::unique_ptr<Channel>* channel);
  /// A connection that has greeted, and which one it is. Waits for up to `timeout_ms`; -1: none.
  int accept_one(std::uint64_t* connection, int timeout_ms);

 private:
  Listener(int fd, std::uint64_t token, std::size_t connections)
      : fd_(fd), token_(token), greeted_(connections, -1) {}
  void take_greetings();

  const int fd_;
  const std::uint64_t token_;
  std::vector<int> silent_;   ///< accepted, and not greeted yet
  std::vector<int> greeted_;  ///< by connection; -1: not there
};

/// Goes on with what `handle` describes. *channel stays null until all is connected.
nccl_net::Status connect_channel(Handle& handle, std::unique_ptr<Channel>* channel);

/// One connection, greeted. Waits for up to `timeout_ms`. -1: refused, or time is over.
int connect_one(const Handle& handle, std::uint64_t connection, int timeout_ms);

}  // namespace gradwire::nccl
