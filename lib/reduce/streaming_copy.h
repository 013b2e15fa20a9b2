// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A copy for targets that are not read again soon. It bypasses the cache, so that the target's
/// lines are not fetched before they are overwritten, and the cache keeps what it has. Private to
/// lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradwire::reduce {

#if defined(__x86_64__)

/// `to` and `from` do not overlap and need no alignment. Other threads may see the bytes late: call
/// streaming_fence() before telling them.
__attribute__((target("avx"))) inline void streaming_copy_avx(std::byte* to, const std::byte* from,
                                                              std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  const std::size_t lines = (bytes - head) / kLine;
  std::byte* line = to + head;
  const std::byte* source = from + head;
  for (std::size_t i = 0; i < lines; ++i, line += kLine, source += kLine) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(source));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(source + kLine / 2));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(line), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(line + kLine / 2), high);
  }
  std::memcpy(line, source, bytes - head - lines * kLine);
}

inline void streaming_fence() noexcept { _mm_sfence(); }

#else

inline void streaming_fence() noexcept {}

#endif

}  // namespace gradwire::reduce
