// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The operations of format_ops.h on AVX2 vectors, with the same bits. Loads and stores need no
/// alignment. AVX2 has no fused multiply-add: that is an extension of its own, which nothing here
/// is compiled for. Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <immintrin.h>

#include "reduce/formats/format_ops.h"

#define GRADWIRE_FORMAT_AVX2 __attribute__((target("avx2"), always_inline)) inline

namespace gradwire::reduce {
namespace {

struct Avx2FormatOps {
  using Vector = __m256;
  using Bits = __m256i;
  static constexpr std::size_t kElements = 8;
  static constexpr std::size_t kGroup = 32;

  GRADWIRE_FORMAT_AVX2 static __m256i load_bits(const std::byte* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
  }
  GRADWIRE_FORMAT_AVX2 static void store_bits(std::byte* to, __m256i bits) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), bits);
  }
  GRADWIRE_FORMAT_AVX2 static Vector load(const std::byte* from) noexcept {
    return _mm256_castsi256_ps(load_bits(from));
  }
  GRADWIRE_FORMAT_AVX2 static void store(std::byte* to, Vector value) noexcept {
    store_bits(to, _mm256_castps_si256(value));
  }
  GRADWIRE_FORMAT_AVX2 static Vector all(float value) noexcept { return _mm256_set1_ps(value); }
  GRADWIRE_FORMAT_AVX2 static Vector add(Vector a, Vector b) noexcept {
    return _mm256_add_ps(a, b);
  }
  GRADWIRE_FORMAT_AVX2 static Vector divide(Vector a, Vector b) noexcept {
    return _mm256_div_ps(a, b);
  }
  GRADWIRE_FORMAT_AVX2 static Vector seal(Vector a) noexcept {
    const Vector nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kFloatNan)));
    return _mm256_blendv_ps(a, nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  GRADWIRE_FORMAT_AVX2 static __m256i magnitude(Vector value) noexcept {
    return _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x7fffffff));
  }
  GRADWIRE_FORMAT_AVX2 static Vector residual(Vector value, Vector decoded) noexcept {
    const Vector lost = _mm256_sub_ps(value, decoded);
    const __m256i infinity = _mm256_set1_epi32(static_cast<int>(kFloatInfinity));
    const __m256i finite = _mm256_cmpgt_epi32(infinity, magnitude(lost));
    return _mm256_and_ps(lost, _mm256_castsi256_ps(finite));
  }
  GRADWIRE_FORMAT_AVX2 static Vector load_bf16(const std::byte* from) noexcept {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  GRADWIRE_FORMAT_AVX2 static Vector load_scaled(const std::byte* q, Vector scale) noexcept {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(q));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), scale);
  }
  GRADWIRE_FORMAT_AVX2 static Bits no_bits() noexcept { return _mm256_setzero_si256(); }
  GRADWIRE_FORMAT_AVX2 static Bits larger(Bits bits, Vector value) noexcept {
    return _mm256_max_epi32(bits, magnitude(value));  // without signs they are no negative integers
  }
  GRADWIRE_FORMAT_AVX2 static std::uint32_t largest(Bits bits) noexcept {
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
  }
  GRADWIRE_FORMAT_AVX2 static __m256i rounded(const std::byte* values, Vector inverse) noexcept {
    return _mm256_cvtps_epi32(
        _mm256_mul_ps(load(values), inverse));  // halves to even, as MXCSR says
  }
  GRADWIRE_FORMAT_AVX2 static void quantize_group(const std::byte* values, Vector inverse,
                                                  std::byte* q) noexcept {
    // No q is beyond 127, so that packing saturates nothing. It leaves groups of four elements in
    // the order 0, 2, 4, 6, 1, 3, 5, 7.
    const __m256i low = _mm256_packs_epi32(rounded(values, inverse), rounded(values + 32, inverse));
    const __m256i high =
        _mm256_packs_epi32(rounded(values + 64, inverse), rounded(values + 96, inverse));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    store_bits(q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
  }
  /// bf16 in the low half of each 32 bits.
  GRADWIRE_FORMAT_AVX2 static __m256i halves(const std::byte* values) noexcept {
    const __m256i bits = load_bits(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i aid = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i nearest = _mm256_add_epi32(bits, aid);
    const __m256i nan = _mm256_set1_epi32(static_cast<int>(kFloatNan));
    const Vector value = _mm256_castsi256_ps(bits);
    const Vector is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    return _mm256_srli_epi32(_mm256_blendv_epi8(nearest, nan, _mm256_castps_si256(is_nan)), 16);
  }
  GRADWIRE_FORMAT_AVX2 static void round_sixteen(const std::byte* values,
                                                 std::byte* bf16) noexcept {
    const __m256i mixed = _mm256_packus_epi32(halves(values), halves(values + 32));
    store_bits(bf16, _mm256_permute4x64_epi64(mixed, 0xd8));
  }
  GRADWIRE_FORMAT_AVX2 static void round_group(const std::byte* values, std::byte* bf16) noexcept {
    round_sixteen(values, bf16);
    round_sixteen(values + 64, bf16 + 32);
  }
};

}  // namespace
}  // namespace gradwire::reduce
