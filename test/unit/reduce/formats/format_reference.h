// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What doc/protocol/formats.md says, computed another way than the codec does: products and
/// quotients of fp32 in fp64 and rounded from there, which is wide enough that rounding twice
/// equals rounding once. One element after the other, for tests alone. And numbers that tend to go
/// wrong.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/wire_format.h"
#include "reference.h"

namespace gradwire::test {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

inline constexpr std::uint32_t kNan = 0x7fc00000;
inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float canonical(float value) { return std::isnan(value) ? float_of(kNan) : value; }

inline std::uint16_t bf16_of(float value) {
  return std::isnan(value) ? std::uint16_t{0x7fc0} : round_to_bfloat(value);
}

inline float scale_of(std::span<const float> block) {
  std::uint32_t absmax = 0;
  for (const float value : block) absmax = std::max(absmax, bits_of(value) & 0x7fffffff);
  if (absmax >= 0x7f800000) return float_of(kNan);
  const auto scale = static_cast<float>(static_cast<double>(float_of(absmax)) / 127.0);
  return std::min(std::max(scale, 0x1p-126f), float_of(0x7c010203));
}

inline Bytes encode(WireFormat format, const Floats& values) {
  Bytes wire(wire_bytes(format, DataType::kFloat32, values.size()));
  if (format == WireFormat::kBf16) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      store_element(wire.data(), i, 2, bf16_of(values[i]));
    }
    return wire;
  }
  const std::size_t blocks = (values.size() + kFormatBlock - 1) / kFormatBlock;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t first = b * kFormatBlock;
    const std::size_t count = std::min(kFormatBlock, values.size() - first);
    const float scale = scale_of(std::span(values).subspan(first, count));
    store_element(wire.data(), b, 4, bits_of(scale));
    if (std::isnan(scale)) continue;
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(scale));
    for (std::size_t i = first; i < first + count; ++i) {
      const auto product =
          static_cast<float>(static_cast<double>(values[i]) * static_cast<double>(inverse));
      const double q = std::nearbyint(static_cast<double>(product));
      wire[4 * blocks + i] = static_cast<std::byte>(static_cast<std::int8_t>(q));
    }
  }
  return wire;
}

inline Floats decode(WireFormat format, const Bytes& wire, std::size_t count) {
  Floats values(count);
  const std::size_t blocks = (count + kFormatBlock - 1) / kFormatBlock;
  for (std::size_t i = 0; i < count; ++i) {
    if (format == WireFormat::kBf16) {
      values[i] = float_of(static_cast<std::uint32_t>(load_element(wire.data(), i, 2)) << 16);
      continue;
    }
    const float scale =
        float_of(static_cast<std::uint32_t>(load_element(wire.data(), i / kFormatBlock, 4)));
    const double q = static_cast<std::int8_t>(wire[4 * blocks + i]);
    values[i] = canonical(static_cast<float>(q * static_cast<double>(scale)));
  }
  return values;
}

inline float residual(float value, float decoded) {
  const auto lost = static_cast<float>(static_cast<double>(value) - static_cast<double>(decoded));
  return std::isfinite(lost) ? lost : 0.0f;
}

/// Bytes of values in `type`; those of bf16 are rounded.
inline Bytes stored_as(DataType type, const Floats& values) {
  const std::uint32_t each = element_bytes(type);
  Bytes bytes(values.size() * each);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(bytes.data(), i, each, each == 2 ? bf16_of(values[i]) : bits_of(values[i]));
  }
  return bytes;
}
inline Floats loaded_from(DataType type, const Bytes& bytes) {
  const std::uint32_t each = element_bytes(type);
  Floats values(bytes.size() / each);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<std::uint32_t>(load_element(bytes.data(), i, each));
    values[i] = float_of(each == 2 ? bits << 16 : bits);
  }
  return values;
}

/// Kinds of numbers. Each draws blocks of another kind.
enum class Draw : std::uint8_t {
  kBits,      ///< any bits at all: nearly every block has a NaN
  kFinite,    ///< of all exponents, denormals among them
  kNear,      ///< of a few exponents, so that every q comes
  kTies,      ///< odd multiples of half a scale, and their neighbors
  kDenormal,  ///< denormals and the least normal numbers
  kLargest,   ///< about the largest
  kAwkward,   ///< of reference.h: NaN, infinities, ties of bf16, zeros
};
inline constexpr std::array kDraws = {Draw::kBits,     Draw::kFinite,  Draw::kNear,   Draw::kTies,
                                      Draw::kDenormal, Draw::kLargest, Draw::kAwkward};

inline float draw_value(Draw draw, std::uint32_t exponent, std::mt19937_64& random) {
  const auto any = static_cast<std::uint32_t>(random());
  const std::uint32_t sign = any & 0x80000000u;
  const std::uint32_t mantissa = any & 0x7fffffu;
  const auto other = static_cast<std::uint32_t>(random() >> 32);
  switch (draw) {
    case Draw::kBits:
      return float_of(any);
    case Draw::kFinite:
      return float_of(sign | other % 255 << 23 | mantissa);
    case Draw::kNear:
      return float_of(sign | (exponent - std::min(exponent, other % 9)) << 23 | mantissa);
    case Draw::kTies: {
      const auto odd = static_cast<float>(static_cast<int>(other % 508) - 254) / 2;
      const float tie = std::ldexp(odd, static_cast<int>(exponent % 200) - 100);
      const std::uint32_t step = any % 3;
      return step == 0 ? tie : std::nextafter(tie, step == 1 ? 0.0f : 1e38f);
    }
    case Draw::kDenormal:
      return float_of(sign | (other % 6 == 0 ? 0x00800000u : 0u) | mantissa >> other % 24);
    case Draw::kLargest:
      return float_of(sign | (254 - other % 2) << 23 |
                      (mantissa | ~0u << (any >> 24) % 24) % (1 << 23));
    case Draw::kAwkward:
      return float_of(static_cast<std::uint32_t>(awkward_element(DataType::kFloat32, random)));
  }
  return 0;
}

/// Every block has an exponent and a kind of its own; ties have a largest element that makes the
/// block's scale a power of two.
inline Floats draw_values(std::size_t count, std::mt19937_64& random) {
  Floats values(count);
  for (std::size_t first = 0; first < count; first += kFormatBlock) {
    const Draw draw = kDraws[random() % kDraws.size()];
    const auto exponent = static_cast<std::uint32_t>(random() % 255);
    const std::size_t end = std::min(count, first + kFormatBlock);
    for (std::size_t i = first; i < end; ++i) values[i] = draw_value(draw, exponent, random);
    if (draw == Draw::kTies) {
      values[first + random() % (end - first)] =
          std::ldexp(127.0f, static_cast<int>(exponent % 200) - 100);
    }
  }
  return values;
}

}  // namespace gradwire::test
