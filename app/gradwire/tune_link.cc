// SPDX-License-Identifier: BSD-3-Clause
#include "tune_link.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/system_error.h"

namespace gradwire::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLineMax = std::size_t{1} << 20;
constexpr int kSendSeconds = 5;

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// @return whether `fd` is ready before `deadline`.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Result<void> TuneLink::find_leader(bool is_leader) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  const int found =
      is_leader ? getsockname(fd_.get(), address, &bytes) : getpeername(fd_.get(), address, &bytes);
  char text[INET_ADDRSTRLEN] = {};
  if (found != 0 || name.ss_family != AF_INET ||
      inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&name)->sin_addr, text, sizeof text) ==
          nullptr) {
    return system_error("reading the address of the connection");
  }
  leader_address_ = text;
  return {};
}

Result<TuneLink> TuneLink::accept(std::uint16_t port, double seconds) {
  const ipc::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  const int on = 1;
  if (!listener || setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      listen(listener.get(), 1) != 0) {
    return system_error(fmt::format("listening on TCP port {}", port));
  }
  if (!wait_for(listener.get(), POLLIN, after(seconds))) {
    return fail(ErrorCode::kTimedOut,
                fmt::format("no peer connected to TCP port {} within {} s: start gradwire tune "
                            "--peer THIS_HOST:{} on the other host",
                            port, seconds, port));
  }
  TuneLink link(ipc::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  if (!link.fd_) return system_error("accepting the peer");
  if (auto found = link.find_leader(true); !found) return tl::unexpected(found.error());
  return link;
}

Result<TuneLink> TuneLink::connect(const std::string& host, std::uint16_t port, double seconds) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return fail(ErrorCode::kNotFound, fmt::format("--peer {}: {}", host, gai_strerror(error)));
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  freeaddrinfo(found);
  address.sin_port = htons(port);
  const Clock::time_point deadline = after(seconds);
  while (true) {
    TuneLink link(ipc::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!link.fd_) return system_error("creating a socket");
    int error = 0;
    if (::connect(link.fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        socklen_t bytes = sizeof error;
        error = ETIMEDOUT;
        if (wait_for(link.fd_.get(), POLLOUT, deadline)) {
          getsockopt(link.fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
      }
    }
    if (error == 0) {
      if (auto leader = link.find_leader(false); !leader) return tl::unexpected(leader.error());
      return link;
    }
    if (Clock::now() >= deadline) {
      return fail(ErrorCode::kTimedOut,
                  fmt::format("{}:{} does not answer within {} s ({}): start gradwire tune "
                              "--listen {} there",
                              host, port, seconds, std::strerror(error), port));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Result<void> TuneLink::send(const nlohmann::json& message) {
  const std::string line = message.dump() + '\n';
  const Clock::time_point deadline = after(kSendSeconds);
  for (std::size_t sent = 0; sent < line.size();) {
    if (!wait_for(fd_.get(), POLLOUT, deadline)) {
      return fail(ErrorCode::kTimedOut, "the other end of gradwire tune stopped reading");
    }
    const ssize_t now =
        ::send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now < 0 && errno != EAGAIN && errno != EINTR) {
      return system_error("the other end of gradwire tune closed the connection");
    }
    if (now > 0) sent += static_cast<std::size_t>(now);
  }
  return {};
}

Result<nlohmann::json> TuneLink::receive(double seconds) {
  const Clock::time_point deadline = after(seconds);
  while (true) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      auto message = nlohmann::json::parse(received_.substr(0, end), nullptr, false);
      received_.erase(0, end + 1);
      if (message.is_object()) return message;
      return fail(ErrorCode::kInvalidArgument, "the other end is not gradwire tune");
    }
    if (received_.size() > kLineMax) {
      return fail(ErrorCode::kInvalidArgument, "the other end is not gradwire tune");
    }
    if (!wait_for(fd_.get(), POLLIN, deadline)) {
      return fail(ErrorCode::kTimedOut,
                  fmt::format("the other end of gradwire tune sent nothing for {} s", seconds));
    }
    char buffer[4096];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) received_.append(buffer, static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return fail(ErrorCode::kUnavailable, "the other end of gradwire tune closed the connection");
    }
  }
}

}  // namespace gradwire::cli
