// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/setup_socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gradwire::nccl_net {

void bound_waits(int socket, time_t seconds) {
  const timeval bound{seconds, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
}

int connect_to(const sockaddr_in6& address, time_t seconds, std::string& why) {
  const int fd = socket(address.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    bound_waits(fd, seconds);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  }
  why = std::string("connecting by TCP to the process that listens: ") + std::strerror(errno);
  if (fd >= 0) close(fd);
  return -1;
}

bool say_bytes(int socket, const void* data, std::size_t bytes) {
  return send(socket, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

bool hear_bytes(int socket, void* data, std::size_t bytes) {
  return recv(socket, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

}  // namespace gradwire::nccl_net
