// SPDX-License-Identifier: BSD-3-Clause
#include "sim/reference/ring_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace gradwire::sim {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

/// What a stored type is computed in.
template <class T>
struct Accumulator {
  using Type = T;
  static T load(T value) { return value; }
  static T round(T value) { return value; }
};
template <>
struct Accumulator<Half> {
  using Type = float;
  static float load(Half value) { return half_to_float(value.bits); }
  static Half round(float value) { return Half{float_to_half(value)}; }
};
template <>
struct Accumulator<Bfloat> {
  using Type = float;
  static float load(Bfloat value) { return bfloat_to_float(value.bits); }
  static Bfloat round(float value) { return Bfloat{float_to_bfloat(value)}; }
};

template <class A>
A canonical(A value) {
  // quiet_NaN() of x86 is the canonical one: positive, no payload.
  return std::isnan(value) ? std::numeric_limits<A>::quiet_NaN() : value;
}

template <class A>
A lesser(A a, A b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class A>
A greater(A a, A b) {
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class A>
A combine(RedOp redop, A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    switch (redop) {
      case RedOp::kSum:
      case RedOp::kAvg:
      case RedOp::kPremulSum:
        return canonical(a + b);
      case RedOp::kProd:
        return canonical(a * b);
      case RedOp::kMin:
        return lesser(a, b);
      case RedOp::kMax:
        return greater(a, b);
      case RedOp::kBand:
      case RedOp::kBor:
      case RedOp::kBxor:
        break;
    }
    return a;
  } else {
    // Unsigned 64-bit arithmetic wraps, and wraps right in every narrower width too.
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    switch (redop) {
      case RedOp::kSum:
      case RedOp::kAvg:
        return static_cast<A>(x + y);
      case RedOp::kProd:
        return static_cast<A>(x * y);
      case RedOp::kMin:
        return std::min(a, b);
      case RedOp::kMax:
        return std::max(a, b);
      case RedOp::kBand:
        return static_cast<A>(x & y);
      case RedOp::kBor:
        return static_cast<A>(x | y);
      case RedOp::kBxor:
        return static_cast<A>(x ^ y);
      case RedOp::kPremulSum:
        break;
    }
    return a;
  }
}

template <class A>
A divide(A value, std::uint32_t divisor) {
  if constexpr (std::is_floating_point_v<A>) {
    return canonical(value / static_cast<A>(divisor));
  } else {
    return static_cast<A>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
  }
}

template <class T>
void fold(RedOp redop, std::span<const std::byte* const> inputs,
          std::span<const std::uint32_t> ranks, std::uint64_t count, std::byte* output,
          std::span<const double> factors) {
  using A = Accumulator<T>;
  const std::size_t total = inputs.size();
  const bool divides = redop == RedOp::kAvg && total > 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto element = [&](std::size_t at) {
      T stored;
      std::memcpy(&stored, inputs[at] + i * sizeof(T), sizeof(T));
      return stored;
    };
    const auto loaded = [&](std::size_t at) {
      auto value = A::load(element(at));
      if constexpr (std::is_floating_point_v<typename A::Type>) {
        if (!factors.empty()) value = canonical(value * static_cast<typename A::Type>(factors[at]));
      }
      return value;
    };
    T packet{};
    std::size_t first = 0;
    for (const std::uint32_t members : ranks) {
      auto value = loaded(first);
      for (std::size_t m = 1; m < members; ++m) {
        value = combine(redop, value, loaded(first + m));
      }
      // What came from the ranks before is the last of this rank's sources.
      if (first != 0) value = combine(redop, value, A::load(packet));
      if (divides && first + members == total) {
        value = divide(value, static_cast<std::uint32_t>(total));
      }
      // Nothing is folded: a NaN keeps its bits.
      const bool copies = first == 0 && members == 1 && factors.empty();
      packet = copies ? element(first) : A::round(value);
      first += members;
    }
    std::memcpy(output + i * sizeof(T), &packet, sizeof(T));
  }
}

}  // namespace

float half_to_float(std::uint16_t bits) noexcept {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 0x1f) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
}

std::uint16_t float_to_half(float value) noexcept {
  if (std::isnan(value)) return 0x7e00;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;  // halfway to 2^16 and above
  if (size < 0x1p-14f) {
    // Denormal: the unit is 2^-24. The scaling is exact, so nearbyint is the only rounding.
    return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  }
  auto bits = std::bit_cast<std::uint32_t>(size);
  bits += 0xfff + ((bits >> 13) & 1);
  return sign | static_cast<std::uint16_t>((bits >> 13) - (112u << 10));
}

float bfloat_to_float(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_bfloat(float value) noexcept {
  if (std::isnan(value)) return 0x7fc0;
  auto bits = std::bit_cast<std::uint32_t>(value);
  bits += 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

std::uint64_t segment_elements(std::uint64_t count, DataType type, std::uint32_t nranks) noexcept {
  const std::uint64_t granule = 64 / element_bytes(type);
  const std::uint64_t share = (count + nranks - 1) / nranks;
  return (share + granule - 1) / granule * granule;
}

void fold_in_order(DataType type, RedOp redop, std::span<const std::byte* const> inputs,
                   std::uint32_t members, std::uint64_t count, std::byte* output,
                   std::span<const double> factors) {
  const std::vector<std::uint32_t> ranks(inputs.size() / members, members);
  fold_in_order(type, redop, inputs, ranks, count, output, factors);
}

void fold_in_order(DataType type, RedOp redop, std::span<const std::byte* const> inputs,
                   std::span<const std::uint32_t> members, std::uint64_t count, std::byte* output,
                   std::span<const double> factors) {
  switch (type) {
    case DataType::kFloat32:
      return fold<float>(redop, inputs, members, count, output, factors);
    case DataType::kFloat64:
      return fold<double>(redop, inputs, members, count, output, factors);
    case DataType::kFloat16:
      return fold<Half>(redop, inputs, members, count, output, factors);
    case DataType::kBfloat16:
      return fold<Bfloat>(redop, inputs, members, count, output, factors);
    case DataType::kInt8:
      return fold<std::int8_t>(redop, inputs, members, count, output, factors);
    case DataType::kInt32:
      return fold<std::int32_t>(redop, inputs, members, count, output, factors);
    case DataType::kInt64:
      return fold<std::int64_t>(redop, inputs, members, count, output, factors);
    case DataType::kUint8:
      return fold<std::uint8_t>(redop, inputs, members, count, output, factors);
    case DataType::kBytes:
      break;
  }
}

void ring_all_reduce(DataType type, RedOp redop, std::span<const std::byte* const> inputs,
                     std::uint32_t nranks, std::uint32_t members, std::uint64_t count,
                     std::byte* output, std::span<const double> factors) {
  const std::uint64_t segment = segment_elements(count, type, nranks);
  std::vector<const std::byte*> ordered(inputs.size());
  std::vector<double> ordered_factors(factors.size());
  for (std::uint32_t s = 0; s < nranks && s * segment < count; ++s) {
    const std::uint64_t start = s * segment * element_bytes(type);
    for (std::size_t at = 0; at < ordered.size(); ++at) {
      const std::size_t from = contribution_at(s, at, nranks, members);
      ordered[at] = inputs[from] + start;
      if (!factors.empty()) ordered_factors[at] = factors[from];
    }
    fold_in_order(type, redop, ordered, members, std::min(segment, count - s * segment),
                  output + start, ordered_factors);
  }
}

}  // namespace gradwire::sim
