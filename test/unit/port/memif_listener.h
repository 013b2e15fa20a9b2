// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A memif server as far as a client's test for one can tell: somebody listens.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <string>

#include "ipc/unique_fd.h"
#include "port/memif/memif_link.h"

namespace gradwire::port {

inline ipc::UniqueFd listen_at(const MemifEnd& end) {
  ipc::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + (end.abstract ? 1 : 0), end.socket.data(), end.socket.size());
  const std::size_t bytes =
      end.abstract ? offsetof(sockaddr_un, sun_path) + 1 + end.socket.size() : sizeof(address);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(bytes)) == 0);
  REQUIRE(::listen(fd.get(), 1) == 0);
  return fd;
}

inline std::string path_of_this_process() {
  return "/tmp/gradwire-memif-" + std::to_string(::getpid()) + ".sock";
}

}  // namespace gradwire::port
