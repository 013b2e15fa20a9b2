// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/tcp_socket.h"

#include <fmt/format.h>
#include <linux/errqueue.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace gradwire::perf {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(5);

tl::unexpected<Error> fail_system(const std::string& what) {
  return fail(ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno)));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("address '{}': {}", address, ::gai_strerror(error)));
  }
  return Addresses(list);
}

/// Waits until the descriptor is ready. @return kTimedOut, else nothing.
Result<void> await(int fd, short events, Clock::time_point deadline, const char* what) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd poll_fd{fd, events, 0};
  if (left <= 0 || ::poll(&poll_fd, 1, static_cast<int>(std::min<long>(left, 3'600'000))) == 0) {
    return fail(ErrorCode::kTimedOut, fmt::format("{}: no answer in time", what));
  }
  return {};
}

bool is_transient() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

TcpSocket::TcpSocket(TcpSocket&& other) noexcept { *this = std::move(other); }

TcpSocket& TcpSocket::operator=(TcpSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(zerocopy_, other.zerocopy_);
  std::swap(zerocopy_sends_, other.zerocopy_sends_);
  std::swap(zerocopy_done_, other.zerocopy_done_);
  std::swap(tls_, other.tls_);
  std::swap(seals_here_, other.seals_here_);
  std::swap(opens_here_, other.opens_here_);
  return *this;
}

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> TcpSocket::tune(const TcpTuning& tuning) {
  const int on = 1;
  if (::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
    return fail_system("TCP_NODELAY");
  }
  if (tuning.buffer_bytes > 0) {
    const int bytes = static_cast<int>(tuning.buffer_bytes);
    for (const auto& [force, plain, name] : {std::tuple(SO_SNDBUFFORCE, SO_SNDBUF, "SO_SNDBUF"),
                                             std::tuple(SO_RCVBUFFORCE, SO_RCVBUF, "SO_RCVBUF")}) {
      // Beyond the system's limit for root; as far as the limit for others.
      if (::setsockopt(fd_, SOL_SOCKET, force, &bytes, sizeof(bytes)) == 0) continue;
      if (::setsockopt(fd_, SOL_SOCKET, plain, &bytes, sizeof(bytes)) != 0) {
        return fail_system(name);
      }
    }
  }
  if (tuning.zerocopy) {
    if (::setsockopt(fd_, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) {
      return fail_system("the kernel refuses SO_ZEROCOPY, which --tcp-zerocopy needs");
    }
    zerocopy_ = true;
  }
  return {};
}

Result<void> TcpSocket::secure(TlsEnd end, Clock::time_point deadline) {
  auto made = TlsSession::establish(fd_, end, deadline);
  if (!made) return tl::unexpected(made.error());
  tls_ = std::make_unique<TlsSession>(std::move(*made));
  seals_here_ = !tls_->kernel_seals();
  opens_here_ = !tls_->kernel_opens();
  return {};
}

std::optional<std::size_t> TcpSocket::send(std::span<const std::byte> bytes) noexcept {
  if (seals_here_) return tls_->send(bytes);
  const bool zerocopy = zerocopy_ && bytes.size() >= kZerocopyBytes;
  const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (zerocopy ? MSG_ZEROCOPY : 0);
  const ssize_t taken = ::send(fd_, bytes.data(), bytes.size(), flags);
  if (taken >= 0) {
    zerocopy_sends_ += zerocopy && taken > 0;
    return static_cast<std::size_t>(taken);
  }
  // Too many unread notices: read them first.
  if (zerocopy && errno == ENOBUFS) {
    reap();
    return 0;
  }
  return is_transient() ? std::optional<std::size_t>(0) : std::nullopt;
}

std::optional<std::size_t> TcpSocket::receive(std::span<std::byte> bytes) noexcept {
  if (opens_here_) return tls_->receive(bytes);
  const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0) return is_transient() ? std::optional<std::size_t>(0) : std::nullopt;
  errno = ECONNRESET;
  return std::nullopt;
}

bool TcpSocket::released() noexcept {
  if (zerocopy_done_ != zerocopy_sends_) reap();
  return zerocopy_done_ == zerocopy_sends_;
}

void TcpSocket::reap() noexcept {
  while (true) {
    alignas(cmsghdr) std::byte control[128];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      sock_extended_err notice{};
      std::memcpy(&notice, CMSG_DATA(part), sizeof(notice));
      if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      zerocopy_done_ += notice.ee_data - notice.ee_info + 1;  // a range of sends
    }
  }
}

TcpCounts TcpSocket::counts() const noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return {info.tcpi_segs_out, info.tcpi_segs_in, info.tcpi_total_retrans, info.tcpi_bytes_acked};
}

Result<TcpSocket> tcp_listen(const std::string& address, std::uint16_t port,
                             const TcpTuning& tuning) {
  const auto addresses = resolve(address, port);
  if (!addresses) return tl::unexpected(addresses.error());
  const addrinfo& first = **addresses;
  TcpSocket socket(::socket(first.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return fail_system("socket");
  if (auto tuned = socket.tune(tuning); !tuned) return tl::unexpected(tuned.error());
  // Connections of an earlier run may still be closing on this port.
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.fd(), first.ai_addr, first.ai_addrlen) != 0 ||
      ::listen(socket.fd(), 128) != 0) {
    return fail_system(fmt::format("listening on {} port {}", address, port));
  }
  return socket;
}

Result<std::uint16_t> tcp_port(const TcpSocket& listener) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) {
    return fail_system("the port that was bound");
  }
  // The port lies at the same place in both.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  sockaddr_in internet{};
  std::memcpy(&internet, &name, sizeof(internet));
  return ntohs(internet.sin_port);
}

Result<TcpSocket> tcp_accept(const TcpSocket& listener, const TcpTuning& tuning,
                             Clock::time_point deadline) {
  if (auto ready = await(listener.fd(), POLLIN, deadline, "the rank before, to connect"); !ready) {
    return tl::unexpected(ready.error());
  }
  TcpSocket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.fd() < 0) return fail_system("accept");
  if (auto tuned = socket.tune(tuning); !tuned) return tl::unexpected(tuned.error());
  return socket;
}

Result<TcpSocket> tcp_connect(const std::string& address, std::uint16_t port,
                              const TcpTuning& tuning, Clock::time_point deadline) {
  const auto addresses = resolve(address, port);
  if (!addresses) return tl::unexpected(addresses.error());
  const addrinfo& first = **addresses;
  while (true) {
    TcpSocket socket(::socket(first.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) return fail_system("socket");
    if (auto tuned = socket.tune(tuning); !tuned) return tl::unexpected(tuned.error());
    int error = 0;
    if (::connect(socket.fd(), first.ai_addr, first.ai_addrlen) != 0) {
      if (errno != EINPROGRESS) return fail_system(fmt::format("connecting to {}", address));
      const std::string what = fmt::format("connecting to {} port {}", address, port);
      if (auto ready = await(socket.fd(), POLLOUT, deadline, what.c_str()); !ready) {
        return tl::unexpected(ready.error());
      }
      socklen_t bytes = sizeof(error);
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    if (error == 0) return socket;
    if (Clock::now() >= deadline) {
      errno = error;
      return fail_system(fmt::format("connecting to {} port {}", address, port));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

Result<void> tcp_send_all(TcpSocket& socket, std::span<const std::byte> bytes,
                          Clock::time_point deadline) {
  while (!bytes.empty()) {
    const auto taken = socket.send(bytes);
    if (!taken) return fail_system("sending");
    bytes = bytes.subspan(*taken);
    if (*taken > 0) continue;
    if (auto ready = await(socket.fd(), POLLOUT, deadline, "sending"); !ready) return ready;
  }
  return {};
}

Result<void> tcp_receive_all(TcpSocket& socket, std::span<std::byte> bytes,
                             Clock::time_point deadline) {
  while (!bytes.empty()) {
    const auto got = socket.receive(bytes);
    if (!got) return fail_system("receiving");
    bytes = bytes.subspan(*got);
    if (*got > 0) continue;
    if (auto ready = await(socket.fd(), POLLIN, deadline, "receiving"); !ready) return ready;
  }
  return {};
}

}  // namespace gradwire::perf
