// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/sockets/connect.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace gradwire::nccl {
namespace {

using nccl_net::kSuccess;
using nccl_net::Status;

int tcp_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

/// @return 1 connected, 0 not yet, -1 refused.
int connected(int fd, int timeout_ms) {
  pollfd wait{fd, POLLOUT, 0};
  if (poll(&wait, 1, timeout_ms) == 0) return 0;
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error == 0 ? 1 : -1;
}

/// A connection that was opened a moment ago has room for these few bytes.
bool greet(int fd, std::uint64_t token, std::uint64_t connection) {
  const Greeting greeting{token, connection};
  return send(fd, &greeting, sizeof(greeting), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(greeting);
}

int begin(const sockaddr_in& address) {
  const int fd = tcp_socket();
  if (fd < 0) return -1;
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (connect(fd, generic, sizeof(address)) == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

struct Connecting {
  std::vector<int> sockets;
  std::vector<bool> greeted;
};

/// A connect that NCCL gives up is never told so: its state lies here until the process ends.
struct Pending {
  std::mutex mutex;
  std::vector<std::unique_ptr<Connecting>> connecting;
};
Pending& pending() {
  static Pending all;
  return all;
}

Connecting* start(const Handle& handle) {
  auto made = std::make_unique<Connecting>();
  for (std::uint32_t i = 0; i < handle.connections; ++i) {
    made->sockets.push_back(begin(handle.address));
    made->greeted.push_back(false);
  }
  const std::lock_guard lock(pending().mutex);
  pending().connecting.push_back(std::move(made));
  return pending().connecting.back().get();
}

void forget(const Connecting* connecting) {
  const std::lock_guard lock(pending().mutex);
  std::erase_if(pending().connecting, [&](const auto& one) { return one.get() == connecting; });
}

}  // namespace

std::unique_ptr<Listener> Listener::open(Handle& handle, std::size_t connections) {
  const int fd = tcp_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = settings().address;
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, generic, bytes) != 0 || listen(fd, 64) != 0 ||
      getsockname(fd, generic, &bytes) != 0) {
    log_warning("sockets: cannot listen: %s", std::strerror(errno));
    if (fd >= 0) close(fd);
    return nullptr;
  }
  handle = Handle{};
  if (getrandom(&handle.token, sizeof(handle.token), 0) < 0) handle.token = 1;
  handle.address = address;
  handle.connections = static_cast<std::uint32_t>(connections);
  return std::unique_ptr<Listener>(new Listener(fd, handle.token, handle.connections));
}

Listener::~Listener() {
  close(fd_);
  for (const int fd : silent_) close(fd);
  for (const int fd : greeted_) {
    if (fd >= 0) close(fd);
  }
}

void Listener::take_greetings() {
  for (int fd = 0; (fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    silent_.push_back(fd);
  }
  std::erase_if(silent_, [this](int fd) {
    Greeting greeting;
    const ssize_t came = recv(fd, &greeting, sizeof(greeting), MSG_DONTWAIT | MSG_PEEK);
    if (came < 0 && errno == EAGAIN) return false;
    if (came > 0 && static_cast<std::size_t>(came) < sizeof(greeting)) return false;
    recv(fd, &greeting, sizeof(greeting), MSG_DONTWAIT);
    const bool ours = came > 0 && greeting.token == token_ &&
                      greeting.connection < greeted_.size() && greeted_[greeting.connection] < 0;
    if (ours) {
      greeted_[greeting.connection] = fd;
    } else {
      close(fd);
    }
    return true;
  });
}

Status Listener::accept(std::unique_ptr<Channel>* channel) {
  take_greetings();
  if (std::find(greeted_.begin(), greeted_.end(), -1) != greeted_.end()) return kSuccess;
  *channel = std::make_unique<Channel>(greeted_, false);
  std::fill(greeted_.begin(), greeted_.end(), -1);
  return kSuccess;
}

int Listener::accept_one(std::uint64_t* connection, int timeout_ms) {
  for (int waited_ms = 0; waited_ms < timeout_ms; ++waited_ms) {
    take_greetings();
    const auto found =
        std::find_if(greeted_.begin(), greeted_.end(), [](int fd) { return fd >= 0; });
    if (found != greeted_.end()) {
      *connection = static_cast<std::uint64_t>(found - greeted_.begin());
      return std::exchange(*found, -1);
    }
    usleep(1000);
  }
  return -1;
}

Status connect_channel(Handle& handle, std::unique_ptr<Channel>* channel) {
  if (handle.connecting == nullptr) handle.connecting = start(handle);
  auto* connecting = static_cast<Connecting*>(handle.connecting);
  for (std::size_t i = 0; i < connecting->sockets.size(); ++i) {
    if (connecting->greeted[i]) continue;
    const int fd = connecting->sockets[i];
    const int state = fd < 0 ? -1 : connected(fd, 0);
    if (state == 0) return kSuccess;
    if (state < 0 || !greet(fd, handle.token, i)) {
      log_warning("sockets: connection %zu to port %d was refused", i,
                  ntohs(handle.address.sin_port));
      for (const int socket : connecting->sockets) {
        if (socket >= 0) close(socket);
      }
      forget(connecting);
      handle.connecting = nullptr;
      return nccl_net::kRemoteError;
    }
    connecting->greeted[i] = true;
  }
  *channel = std::make_unique<Channel>(std::move(connecting->sockets), true);
  forget(connecting);
  handle.connecting = nullptr;
  return kSuccess;
}

int connect_one(const Handle& handle, std::uint64_t connection, int timeout_ms) {
  const int fd = begin(handle.address);
  if (fd < 0) return -1;
  if (connected(fd, timeout_ms) == 1 && greet(fd, handle.token, connection)) return fd;
  close(fd);
  return -1;
}

}  // namespace gradwire::nccl
