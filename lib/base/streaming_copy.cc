// SPDX-License-Identifier: BSD-3-Clause
#include "base/streaming_copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace gradwire {

void streaming_copy(void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const std::size_t before =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine);
  std::memcpy(out, in, before);
  out += before;
  in += before;
  bytes -= before;
  for (; bytes >= kLine; bytes -= kLine, out += kLine, in += kLine) {
    const auto* words = reinterpret_cast<const __m128i*>(in);
    auto* line = reinterpret_cast<__m128i*>(out);
    const __m128i a = _mm_loadu_si128(words);
    const __m128i b = _mm_loadu_si128(words + 1);
    const __m128i c = _mm_loadu_si128(words + 2);
    const __m128i d = _mm_loadu_si128(words + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  std::memcpy(out, in, bytes);
  // Such stores may otherwise be seen after later ones.
  _mm_sfence();
}

}  // namespace gradwire
