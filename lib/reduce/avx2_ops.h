// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The elementary operations of scalar_ops.h on AVX2 vectors (with F16C for fp16), with the same
/// bits as results. Loads and stores need no alignment. AVX2's min and max return their second
/// operand for a NaN and for two zeros, so both orders are computed and joined.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "reduce/scalar_ops.h"

#define GRADWIRE_AVX2 __attribute__((target("avx2,f16c"), always_inline)) inline

namespace gradwire::reduce {
namespace {

GRADWIRE_AVX2 __m256i load_vector(const std::byte* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
}
GRADWIRE_AVX2 void store_vector(std::byte* to, __m256i value) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), value);
}

struct Avx2FloatCombine {
  using Acc = __m256;
  using Divisor = __m256;
  GRADWIRE_AVX2 static Acc sum(Acc a, Acc b) noexcept { return _mm256_add_ps(a, b); }
  GRADWIRE_AVX2 static Acc prod(Acc a, Acc b) noexcept { return _mm256_mul_ps(a, b); }
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept {
    // A NaN or-ed with anything stays a NaN; of two zeros the negative one wins.
    return _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));
  }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept {
    const Acc larger = _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a));
    return _mm256_or_ps(larger, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
  }
  GRADWIRE_AVX2 static Divisor divisor(std::uint32_t n) noexcept {
    return _mm256_set1_ps(static_cast<float>(n));
  }
  GRADWIRE_AVX2 static Acc factor(double f) noexcept {
    return _mm256_set1_ps(static_cast<float>(f));
  }
  GRADWIRE_AVX2 static Acc divide(Acc a, Divisor n) noexcept { return _mm256_div_ps(a, n); }
  GRADWIRE_AVX2 static Acc seal(Acc a) noexcept {
    const Acc nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kFloatNan)));
    return _mm256_blendv_ps(a, nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
};

struct Avx2Float : Avx2FloatCombine {
  static constexpr std::size_t kElements = 8;
  static constexpr std::size_t kBytes = 32;
  GRADWIRE_AVX2 static Acc load(const std::byte* from) noexcept {
    return _mm256_castsi256_ps(load_vector(from));
  }
  using Stored = __m256i;
  GRADWIRE_AVX2 static Acc settle(Acc value) noexcept { return value; }
  GRADWIRE_AVX2 static Stored round(Acc value) noexcept { return _mm256_castps_si256(value); }
  GRADWIRE_AVX2 static void store(std::byte* to, Stored value) noexcept { store_vector(to, value); }
};

struct Avx2Half : Avx2FloatCombine {
  static constexpr std::size_t kElements = 8;
  static constexpr std::size_t kBytes = 16;
  GRADWIRE_AVX2 static Acc load(const std::byte* from) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from)));
  }
  using Stored = __m128i;
  static constexpr std::size_t kWideBytes = 32;
  GRADWIRE_AVX2 static Acc load_wide(const std::byte* from) noexcept {
    return _mm256_castsi256_ps(load_vector(from));
  }
  GRADWIRE_AVX2 static void store_wide(std::byte* to, Acc value) noexcept {
    store_vector(to, _mm256_castps_si256(value));
  }
  GRADWIRE_AVX2 static Acc settle(Acc value) noexcept { return _mm256_cvtph_ps(round(value)); }
  GRADWIRE_AVX2 static Stored round(Acc value) noexcept {
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  }
  GRADWIRE_AVX2 static void store(std::byte* to, Stored value) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), value);
  }
};

struct Avx2Double {
  using Acc = __m256d;
  using Divisor = __m256d;
  static constexpr std::size_t kElements = 4;
  static constexpr std::size_t kBytes = 32;
  GRADWIRE_AVX2 static Acc load(const std::byte* from) noexcept {
    return _mm256_castsi256_pd(load_vector(from));
  }
  using Stored = __m256i;
  GRADWIRE_AVX2 static Acc settle(Acc value) noexcept { return value; }
  GRADWIRE_AVX2 static Stored round(Acc value) noexcept { return _mm256_castpd_si256(value); }
  GRADWIRE_AVX2 static void store(std::byte* to, Stored value) noexcept { store_vector(to, value); }
  GRADWIRE_AVX2 static Acc sum(Acc a, Acc b) noexcept { return _mm256_add_pd(a, b); }
  GRADWIRE_AVX2 static Acc prod(Acc a, Acc b) noexcept { return _mm256_mul_pd(a, b); }
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept {
    return _mm256_or_pd(_mm256_min_pd(a, b), _mm256_min_pd(b, a));
  }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept {
    const Acc larger = _mm256_and_pd(_mm256_max_pd(a, b), _mm256_max_pd(b, a));
    return _mm256_or_pd(larger, _mm256_cmp_pd(a, b, _CMP_UNORD_Q));
  }
  GRADWIRE_AVX2 static Divisor divisor(std::uint32_t n) noexcept {
    return _mm256_set1_pd(static_cast<double>(n));
  }
  GRADWIRE_AVX2 static Acc factor(double f) noexcept { return _mm256_set1_pd(f); }
  GRADWIRE_AVX2 static Acc divide(Acc a, Divisor n) noexcept { return _mm256_div_pd(a, n); }
  GRADWIRE_AVX2 static Acc seal(Acc a) noexcept {
    const Acc nan = _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<long long>(kDoubleNan)));
    return _mm256_blendv_pd(a, nan, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
  }
};

/// Sixteen bf16 as two vectors of fp32, the elements of even and of odd index: a shift or a mask
/// widens them in place, and nothing crosses a 128-bit lane.
struct Avx2Bfloat {
  struct Acc {
    __m256 even;
    __m256 odd;
  };
  using Divisor = __m256;
  using Float = Avx2FloatCombine;
  static constexpr std::size_t kElements = 16;
  static constexpr std::size_t kBytes = 32;
  GRADWIRE_AVX2 static Acc load(const std::byte* from) noexcept {
    const __m256i pairs = load_vector(from);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, high))};
  }
  /// Rounded to nearest even, in the high half of each 32 bits; the low half is undefined. The only
  /// NaN that may come here is the canonical one, which rounding does not change.
  GRADWIRE_AVX2 static __m256i round_in_place(__m256 value) noexcept {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  }
  using Stored = __m256i;
  static constexpr std::size_t kWideBytes = 64;
  GRADWIRE_AVX2 static Acc load_wide(const std::byte* from) noexcept {
    const __m256 low = _mm256_castsi256_ps(load_vector(from));
    const __m256 high = _mm256_castsi256_ps(load_vector(from + 32));
    return {in_order(_mm256_shuffle_ps(low, high, 0x88)),
            in_order(_mm256_shuffle_ps(low, high, 0xdd))};
  }
  GRADWIRE_AVX2 static void store_wide(std::byte* to, Acc value) noexcept {
    // Elements 0 to 3 and 8 to 11; 4 to 7 and 12 to 15.
    const __m256i first = _mm256_castps_si256(_mm256_unpacklo_ps(value.even, value.odd));
    const __m256i second = _mm256_castps_si256(_mm256_unpackhi_ps(value.even, value.odd));
    store_vector(to, _mm256_permute2x128_si256(first, second, 0x20));
    store_vector(to + 32, _mm256_permute2x128_si256(first, second, 0x31));
  }
  /// Quarters 0, 2, 1, 3.
  GRADWIRE_AVX2 static __m256 in_order(__m256 value) noexcept {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(value), 0xd8));
  }
  GRADWIRE_AVX2 static Acc settle(Acc value) noexcept {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    const Acc sealed = seal(value);
    return {_mm256_castsi256_ps(_mm256_and_si256(round_in_place(sealed.even), high)),
            _mm256_castsi256_ps(_mm256_and_si256(round_in_place(sealed.odd), high))};
  }
  GRADWIRE_AVX2 static Stored round(Acc value) noexcept {
    const __m256i even = _mm256_srli_epi32(round_in_place(value.even), 16);
    return _mm256_blend_epi16(even, round_in_place(value.odd), 0xaa);
  }
  GRADWIRE_AVX2 static void store(std::byte* to, Stored value) noexcept { store_vector(to, value); }
  GRADWIRE_AVX2 static Acc sum(Acc a, Acc b) noexcept {
    return {Float::sum(a.even, b.even), Float::sum(a.odd, b.odd)};
  }
  GRADWIRE_AVX2 static Acc prod(Acc a, Acc b) noexcept {
    return {Float::prod(a.even, b.even), Float::prod(a.odd, b.odd)};
  }
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept {
    return {Float::min(a.even, b.even), Float::min(a.odd, b.odd)};
  }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept {
    return {Float::max(a.even, b.even), Float::max(a.odd, b.odd)};
  }
  GRADWIRE_AVX2 static Divisor divisor(std::uint32_t n) noexcept { return Float::divisor(n); }
  GRADWIRE_AVX2 static Acc factor(double f) noexcept {
    return {Float::factor(f), Float::factor(f)};
  }
  GRADWIRE_AVX2 static Acc divide(Acc a, Divisor n) noexcept {
    return {Float::divide(a.even, n), Float::divide(a.odd, n)};
  }
  GRADWIRE_AVX2 static Acc seal(Acc a) noexcept {
    return {Float::seal(a.even), Float::seal(a.odd)};
  }
};

/// What the integer types share. AVX2 has no integer division, so the avg of int8, uint8 and int64
/// is divided element by element: it is rare, and done at one hop only.
template <class T>
struct Avx2Integer {
  using Acc = __m256i;
  using Divisor = std::int64_t;
  static constexpr std::size_t kElements = 32 / sizeof(T);
  static constexpr std::size_t kBytes = 32;
  GRADWIRE_AVX2 static Acc load(const std::byte* from) noexcept { return load_vector(from); }
  using Stored = __m256i;
  GRADWIRE_AVX2 static Acc settle(Acc value) noexcept { return value; }
  GRADWIRE_AVX2 static Stored round(Acc value) noexcept { return value; }
  GRADWIRE_AVX2 static void store(std::byte* to, Stored value) noexcept { store_vector(to, value); }
  GRADWIRE_AVX2 static Acc band(Acc a, Acc b) noexcept { return _mm256_and_si256(a, b); }
  GRADWIRE_AVX2 static Acc bor(Acc a, Acc b) noexcept { return _mm256_or_si256(a, b); }
  GRADWIRE_AVX2 static Acc bxor(Acc a, Acc b) noexcept { return _mm256_xor_si256(a, b); }
  GRADWIRE_AVX2 static Divisor divisor(std::uint32_t n) noexcept { return static_cast<Divisor>(n); }
  GRADWIRE_AVX2 static Acc divide(Acc a, Divisor n) noexcept {
    std::byte bytes[kBytes];
    store_vector(bytes, a);
    for (std::size_t at = 0; at < kBytes; at += sizeof(T)) {
      using Scalar = ScalarInteger<T>;
      Scalar::store(bytes + at, Scalar::divide(Scalar::load(bytes + at), n));
    }
    return load_vector(bytes);
  }
  GRADWIRE_AVX2 static Acc seal(Acc a) noexcept { return a; }
};

/// Sum and product of bytes are the same bits with and without sign.
template <class T>
struct Avx2Byte : Avx2Integer<T> {
  using Acc = __m256i;
  GRADWIRE_AVX2 static Acc sum(Acc a, Acc b) noexcept { return _mm256_add_epi8(a, b); }
  GRADWIRE_AVX2 static Acc prod(Acc a, Acc b) noexcept {
    // There is no multiplication of bytes: 16-bit products of the even and the odd bytes.
    const Acc low = _mm256_set1_epi16(0xff);
    const Acc even = _mm256_and_si256(_mm256_mullo_epi16(a, b), low);
    const Acc odd = _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    return _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
  }
};

struct Avx2Int8 : Avx2Byte<std::int8_t> {
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept { return _mm256_min_epi8(a, b); }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept { return _mm256_max_epi8(a, b); }
};

struct Avx2Uint8 : Avx2Byte<std::uint8_t> {
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept { return _mm256_min_epu8(a, b); }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept { return _mm256_max_epu8(a, b); }
};

struct Avx2Int32 : Avx2Integer<std::int32_t> {
  using Divisor = __m256d;
  GRADWIRE_AVX2 static Divisor divisor(std::uint32_t n) noexcept {
    return _mm256_set1_pd(static_cast<double>(n));
  }
  /// Exact: a quotient that is no integer is at least 1/65535 away from the next one, and fp64 has
  /// 21 bits after the point beside 31 bits before it.
  GRADWIRE_AVX2 static Acc divide(Acc a, Divisor n) noexcept {
    const __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(a));
    const __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(a, 1));
    return _mm256_set_m128i(_mm256_cvttpd_epi32(_mm256_div_pd(high, n)),
                            _mm256_cvttpd_epi32(_mm256_div_pd(low, n)));
  }
  GRADWIRE_AVX2 static Acc sum(Acc a, Acc b) noexcept { return _mm256_add_epi32(a, b); }
  GRADWIRE_AVX2 static Acc prod(Acc a, Acc b) noexcept { return _mm256_mullo_epi32(a, b); }
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept { return _mm256_min_epi32(a, b); }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept { return _mm256_max_epi32(a, b); }
};

struct Avx2Int64 : Avx2Integer<std::int64_t> {
  GRADWIRE_AVX2 static Acc sum(Acc a, Acc b) noexcept { return _mm256_add_epi64(a, b); }
  GRADWIRE_AVX2 static Acc prod(Acc a, Acc b) noexcept {
    // Modulo 2^64 the product of the high halves drops out.
    const Acc low = _mm256_mul_epu32(a, b);
    const Acc cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), b),
                                       _mm256_mul_epu32(a, _mm256_srli_epi64(b, 32)));
    return _mm256_add_epi64(low, _mm256_slli_epi64(cross, 32));
  }
  GRADWIRE_AVX2 static Acc min(Acc a, Acc b) noexcept {
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
  }
  GRADWIRE_AVX2 static Acc max(Acc a, Acc b) noexcept {
    return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
  }
};

struct Avx2Ops {
  using Float = Avx2Float;
  using Double = Avx2Double;
  using Half = Avx2Half;
  using Bfloat = Avx2Bfloat;
  using Int8 = Avx2Int8;
  using Int32 = Avx2Int32;
  using Int64 = Avx2Int64;
  using Uint8 = Avx2Uint8;
};

}  // namespace
}  // namespace gradwire::reduce
