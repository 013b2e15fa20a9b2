// SPDX-License-Identifier: BSD-3-Clause
#include "reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <vector>

namespace gradwire::test {
namespace {

__extension__ using Quad = __float128;
__extension__ using Int128 = __int128;

struct SmallFormat {
  int mantissa_bits;
  int exponent_min;
  std::uint16_t infinity;
  std::uint16_t nan;
};
constexpr SmallFormat kHalf = {10, -14, 0x7c00, 0x7e00};
constexpr SmallFormat kBfloat = {7, -126, 0x7f80, 0x7fc0};

bool is_small_nan(const SmallFormat& format, std::uint64_t bits) {
  return (bits & 0x7fff) > format.infinity;
}

double decode_small(const SmallFormat& format, std::uint64_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int magnitude = static_cast<int>(bits & 0x7fff);
  if (magnitude == format.infinity) {
    return sign * INFINITY;
  }
  const int exponent = magnitude >> format.mantissa_bits;
  const int one = 1 << format.mantissa_bits;
  const int mantissa = magnitude % one;
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, format.exponent_min - format.mantissa_bits);
  }
  return sign *
         std::ldexp(one + mantissa, format.exponent_min + exponent - 1 - format.mantissa_bits);
}

std::uint16_t encode_small(const SmallFormat& format, double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) {
    return static_cast<std::uint16_t>(sign | format.infinity);
  }
  int exponent = format.exponent_min;
  if (magnitude != 0) {
    exponent = std::max(exponent, std::ilogb(magnitude));
  }
  // In units of the last place; both the scaling and the difference below are exact.
  const double scaled = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const double below = std::floor(scaled);
  std::int64_t units = static_cast<std::int64_t>(below);
  const double rest = scaled - below;
  if (rest > 0.5 || (rest == 0.5 && units % 2 == 1)) {
    ++units;
  }
  // A normal number's leading one adds 1 to the exponent field; so does a carry.
  const std::int64_t bits =
      (static_cast<std::int64_t>(exponent - format.exponent_min) << format.mantissa_bits) + units;
  return static_cast<std::uint16_t>(sign | std::min<std::int64_t>(bits, format.infinity));
}

/// `Wide` holds sums, products and quotients of `Narrow` so closely that rounding to Narrow
/// afterwards gives what one rounding would.
template <class Narrow, class Wide>
Narrow combine_float(RedOp redop, Narrow a, Narrow b) {
  switch (redop) {
    case RedOp::kSum:
    case RedOp::kAvg:
    case RedOp::kPremulSum:
      return static_cast<Narrow>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case RedOp::kProd:
      return static_cast<Narrow>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case RedOp::kMin:
    case RedOp::kMax:
    case RedOp::kBand:
    case RedOp::kBor:
    case RedOp::kBxor:
      break;
  }
  const bool a_is_less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return a_is_less == (redop == RedOp::kMin) ? a : b;
}

/// `values` in, one accumulator out; `is_nan` stands for any NaN.
template <class Narrow, class Wide>
struct FloatResult {
  bool is_nan = false;
  Narrow value = 0;

  void fold(RedOp redop, std::span<Narrow> values, std::uint32_t divisor,
            std::span<const double> factors) {
    for (std::size_t i = 0; i < factors.size(); ++i) {
      values[i] = static_cast<Narrow>(static_cast<Wide>(values[i]) *
                                      static_cast<Wide>(static_cast<Narrow>(factors[i])));
    }
    value = values[0];
    is_nan = std::isnan(value);
    for (const Narrow next : values.subspan(1)) {
      is_nan = is_nan || std::isnan(next);
      if (!is_nan) {
        value = combine_float<Narrow, Wide>(redop, value, next);
        is_nan = std::isnan(value);
      }
    }
    if (redop == RedOp::kAvg && !is_nan) {
      value = static_cast<Narrow>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    }
  }
};

std::uint64_t fold_small(const SmallFormat& format, RedOp redop,
                         std::span<const std::uint64_t> values, std::uint32_t divisor,
                         std::span<const double> factors) {
  std::vector<float> floats;
  for (const std::uint64_t bits : values) {
    floats.push_back(is_small_nan(format, bits) ? NAN
                                                : static_cast<float>(decode_small(format, bits)));
  }
  FloatResult<float, double> result;
  result.fold(redop, floats, divisor, factors);
  return result.is_nan ? format.nan : encode_small(format, result.value);
}

template <class Narrow, class Wide, class Bits>
std::uint64_t fold_large(RedOp redop, std::span<const std::uint64_t> values, std::uint32_t divisor,
                         Bits nan, std::span<const double> factors) {
  std::vector<Narrow> floats;
  for (const std::uint64_t bits : values) {
    floats.push_back(std::bit_cast<Narrow>(static_cast<Bits>(bits)));
  }
  FloatResult<Narrow, Wide> result;
  result.fold(redop, floats, divisor, factors);
  return result.is_nan ? nan : std::bit_cast<Bits>(result.value);
}

/// `bits` wide, two's complement if `is_signed`.
Int128 wrap(Int128 value, int bits, bool is_signed) {
  const Int128 modulus = Int128{1} << bits;
  Int128 rest = value % modulus;
  rest += rest < 0 ? modulus : 0;
  return is_signed && rest >= modulus / 2 ? rest - modulus : rest;
}

std::uint64_t fold_integer(RedOp redop, std::span<const std::uint64_t> values,
                           std::uint32_t divisor, int bits, bool is_signed) {
  Int128 result = wrap(values[0], bits, is_signed);
  for (const std::uint64_t next_bits : values.subspan(1)) {
    const Int128 next = wrap(next_bits, bits, is_signed);
    switch (redop) {
      case RedOp::kSum:
      case RedOp::kAvg:
        result = wrap(result + next, bits, is_signed);
        break;
      case RedOp::kMin:
        result = next < result ? next : result;
        break;
      case RedOp::kMax:
        result = next > result ? next : result;
        break;
      case RedOp::kProd:
        result = wrap(result * next, bits, is_signed);
        break;
      case RedOp::kBand:
        result = result & next;
        break;
      case RedOp::kBor:
        result = result | next;
        break;
      case RedOp::kBxor:
        result = result ^ next;
        break;
      case RedOp::kPremulSum:
        break;  // of floats alone
    }
  }
  if (redop == RedOp::kAvg) {
    result = result < 0 ? -(-result / divisor) : result / divisor;
  }
  return static_cast<std::uint64_t>(wrap(result, bits, false));
}

constexpr std::array<std::uint64_t, 26> kAwkwardHalf = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x7bff,
    0xfbff, 0x7bfe, 0x7c00, 0xfc00, 0x7c01, 0xfc01, 0x7dff, 0x7e00, 0xfe00,
    0x7fff, 0xffff, 0x3c00, 0xbc00, 0x4c00, 0x4bff, 0x0002, 0x3800};
constexpr std::array<std::uint64_t, 24> kAwkwardBfloat = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x807f, 0x0080, 0x8080, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
    0x7f81, 0xff81, 0x7fbf, 0x7fc0, 0xffc0, 0x7fff, 0xffff, 0x3f80, 0x3b80, 0x3b81, 0x3f81, 0xbf80};
constexpr std::array<std::uint64_t, 24> kAwkwardFloat = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000,
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7fc00000,
    0xffc00000, 0x7fffffff, 0xffffffff, 0x3f800000, 0xbf800000, 0x33800000, 0x33800001, 0x3f800001};
constexpr std::array<std::uint64_t, 20> kAwkwardDouble = {
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
    0x000fffffffffffff, 0x800fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff,
    0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff0000000000001,
    0xfff0000000000001, 0x7ff8000000000000, 0xfff8000000000000, 0xffffffffffffffff,
    0x3ff0000000000000, 0xbff0000000000000, 0x3ca0000000000000, 0x3ff0000000000001};

template <class Array>
std::uint64_t pick(const Array& values, std::uint64_t bits) {
  return values[bits % std::size(values)];
}

}  // namespace

std::uint16_t round_to_half(double value) { return encode_small(kHalf, value); }
std::uint16_t round_to_bfloat(double value) { return encode_small(kBfloat, value); }

std::uint64_t expected_fold(DataType type, RedOp redop, std::span<const std::uint64_t> values,
                            std::uint32_t divisor, std::span<const double> factors) {
  if (values.size() == 1 && factors.empty() && (redop != RedOp::kAvg || divisor == 1)) {
    return values[0];
  }
  switch (type) {
    case DataType::kFloat32:
      return fold_large<float, double, std::uint32_t>(redop, values, divisor, 0x7fc00000, factors);
    case DataType::kFloat64:
      return fold_large<double, Quad, std::uint64_t>(redop, values, divisor, 0x7ff8000000000000,
                                                     factors);
    case DataType::kFloat16:
      return fold_small(kHalf, redop, values, divisor, factors);
    case DataType::kBfloat16:
      return fold_small(kBfloat, redop, values, divisor, factors);
    case DataType::kInt8:
      return fold_integer(redop, values, divisor, 8, true);
    case DataType::kInt32:
      return fold_integer(redop, values, divisor, 32, true);
    case DataType::kInt64:
      return fold_integer(redop, values, divisor, 64, true);
    case DataType::kUint8:
      return fold_integer(redop, values, divisor, 8, false);
    case DataType::kBytes:
      break;
  }
  return 0;
}

std::uint64_t awkward_element(DataType type, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  const std::uint64_t choice = bits >> 56;
  const std::uint32_t width = element_bytes(type) * 8;
  const std::uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
  if (choice < 96) {
    return bits & mask;
  }
  const bool is_near_one = choice < 160;  // Values close enough to each other for rounding to show.
  switch (type) {
    case DataType::kFloat32:
      return is_near_one ? 0x3f000000 + (bits & 0x81ffffff) : pick(kAwkwardFloat, bits);
    case DataType::kFloat64:
      return is_near_one ? 0x3fe0000000000000 + (bits & 0x803fffffffffffff)
                         : pick(kAwkwardDouble, bits);
    case DataType::kFloat16:
      return is_near_one ? 0x3800 + (bits & 0x8fff) : pick(kAwkwardHalf, bits);
    case DataType::kBfloat16:
      return is_near_one ? 0x3e80 + (bits & 0x83ff) : pick(kAwkwardBfloat, bits);
    default:
      break;
  }
  const std::uint64_t top = 1ull << (width - 1);
  const std::array<std::uint64_t, 8> extremes = {0, 1, mask, top, top - 1, top + 1, mask - 1, 2};
  return pick(extremes, bits);
}

std::uint64_t load_element(const std::byte* base, std::size_t index, std::uint32_t bytes) {
  std::uint64_t bits = 0;
  for (std::uint32_t i = 0; i < bytes; ++i) {
    bits |= std::to_integer<std::uint64_t>(base[index * bytes + i]) << (8 * i);
  }
  return bits;
}

void store_element(std::byte* base, std::size_t index, std::uint32_t bytes, std::uint64_t bits) {
  for (std::uint32_t i = 0; i < bytes; ++i) {
    base[index * bytes + i] = static_cast<std::byte>(bits >> (8 * i));
  }
}

}  // namespace gradwire::test
