// SPDX-License-Identifier: BSD-3-Clause
#include "client/control_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/defaults.h"

namespace gradwire::client {
namespace {

Error connect_error(const std::string& path, int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return {ErrorCode::kPermission,
              fmt::format("permission denied: this user may not connect to the daemon's socket {}; "
                          "become a member of the group that owns it",
                          path)};
    case EAGAIN:
      return {ErrorCode::kTimedOut,
              fmt::format("the daemon at {} did not accept the connection in time", path)};
    default:
      return {ErrorCode::kUnavailable,
              fmt::format("no daemon listens at {} ({}): start gradwired, or name its socket in "
                          "GRADWIRE_SOCKET",
                          path, strerror(error))};
  }
}

}  // namespace

std::string resolve_socket_path(const char* path) {
  if (path != nullptr) return path;
  const char* from_environment = std::getenv("GRADWIRE_SOCKET");
  if (from_environment != nullptr && *from_environment != '\0') return from_environment;
  return defaults::kControlSocket;
}

Result<ipc::UniqueFd> connect_to_daemon(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the socket path '{}' has {} bytes: it must have 1 to {}", path,
                            path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());

  ipc::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return fail(ErrorCode::kSystem, fmt::format("socket(AF_UNIX): {}", strerror(errno)));
  // If the backlog is full, connect() waits for at most the send timeout.
  const int timeout_ms = std::max(1, poll_timeout_ms(deadline));
  const timeval timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  int status;
  do {
    status = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (status != 0 && errno == EINTR && Clock::now() < deadline);
  if (status != 0) return tl::unexpected(connect_error(path, errno));
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("fcntl(O_NONBLOCK): {}", strerror(errno)));
  }
  return fd;
}

Result<std::string> daemon_status(const std::string& path, Deadline deadline) {
  return daemon_request(path, ipc::MessageType::kStatus, {}, deadline);
}

Result<std::string> daemon_request(const std::string& path, ipc::MessageType type,
                                   std::span<const std::byte> body, Deadline deadline) {
  constexpr std::uint32_t kRequestId = 1;
  const auto socket = connect_to_daemon(path, deadline);
  if (!socket) return tl::unexpected(socket.error());
  const auto closed = [&path] {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the daemon at {} closed the connection", path));
  };
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(type);
  header.request_id = kRequestId;
  // A fresh connection has room for one small message.
  const auto sent = ipc::send_message(socket->get(), header, body);
  if (!sent) return tl::unexpected(sent.error());
  // If the daemon has closed the connection already, it may have sent the reason, which is received
  // below.
  while (true) {
    ipc::Message message;
    const auto received = ipc::receive_message(socket->get(), message);
    if (!received) {
      return fail(received.error().code,
                  fmt::format("the daemon at {}: {}", path, received.error().message));
    }
    if (*received == ipc::SocketStatus::kClosed) return closed();
    if (*received == ipc::SocketStatus::kDone) {
      if (auto why = ipc::error_of(message.header, message.body);
          why && message.header.request_id == 0) {
        return fail(why->code, fmt::format("the daemon at {} hung up: {}", path, why->message));
      }
      if (message.header.request_id == kRequestId) return ipc::status_text(message);
      continue;
    }
    if (Clock::now() >= deadline) {
      return fail(ErrorCode::kTimedOut,
                  fmt::format("the daemon at {} did not answer in time", path));
    }
    pollfd entry{socket->get(), POLLIN, 0};
    ::poll(&entry, 1, poll_timeout_ms(deadline));
  }
}

int poll_timeout_ms(Deadline deadline) noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

}  // namespace gradwire::client
