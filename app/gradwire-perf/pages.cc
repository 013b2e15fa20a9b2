// SPDX-License-Identifier: BSD-3-Clause
#include "pages.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace gradwire::perf {

Pages::~Pages() {
  if (start_ != nullptr) ::munmap(start_, bytes_);
}

Result<std::byte*> Pages::allocate(std::size_t bytes) {
  bytes_ = bytes + kHugePageBytes;
  void* const start =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("{} bytes of memory: {}", bytes, std::strerror(errno)));
  }
  start_ = start;
  const auto misplaced = reinterpret_cast<std::uintptr_t>(start) % kHugePageBytes;
  auto* const aligned =
      static_cast<std::byte*>(start) + (misplaced == 0 ? 0 : kHugePageBytes - misplaced);
  all_ = {aligned, bytes};
  ::madvise(start, bytes_, MADV_HUGEPAGE);
  std::memset(aligned, 0, bytes);
  return aligned;
}

}  // namespace gradwire::perf
