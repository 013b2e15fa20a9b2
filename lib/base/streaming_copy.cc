// SPDX-License-Identifier: BSD-3-Clause
#include "base/streaming_copy.h"

namespace gradwire {

void streaming_copy(void* to, const void* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    streaming_copy_avx(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    return streaming_fence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace gradwire
