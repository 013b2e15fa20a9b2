// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The arithmetic of the wire formats on one element, which defines their numbers
/// (doc/protocol/formats.md, "int8"). The vector operations of avx2_format_ops.h and
/// avx512_format_ops.h give the same bits, and the GPU's kernels use these functions themselves.
/// The floating-point control must be the default, and the compiler must not join a product and a
/// sum (-ffp-contract=off, -fmad=false). Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "reduce/scalar_ops.h"

namespace gradwire::reduce {

inline constexpr std::uint32_t kScaleLeast = 0x00800000u;  ///< 2^-126: no scale is denormal
inline constexpr std::uint32_t kScaleMost = 0x7c010203u;   ///< the largest s with 127 s finite
/// 1.5 x 2^23. Floats from 2^23 to 2^24 are the integers, so adding this rounds a small number to
/// one, halves to even, and leaves it in the low bits in two's complement.
inline constexpr float kRoundingAid = 0x1.8p23f;

/// @param absmax  the largest of a block's bits without their signs
[[nodiscard]] GRADWIRE_ANYWHERE inline float scale_of(std::uint32_t absmax) noexcept {
  if (absmax >= kFloatInfinity) return std::bit_cast<float>(kFloatNan);
  const float scale = std::bit_cast<float>(absmax) / 127.0f;
  if (scale < std::bit_cast<float>(kScaleLeast)) return std::bit_cast<float>(kScaleLeast);
  if (scale > std::bit_cast<float>(kScaleMost)) return std::bit_cast<float>(kScaleMost);
  return scale;
}
/// @param inverse  RN(1 / scale); the scale is no NaN
[[nodiscard]] GRADWIRE_ANYWHERE inline std::int8_t quantize(float value, float inverse) noexcept {
  const float product = value * inverse;
  return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(product + kRoundingAid) & 0xffu);
}
[[nodiscard]] GRADWIRE_ANYWHERE inline float canonical(float value) noexcept {
  return ScalarFloatCombine<float>::seal(value);
}
/// Of any scale: a NaN, and an infinite one times zero, give the canonical NaN.
[[nodiscard]] GRADWIRE_ANYWHERE inline float dequantize(std::int8_t q, float scale) noexcept {
  return canonical(static_cast<float>(q) * scale);
}
[[nodiscard]] GRADWIRE_ANYWHERE inline float residual_of(float value, float decoded) noexcept {
  const float lost = value - decoded;
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(lost) & 0x7fffffffu;
  return magnitude < kFloatInfinity ? lost : 0.0f;
}

/// Vectors of one element, for strips.h.
struct ScalarFormatOps {
  using Vector = float;
  using Bits = std::uint32_t;
  static constexpr std::size_t kElements = 1;
  static constexpr std::size_t kGroup = 1;  ///< elements that quantize() and round() take at once

  static Vector load(const std::byte* from) noexcept { return load_unaligned<float>(from); }
  static void store(std::byte* to, Vector value) noexcept { store_unaligned(to, value); }
  static Vector all(float value) noexcept { return value; }
  static Vector add(Vector a, Vector b) noexcept { return a + b; }
  static Vector divide(Vector a, Vector b) noexcept { return a / b; }
  static Vector seal(Vector a) noexcept { return canonical(a); }
  static Vector residual(Vector value, Vector decoded) noexcept {
    return residual_of(value, decoded);
  }
  static Vector load_bf16(const std::byte* from) noexcept {
    return bfloat_to_float(load_unaligned<std::uint16_t>(from));
  }
  /// q scale, not sealed.
  static Vector load_scaled(const std::byte* q, Vector scale) noexcept {
    return static_cast<float>(load_unaligned<std::int8_t>(q)) * scale;
  }
  static Bits no_bits() noexcept { return 0; }
  static Bits larger(Bits bits, Vector value) noexcept {
    const std::uint32_t other = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
    return other > bits ? other : bits;
  }
  static std::uint32_t largest(Bits bits) noexcept { return bits; }
  static void quantize_group(const std::byte* values, Vector inverse, std::byte* q) noexcept {
    store_unaligned(q, quantize(load(values), inverse));
  }
  static void round_group(const std::byte* values, std::byte* bf16) noexcept {
    store_unaligned(bf16, float_to_bfloat(load(values)));
  }
};

}  // namespace gradwire::reduce
