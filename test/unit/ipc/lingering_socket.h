// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// TCP sockets whose last close takes as long as SO_LINGER says, for tests: nobody reads what was
/// sent there.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <vector>

#include "ipc/unique_fd.h"

namespace gradwire::ipc::test {

class LingeringSockets {
 public:
  LingeringSockets() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // Small, so that it is soon full; what is accepted inherits it.
    const int bytes = 4'096;
    REQUIRE(::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), length) == 0);
    REQUIRE(::listen(listener_.get(), 1'024) == 0);
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length) == 0);
  }
  /// Ends the waits.
  void end() { listener_.reset(); }

  UniqueFd make(int linger_s = 600) const {
    UniqueFd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int bytes = 4'096;
    REQUIRE(::setsockopt(out.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
    const linger most{1, linger_s};
    REQUIRE(::setsockopt(out.get(), SOL_SOCKET, SO_LINGER, &most, sizeof(most)) == 0);
    const auto* to = reinterpret_cast<const sockaddr*>(&address_);
    REQUIRE(::connect(out.get(), to, sizeof(address_)) == 0);
    const std::vector<char> much(65'536);
    while (::send(out.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
    }
    return out;
  }

 private:
  UniqueFd listener_;
  sockaddr_in address_ = {};
};

}  // namespace gradwire::ipc::test
