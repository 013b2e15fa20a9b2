// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// If a process starts with a standard descriptor closed, the first file that it opens takes that
/// number, and what is meant for standard output or standard error goes into it. Main thread,
/// before anything else.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace gradwire::ipc {

/// Opens /dev/null as each of the descriptors 0 to 2 that is closed.
/// @return whether all three are open now.
inline bool open_standard_descriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is this one.
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) return false;
  }
  return true;
}

}  // namespace gradwire::ipc
