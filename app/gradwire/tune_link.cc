// SPDX-License-Identifier: BSD-3-Clause
#include "tune_link.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "base/system_error.h"

namespace gradwire::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLineMax = std::size_t{1} << 20;
constexpr int kSendSeconds = 5;
/// For one of a name's addresses, since another may answer.
constexpr int kTrySeconds = 1;

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

/// Listens on all addresses: of both IP versions, or of IPv4 alone if the kernel has no other.
/// @return nothing, with errno, if it cannot.
ipc::UniqueFd listen_on(std::uint16_t port) {
  const int on = 1;
  const int off = 0;
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  ipc::UniqueFd both(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (both && setsockopt(both.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
      setsockopt(both.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(both.get(), reinterpret_cast<sockaddr*>(&any6), sizeof any6) == 0 &&
      listen(both.get(), 1) == 0) {
    return both;
  }
  both.reset();
  ipc::UniqueFd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!one || setsockopt(one.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(one.get(), reinterpret_cast<sockaddr*>(&any4), sizeof any4) != 0 ||
      listen(one.get(), 1) != 0) {
    return {};
  }
  return one;
}

/// @return the errno of one try to connect; 0 if it is connected.
int try_connect(int fd, const addrinfo& to, Clock::time_point deadline) {
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  int error = errno;
  if (error != EINPROGRESS) return error;
  socklen_t bytes = sizeof error;
  error = ETIMEDOUT;
  if (wait_for(fd, POLLOUT, deadline)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

}  // namespace

Result<void> TuneLink::find_leader(bool is_leader) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  const int found =
      is_leader ? getsockname(fd_.get(), address, &bytes) : getpeername(fd_.get(), address, &bytes);
  char text[NI_MAXHOST] = {};
  if (found != 0 ||
      getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return system_error("reading the address of the connection");
  }
  constexpr std::string_view kMapped = "::ffff:";  // IPv4, on a socket of both versions
  std::string_view host = text;
  if (host.starts_with(kMapped)) host.remove_prefix(kMapped.size());
  leader_address_ =
      host.find(':') == std::string_view::npos ? std::string(host) : fmt::format("[{}]", host);
  return {};
}

Result<TuneLink> TuneLink::accept(std::uint16_t port, double seconds) {
  const ipc::UniqueFd listener = listen_on(port);
  if (!listener) {
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
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* resolved = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &resolved);
      error != 0) {
    return fail(ErrorCode::kNotFound, fmt::format("--peer {}: {}", host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(resolved, &freeaddrinfo);
  const Clock::time_point deadline = after(seconds);
  while (true) {
    int error = 0;
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
      TuneLink link(
          ipc::UniqueFd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
      error = link.fd_ ? try_connect(link.fd_.get(), *one, std::min(deadline, after(kTrySeconds)))
                       : errno;
      if (error != 0) continue;
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
