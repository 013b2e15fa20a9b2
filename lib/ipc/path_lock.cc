// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/path_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"

namespace gradwire::ipc {

Result<UniqueFd> take_path_lock(const std::string& path) {
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return system_error(fmt::format("opening the lock file {}", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t got = ::pread(lock.get(), pid, sizeof(pid) - 1, 0);
    return fail(
        ErrorCode::kBusy,
        fmt::format("another daemon (pid {}) holds the lock {}: stop it, or use another path",
                    got > 0 ? std::string(pid, ::strcspn(pid, "\n")) : "unknown", path));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return system_error(fmt::format("writing the lock file {}", path));
  }
  return lock;
}

}  // namespace gradwire::ipc
