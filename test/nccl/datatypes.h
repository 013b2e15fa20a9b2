// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// NCCL's element types and what CollNet does with them, for the reference plug-in and for the sums
/// that the player holds results against. 16-bit floats hold small whole numbers only, which is all
/// that is summed here. Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "nccl_net/abi.h"

namespace gradwire::nccl {

/// A float of 16 bits, of a number that it can hold and that is 1 at least, or 0.
template <int kMantissaBits, int kBias>
struct Small16 {
  std::uint16_t bits = 0;

  Small16() = default;
  explicit Small16(float value) {
    if (value == 0) return;
    int exponent = 0;
    const float fraction = std::frexp(value, &exponent) * 2 - 1;
    const auto mantissa = static_cast<int>(std::ldexp(fraction, kMantissaBits));
    bits = static_cast<std::uint16_t>(((exponent - 1 + kBias) << kMantissaBits) | mantissa);
  }
  explicit operator float() const {
    if (bits == 0) return 0;
    const int mantissa = bits & ((1 << kMantissaBits) - 1);
    const float fraction = 1 + std::ldexp(static_cast<float>(mantissa), -kMantissaBits);
    return std::ldexp(fraction, (bits >> kMantissaBits) - kBias);
  }
};
using Float16 = Small16<10, 15>;
using Bfloat16 = Small16<7, 127>;

/// Calls use(T{}) with the element type. @return false if we have no such type.
template <class Use>
bool with_type(nccl_net::DataType datatype, Use use) {
  switch (datatype) {
    case nccl_net::kInt8:
      use(std::int8_t{});
      return true;
    case nccl_net::kUint8:
      use(std::uint8_t{});
      return true;
    case nccl_net::kInt32:
      use(std::int32_t{});
      return true;
    case nccl_net::kUint32:
      use(std::uint32_t{});
      return true;
    case nccl_net::kInt64:
      use(std::int64_t{});
      return true;
    case nccl_net::kUint64:
      use(std::uint64_t{});
      return true;
    case nccl_net::kFloat32:
      use(float{});
      return true;
    case nccl_net::kFloat64:
      use(double{});
      return true;
    case nccl_net::kFloat16:
      use(Float16{});
      return true;
    case nccl_net::kBfloat16:
      use(Bfloat16{});
      return true;
    default:
      return false;
  }
}

/// 0: a type that we do not have.
inline std::size_t element_bytes(nccl_net::DataType datatype) {
  std::size_t bytes = 0;
  with_type(datatype, [&](auto value) { bytes = sizeof(value); });
  return bytes;
}

/// Integers wrap.
template <class T>
T combined_plainly(nccl_net::RedOp redop, T a, T b) {
  if (redop == nccl_net::kMax) return std::max(a, b);
  if (redop == nccl_net::kMin) return std::min(a, b);
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<T>(redop == nccl_net::kProd ? x * y : x + y);
  } else {
    return redop == nccl_net::kProd ? a * b : a + b;
  }
}

template <class T>
T combined(nccl_net::RedOp redop, T a, T b) {
  if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
    return T(combined_plainly(redop, static_cast<float>(a), static_cast<float>(b)));
  } else {
    return combined_plainly(redop, a, b);
  }
}

}  // namespace gradwire::nccl
