// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The elementary operations on one element of each datatype: load into the accumulator's type,
/// combine, divide, seal (make any NaN canonical), round and store. They define the numbers; the
/// vector operations of avx2_ops.h have to give the same bits. The SSE control register must have
/// its default value: round to nearest even, no flush to zero, denormals are not zero. CUDA's
/// compiler uses this header for device code too (with -fmad=false), so that the kernels run the
/// same code, except where a comment names a hardware instruction used instead. Private to
/// lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define GRADWIRE_ANYWHERE __host__ __device__
#else
#define GRADWIRE_ANYWHERE
#endif

namespace gradwire::reduce {

inline constexpr std::uint32_t kFloatInfinity = 0x7f800000u;
inline constexpr std::uint32_t kFloatNan = 0x7fc00000u;
inline constexpr std::uint64_t kDoubleNan = 0x7ff8000000000000u;

[[nodiscard]] GRADWIRE_ANYWHERE inline float half_to_float(std::uint16_t half) noexcept {
#if defined(__CUDA_ARCH__)
  float value;  // Exact for every pattern. Any NaN will do, since seal() makes it canonical.
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | kFloatInfinity | (mantissa << 13));
  }
  if (exponent == 0) {  // A multiple of 2^-24, which is a normal number in fp32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
#endif
}

/// Rounds to nearest even; a NaN becomes the canonical one.
[[nodiscard]] GRADWIRE_ANYWHERE inline std::uint16_t float_to_half(float value) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint16_t half;  // To nearest even, with denormals, and to infinity beyond 65520.
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return value == value ? half : std::uint16_t{0x7e00};
#else
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloatInfinity) {
    return 0x7e00;
  }
  if (magnitude >= 0x477ff000u) {  // 65520, midway between the largest fp16 and 2^16
    return sign | 0x7c00;
  }
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is a multiple of 2^-24, which is the spacing of fp32 at 0.5: the
    // addition rounds, and leaves the multiple in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t tie_to_even = 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((magnitude + tie_to_even - 0x38000000u) >> 13);
#endif
}

[[nodiscard]] GRADWIRE_ANYWHERE inline float bfloat_to_float(std::uint16_t bfloat) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat) << 16);
}

/// Rounds to nearest even; a NaN becomes the canonical one.
[[nodiscard]] GRADWIRE_ANYWHERE inline std::uint16_t float_to_bfloat(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > kFloatInfinity) {
    return 0x7fc0;
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class T>
[[nodiscard]] GRADWIRE_ANYWHERE inline T load_unaligned(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
GRADWIRE_ANYWHERE inline void store_unaligned(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof(T));
}

/// Combinations of fp32 or fp64 accumulators; the accumulator itself may hold any NaN.
template <class Accumulator>
struct ScalarFloatCombine {
  using Acc = Accumulator;
  using Bits = std::conditional_t<sizeof(Acc) == 4, std::uint32_t, std::uint64_t>;
  using Divisor = Acc;
  GRADWIRE_ANYWHERE static Acc sum(Acc a, Acc b) noexcept { return a + b; }
  GRADWIRE_ANYWHERE static Acc prod(Acc a, Acc b) noexcept { return a * b; }
  GRADWIRE_ANYWHERE static Acc min(Acc a, Acc b) noexcept {
    if (a < b) {
      return a;
    }
    if (b < a) {
      return b;
    }
    // They are equal, that is the same bits or two zeros, of which the negative one wins; or one is
    // a NaN, and a NaN or-ed with anything stays a NaN.
    return std::bit_cast<Acc>(std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b));
  }
  GRADWIRE_ANYWHERE static Acc max(Acc a, Acc b) noexcept {
    if (a > b) {
      return a;
    }
    if (b > a) {
      return b;
    }
    if (a == b) {
      return std::bit_cast<Acc>(std::bit_cast<Bits>(a) & std::bit_cast<Bits>(b));
    }
    return std::bit_cast<Acc>(std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b));
  }
  GRADWIRE_ANYWHERE static Divisor divisor(std::uint32_t n) noexcept { return static_cast<Acc>(n); }
  GRADWIRE_ANYWHERE static Acc factor(double f) noexcept { return static_cast<Acc>(f); }
  GRADWIRE_ANYWHERE static Acc divide(Acc a, Divisor n) noexcept { return a / n; }
  GRADWIRE_ANYWHERE static Acc seal(Acc a) noexcept {
    constexpr auto kNan = static_cast<Bits>(sizeof(Acc) == 4 ? kFloatNan : kDoubleNan);
    return a == a ? a : std::bit_cast<Acc>(kNan);
  }
};

/// What 16-bit formats share that accumulate in fp32: their wide form is the accumulator.
struct ScalarSmallFloat : ScalarFloatCombine<float> {
  static constexpr std::size_t kWideBytes = sizeof(float);
  GRADWIRE_ANYWHERE static float load_wide(const std::byte* from) noexcept {
    return load_unaligned<float>(from);
  }
  GRADWIRE_ANYWHERE static void store_wide(std::byte* to, float value) noexcept {
    store_unaligned(to, value);
  }
};

template <class T>  // float, double
struct ScalarFloat : ScalarFloatCombine<T> {
  static constexpr std::size_t kElements = 1;
  static constexpr std::size_t kBytes = sizeof(T);
  GRADWIRE_ANYWHERE static T load(const std::byte* from) noexcept {
    return load_unaligned<T>(from);
  }
  using Stored = T;
  /// Rounded to the datatype, and back in the accumulator.
  GRADWIRE_ANYWHERE static T settle(T value) noexcept { return value; }
  GRADWIRE_ANYWHERE static T decode(Stored stored) noexcept { return stored; }
  GRADWIRE_ANYWHERE static Stored round(T value) noexcept { return value; }
  GRADWIRE_ANYWHERE static void store(std::byte* to, Stored value) noexcept {
    store_unaligned(to, value);
  }
};

struct ScalarHalf : ScalarSmallFloat {
  static constexpr std::size_t kElements = 1;
  static constexpr std::size_t kBytes = 2;
  GRADWIRE_ANYWHERE static float load(const std::byte* from) noexcept {
    return half_to_float(load_unaligned<std::uint16_t>(from));
  }
  using Stored = std::uint16_t;
  GRADWIRE_ANYWHERE static float settle(float value) noexcept {
    return half_to_float(float_to_half(value));
  }
  GRADWIRE_ANYWHERE static float decode(Stored stored) noexcept { return half_to_float(stored); }
  GRADWIRE_ANYWHERE static Stored round(float value) noexcept { return float_to_half(value); }
  GRADWIRE_ANYWHERE static void store(std::byte* to, Stored value) noexcept {
    store_unaligned(to, value);
  }
};

struct ScalarBfloat : ScalarSmallFloat {
  static constexpr std::size_t kElements = 1;
  static constexpr std::size_t kBytes = 2;
  GRADWIRE_ANYWHERE static float load(const std::byte* from) noexcept {
    return bfloat_to_float(load_unaligned<std::uint16_t>(from));
  }
  using Stored = std::uint16_t;
  GRADWIRE_ANYWHERE static float settle(float value) noexcept {
    return bfloat_to_float(float_to_bfloat(value));
  }
  GRADWIRE_ANYWHERE static float decode(Stored stored) noexcept { return bfloat_to_float(stored); }
  GRADWIRE_ANYWHERE static Stored round(float value) noexcept { return float_to_bfloat(value); }
  GRADWIRE_ANYWHERE static void store(std::byte* to, Stored value) noexcept {
    store_unaligned(to, value);
  }
};

template <class T>  // int8_t, uint8_t, int32_t, int64_t
struct ScalarInteger {
  using Acc = T;
  using Unsigned = std::make_unsigned_t<T>;
  using Divisor = std::int64_t;
  static constexpr std::size_t kElements = 1;
  static constexpr std::size_t kBytes = sizeof(T);
  GRADWIRE_ANYWHERE static Acc load(const std::byte* from) noexcept {
    return load_unaligned<T>(from);
  }
  using Stored = T;
  GRADWIRE_ANYWHERE static Acc settle(Acc value) noexcept { return value; }
  GRADWIRE_ANYWHERE static Acc decode(Stored stored) noexcept { return stored; }
  GRADWIRE_ANYWHERE static Stored round(Acc value) noexcept { return value; }
  GRADWIRE_ANYWHERE static void store(std::byte* to, Stored value) noexcept {
    store_unaligned(to, value);
  }
  // Unsigned arithmetic wraps; signed overflow would be undefined.
  GRADWIRE_ANYWHERE static Acc sum(Acc a, Acc b) noexcept {
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  }
  GRADWIRE_ANYWHERE static Acc prod(Acc a, Acc b) noexcept {
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b)));
  }
  GRADWIRE_ANYWHERE static Acc band(Acc a, Acc b) noexcept { return static_cast<T>(a & b); }
  GRADWIRE_ANYWHERE static Acc bor(Acc a, Acc b) noexcept { return static_cast<T>(a | b); }
  GRADWIRE_ANYWHERE static Acc bxor(Acc a, Acc b) noexcept { return static_cast<T>(a ^ b); }
  GRADWIRE_ANYWHERE static Acc min(Acc a, Acc b) noexcept { return b < a ? b : a; }
  GRADWIRE_ANYWHERE static Acc max(Acc a, Acc b) noexcept { return a < b ? b : a; }
  GRADWIRE_ANYWHERE static Divisor divisor(std::uint32_t n) noexcept {
    return static_cast<Divisor>(n);
  }
  GRADWIRE_ANYWHERE static Acc divide(Acc a, Divisor n) noexcept {
    return static_cast<T>(static_cast<std::int64_t>(a) / n);
  }
  GRADWIRE_ANYWHERE static Acc seal(Acc a) noexcept { return a; }
};

struct ScalarOps {
  using Float = ScalarFloat<float>;
  using Double = ScalarFloat<double>;
  using Half = ScalarHalf;
  using Bfloat = ScalarBfloat;
  using Int8 = ScalarInteger<std::int8_t>;
  using Int32 = ScalarInteger<std::int32_t>;
  using Int64 = ScalarInteger<std::int64_t>;
  using Uint8 = ScalarInteger<std::uint8_t>;
};

}  // namespace gradwire::reduce
