// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/setup_socket.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace gradwire::nccl_net {
namespace {

/// Of what a call says that has done nothing yet.
bool is_not_yet(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// Waits until it is connected. @return 0, or what is wrong.
int end_of_connect(int socket, SetupTime until) {
  if (!wait_for(socket, POLLOUT, until)) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

}  // namespace

int milliseconds_to(SetupTime until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SetupClock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, INT_MAX));
}

bool wait_for(int socket, short events, SetupTime until) {
  while (true) {
    const int left = milliseconds_to(until);
    pollfd wait{socket, events, 0};
    const int found = poll(&wait, 1, left);
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
    if (left == 0) return false;
  }
}

Descriptor connect_to(const sockaddr_in6& address, SetupTime until, std::string& why) {
  Descriptor made = Descriptor::tcp_socket(address.sin6_family);
  int error = made ? 0 : errno;
  if (made) {
    const int on = 1;
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      error = errno;
    }
    // It goes on by itself, also after a signal.
    if (error == EINPROGRESS || error == EINTR) error = end_of_connect(made.get(), until);
    if (error == 0) return made;
  }
  why = std::string("connecting by TCP to the process that listens: ") + std::strerror(error);
  return {};
}

bool say_bytes(int socket, const void* data, std::size_t bytes, SetupTime until) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t went = send(socket, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (went > 0) {
      from += went;
      bytes -= static_cast<std::size_t>(went);
    } else if (went == 0 || !is_not_yet(errno) || !wait_for(socket, POLLOUT, until)) {
      return false;
    }
  }
  return true;
}

bool hear_bytes(int socket, void* data, std::size_t bytes, SetupTime until) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t came = recv(socket, to, bytes, MSG_DONTWAIT);
    if (came > 0) {
      to += came;
      bytes -= static_cast<std::size_t>(came);
    } else if (came == 0 || !is_not_yet(errno) || !wait_for(socket, POLLIN, until)) {
      return false;
    }
  }
  return true;
}

}  // namespace gradwire::nccl_net
