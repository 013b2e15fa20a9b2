// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/stale_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc {
namespace {

/// A packet socket refuses a stream socket. The refusal shows that the listener is there, and the
/// listener does not notice it.
int probe_error(const sockaddr_un& address) noexcept {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return errno;
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
             ? 0
             : errno;
}

}  // namespace

bool is_socket_alive(const sockaddr_un& address) noexcept {
  return probe_error(address) == EPROTOTYPE;
}

Result<bool> remove_stale_socket(const std::string& path) {
  sockaddr_un address = {};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("socket path '{}' has {} bytes, must have 1 to {}", path, path.size(),
                            sizeof(address.sun_path) - 1));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    return system_error(fmt::format("inspecting {}", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} exists and is not a socket: remove it, or use another path", path));
  }
  const int error = probe_error(address);
  if (error == EPROTOTYPE || error == EAGAIN || error == 0) {
    return fail(
        ErrorCode::kBusy,
        fmt::format("another process already listens on {}: stop it, or use another path", path));
  }
  if (error != ECONNREFUSED) {
    errno = error;
    return system_error(fmt::format("testing whether {} is in use", path));
  }
  if (::unlink(path.c_str()) != 0)
    return system_error(fmt::format("removing the stale socket {}", path));
  return true;
}

}  // namespace gradwire::ipc
