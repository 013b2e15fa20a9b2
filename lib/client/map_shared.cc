// SPDX-License-Identifier: BSD-3-Clause
#include "client/map_shared.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace gradwire::client {

Result<std::byte*> map_shared(int fd, std::uint64_t bytes) {
  struct stat info;
  // An access beyond the end of a file raises SIGBUS, so check the size that the daemon claims.
  if (::fstat(fd, &info) != 0 || static_cast<std::uint64_t>(info.st_size) < bytes) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format(
            "the daemon sent shared memory that is smaller than the {} bytes that it announced",
            bytes));
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (address == MAP_FAILED) {
    return fail(ErrorCode::kSystem,
                fmt::format("{} bytes of the daemon's shared memory cannot be mapped: {}", bytes,
                            strerror(errno)));
  }
  return static_cast<std::byte*>(address);
}

}  // namespace gradwire::client
