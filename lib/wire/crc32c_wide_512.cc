// SPDX-License-Identifier: BSD-3-Clause
// As crc32c_wide.cc, with registers of 512 bits.
#include "wire/crc32c_fold.h"

namespace gradwire::wire {
namespace {

#define GRADWIRE_WIDE_512 \
  __attribute__((target("avx512f,avx512vl,avx512dq,avx2,pclmul,vpclmulqdq,sse4.2")))
#define GRADWIRE_WIDE_512_INLINE GRADWIRE_WIDE_512 inline __attribute__((always_inline))

GRADWIRE_WIDE_512_INLINE __m512i load_512(const std::byte* from) noexcept {
  return _mm512_loadu_si512(from);
}

GRADWIRE_WIDE_512_INLINE __m512i all_lanes(const Move& move) noexcept {
  return _mm512_set4_epi64(half_of(move.upper), half_of(move.lower), half_of(move.upper),
                           half_of(move.lower));
}

/// Moves `value` on, and adds what is there.
GRADWIRE_WIDE_512_INLINE __m512i onto(__m512i there, __m512i value, __m512i move) noexcept {
  constexpr int kXor = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, move, 0x00),
                                   _mm512_clmulepi64_epi128(value, move, 0x11), there, kXor);
}

/// Reduces the 2,048 bits in four registers to a value of 32.
GRADWIRE_WIDE_512_INLINE std::uint64_t reduced_512(__m512i a, __m512i b, __m512i c,
                                                   __m512i d) noexcept {
  d = onto(d, a, all_lanes(kOver<1536>));
  d = onto(d, b, all_lanes(kOver<1024>));
  d = onto(d, c, all_lanes(kOver<512>));
  // Each lane is moved over the lanes after it; the last stays.
  const __m512i last = _mm512_maskz_mov_epi64(0xc0, d);
  const __m512i moves = _mm512_set_epi64(0, 0, half_of(kOver<128>.upper), half_of(kOver<128>.lower),
                                         half_of(kOver<256>.upper), half_of(kOver<256>.lower),
                                         half_of(kOver<384>.upper), half_of(kOver<384>.lower));
  d = onto(last, d, moves);
  // Masked forms: for the plain ones gcc 12 warns of uninitialized values in its own header.
  const __m256i half = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xf, d, 0),
                                        _mm512_maskz_extracti64x4_epi64(0xf, d, 1));
  return wire::reduced(
      _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

}  // namespace

GRADWIRE_WIDE_512 std::uint32_t take_steps_512(std::uint32_t state, const std::byte* folded,
                                               std::size_t steps, const std::byte* ahead) noexcept {
  Runs<Shape512::kRun> runs(folded + steps * Shape512::kFolded, steps);
  const __m512i over_step = all_lanes(kOver<2048>);
  __m512i a = _mm512_xor_si512(load_512(folded),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i b = load_512(folded + 64);
  __m512i c = load_512(folded + 128);
  __m512i d = load_512(folded + 192);
  for (std::size_t offset = 0; offset != Shape512::kRun; offset += 8) runs.take(offset);
  for (std::size_t step = 1; step < steps; ++step) {
    runs.next_step();
    folded += Shape512::kFolded;
    fetch<Shape512::kAheadLines>(ahead);
    a = onto(load_512(folded), a, over_step);
    runs.take(0);
    b = onto(load_512(folded + 64), b, over_step);
    runs.take(8);
    c = onto(load_512(folded + 128), c, over_step);
    runs.take(16);
    d = onto(load_512(folded + 192), d, over_step);
    runs.take(24);
  }
  return runs.joined(reduced_512(a, b, c, d), steps);
}

}  // namespace gradwire::wire
