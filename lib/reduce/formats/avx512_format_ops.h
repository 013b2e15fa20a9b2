// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The operations of format_ops.h on AVX-512 vectors, with the same bits. Of the extensions it
/// takes AVX512F alone. That has fused multiply-adds, and only -ffp-contract=off keeps a compiler
/// from making one of a product and a sum. AVX512_BF16's conversion would flush denormals.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// gcc 12's header leaves what an instruction does not read uninitialized on purpose, and warns.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "reduce/formats/format_ops.h"

#define GRADWIRE_FORMAT_AVX512 __attribute__((target("avx512f"), always_inline)) inline

namespace gradwire::reduce {
namespace {

struct Avx512FormatOps {
  using Vector = __m512;
  using Bits = __m512i;
  static constexpr std::size_t kElements = 16;
  static constexpr std::size_t kGroup = 16;

  GRADWIRE_FORMAT_AVX512 static Vector load(const std::byte* from) noexcept {
    return _mm512_loadu_ps(from);
  }
  GRADWIRE_FORMAT_AVX512 static void store(std::byte* to, Vector value) noexcept {
    _mm512_storeu_ps(to, value);
  }
  GRADWIRE_FORMAT_AVX512 static Vector all(float value) noexcept { return _mm512_set1_ps(value); }
  GRADWIRE_FORMAT_AVX512 static Vector add(Vector a, Vector b) noexcept {
    return _mm512_add_ps(a, b);
  }
  GRADWIRE_FORMAT_AVX512 static Vector divide(Vector a, Vector b) noexcept {
    return _mm512_div_ps(a, b);
  }
  GRADWIRE_FORMAT_AVX512 static Vector seal(Vector a) noexcept {
    const Vector nan = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(kFloatNan)));
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), nan);
  }
  GRADWIRE_FORMAT_AVX512 static __m512i magnitude(Vector value) noexcept {
    return _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7fffffff));
  }
  GRADWIRE_FORMAT_AVX512 static Vector residual(Vector value, Vector decoded) noexcept {
    const Vector lost = _mm512_sub_ps(value, decoded);
    const __m512i infinity = _mm512_set1_epi32(static_cast<int>(kFloatInfinity));
    return _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(infinity, magnitude(lost)), lost);
  }
  GRADWIRE_FORMAT_AVX512 static Vector load_bf16(const std::byte* from) noexcept {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  GRADWIRE_FORMAT_AVX512 static Vector load_scaled(const std::byte* q, Vector scale) noexcept {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(q));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), scale);
  }
  GRADWIRE_FORMAT_AVX512 static Bits no_bits() noexcept { return _mm512_setzero_si512(); }
  GRADWIRE_FORMAT_AVX512 static Bits larger(Bits bits, Vector value) noexcept {
    return _mm512_max_epu32(bits, magnitude(value));
  }
  GRADWIRE_FORMAT_AVX512 static std::uint32_t largest(Bits bits) noexcept {
    return _mm512_reduce_max_epu32(bits);
  }
  GRADWIRE_FORMAT_AVX512 static void quantize_group(const std::byte* values, Vector inverse,
                                                    std::byte* q) noexcept {
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(load(values), inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(q), _mm512_cvtepi32_epi8(rounded));
  }
  GRADWIRE_FORMAT_AVX512 static void round_group(const std::byte* values,
                                                 std::byte* bf16) noexcept {
    const Vector value = load(values);
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i aid = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i nan = _mm512_set1_epi32(static_cast<int>(kFloatNan));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i nearest = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, aid), is_nan, nan);
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(bf16),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(nearest, 16)));
  }
};

}  // namespace
}  // namespace gradwire::reduce
