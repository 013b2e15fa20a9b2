// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into a daemon, it makes clients' memory out of a small tmpfs (SMALL_POOL names its
// folder) in place of the machine's hugepages, so that a story can use all of them up without
// taking them from anybody.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

std::array<std::atomic<bool>, 1 << 16> from_pool;

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int control(int fd, int command, void* argument) {
  // A file of a tmpfs cannot be sealed; nobody here shortens it.
  const auto place = static_cast<std::size_t>(fd);
  if (command == F_ADD_SEALS && fd >= 0 && place < from_pool.size() && from_pool[place]) return 0;
  return next<int (*)(int, int, ...)>("fcntl64")(fd, command, argument);
}

}  // namespace

extern "C" {

int memfd_create(const char* name, unsigned flags) noexcept {
  if (std::strncmp(name, "gradwire-memory", 15) != 0) {
    return next<int (*)(const char*, unsigned)>("memfd_create")(name, flags);
  }
  const int fd = open(std::getenv("SMALL_POOL"), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 && static_cast<std::size_t>(fd) < from_pool.size())
    from_pool[static_cast<std::size_t>(fd)] = true;
  return fd;
}

// With files of 64-bit sizes this is fcntl64.
int fcntl(int fd, int command, ...) {
  std::va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return control(fd, command, argument);
}
}
