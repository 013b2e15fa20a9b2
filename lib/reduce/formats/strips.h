// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The walk over arrays, written once for every instruction set: strip by strip, which is a block
/// of `int8`, each through all steps while it lies in L1. The file that includes this header
/// defines GRADWIRE_KERNEL_TARGET first (empty, or a target attribute): functions with different
/// targets cannot be one template, so each including file gets its own, in an anonymous namespace.
/// Lambdas are avoided because they do not inherit the attribute.
///
/// Operations take whole vectors. A last strip that does not end on one goes through rooms on the
/// stack, filled up with zeros: these change neither the block's largest value nor other elements.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#ifndef GRADWIRE_KERNEL_TARGET
#error "define GRADWIRE_KERNEL_TARGET before including strips.h"
#endif

#include <cstring>

#include "reduce/formats/format_kernels.h"
#include "reduce/formats/format_ops.h"

/// At -O2 gcc unrolls loops only if told to.
#if defined(__clang__)
#define GRADWIRE_UNROLL_FOUR _Pragma("clang loop unroll_count(4)")
#else
#define GRADWIRE_UNROLL_FOUR _Pragma("GCC unroll 4")
#endif

namespace gradwire::reduce {
namespace {

inline constexpr std::size_t kStripBytes = kFormatBlock * sizeof(float);

/// Asks for an array's bytes 2 KiB behind those of the current strip: two strips of fp32. The
/// processor's own prefetching follows a walk by short strips badly: encoding from memory took 1.6
/// times as long without it (AMD EPYC, family 25, model 1). What lies behind the array is asked for
/// in vain, and that never faults.
inline __attribute__((always_inline)) void fetch_ahead(const std::byte* strip,
                                                       std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  for (std::size_t line = 0; line < bytes; line += kLine) {
    __builtin_prefetch(strip + 2 * kStripBytes + line);
  }
}

struct alignas(64) Room {
  std::byte bytes[kStripBytes];
};

struct Strip {
  std::size_t at;      ///< its first element
  std::size_t count;   ///< elements, [1, kFormatBlock]
  std::size_t padded;  ///< `count`, rounded up to what operations take at once

  [[nodiscard]] bool is_padded() const noexcept { return padded != count; }
  /// @return where `padded` elements can be read, the first of which are those at `from`.
  [[nodiscard]] const std::byte* readable(const std::byte* from, std::size_t element,
                                          Room& room) const noexcept {
    if (!is_padded()) return from;
    std::memcpy(room.bytes, from, count * element);
    std::memset(room.bytes + count * element, 0, (padded - count) * element);
    return room.bytes;
  }
  /// @return where `padded` elements can be written; settle() puts them to where they belong.
  [[nodiscard]] std::byte* writable(std::byte* to, Room& room) const noexcept {
    return is_padded() ? room.bytes : to;
  }
  void settle(std::byte* to, std::size_t element, const Room& room) const noexcept {
    if (is_padded()) std::memcpy(to, room.bytes, count * element);
  }
};

/// Where a strip's scale and elements lie in a chunk.
template <WireFormat kFormat>
struct Places {
  static constexpr std::size_t kElement = kFormat == WireFormat::kInt8 ? 1 : 2;
  std::size_t scale;
  std::size_t elements;
  Places(std::size_t count, std::size_t at) noexcept
      : scale(at / kFormatBlock * sizeof(float)),
        elements(wire_bytes(kFormat, DataType::kFloat32, count) - (count - at) * kElement) {}
};

template <class Ops, WireFormat kFormat>
struct Strips {
  using Vector = typename Ops::Vector;
  static constexpr std::size_t kElement = Places<kFormat>::kElement;
  static constexpr std::size_t kVectorBytes = Ops::kElements * sizeof(float);

  static Strip strip_at(std::size_t at, std::size_t count) noexcept {
    const std::size_t here = count - at < kFormatBlock ? count - at : kFormatBlock;
    return {at, here, (here + Ops::kGroup - 1) / Ops::kGroup * Ops::kGroup};
  }

  /// x = the strip of an array of `type`, or x += it.
  template <bool kAdd>
  GRADWIRE_KERNEL_TARGET static void take(const Strip& strip, DataType type, const std::byte* array,
                                          std::byte* x) noexcept {
    if (type == DataType::kBfloat16) {
      take_elements<kAdd, 2>(strip, array, x);
    } else {
      take_elements<kAdd, sizeof(float)>(strip, array, x);
    }
  }
  template <bool kAdd, std::size_t kBytes>
  GRADWIRE_KERNEL_TARGET static void take_elements(const Strip& strip, const std::byte* array,
                                                   std::byte* x) noexcept {
    Room room;
    const std::byte* const from = strip.readable(array + strip.at * kBytes, kBytes, room);
    fetch_ahead(from, strip.count * kBytes);
    GRADWIRE_UNROLL_FOUR
    for (std::size_t i = 0; i < strip.padded; i += Ops::kElements) {
      Vector value = kBytes == 2 ? Ops::load_bf16(from + i * kBytes) : Ops::load(from + i * kBytes);
      if constexpr (kAdd) value = Ops::add(Ops::load(x + i * 4), value);
      Ops::store(x + i * 4, value);
    }
  }

  /// One vector of what travels.
  GRADWIRE_KERNEL_TARGET static inline __attribute__((always_inline)) Vector decoded(
      const std::byte* elements, Vector scale) noexcept {
    if constexpr (kFormat == WireFormat::kBf16) {
      return Ops::load_bf16(elements);
    } else {
      return Ops::load_scaled(elements, scale);
    }
  }
  /// The strip's scale, of which `bf16` has none.
  GRADWIRE_KERNEL_TARGET static inline __attribute__((always_inline)) Vector scale_of_strip(
      const std::byte* wire, const Places<kFormat>& places) noexcept {
    return Ops::all(kFormat == WireFormat::kInt8 ? load_unaligned<float>(wire + places.scale) : 1);
  }

  /// x = what the strip decodes to, or x += it, or x = the canonical sum of both.
  enum class How { kSet, kAdd, kAddAndSeal };
  template <How kHow>
  GRADWIRE_KERNEL_TARGET static void decode_strip(const Strip& strip, const std::byte* wire,
                                                  std::size_t count, std::byte* x) noexcept {
    const Places<kFormat> places(count, strip.at);
    Room room;
    const std::byte* const from = strip.readable(wire + places.elements, kElement, room);
    const Vector scale = scale_of_strip(wire, places);
    GRADWIRE_UNROLL_FOUR
    for (std::size_t i = 0; i < strip.padded; i += Ops::kElements) {
      Vector value = decoded(from + i * kElement, scale);
      if constexpr (kHow != How::kSet) value = Ops::add(Ops::load(x + i * 4), value);
      // Bits of bf16 are only moved.
      constexpr bool kSeals =
          kHow == How::kSet ? kFormat == WireFormat::kInt8 : kHow == How::kAddAndSeal;
      if constexpr (kSeals) value = Ops::seal(value);
      Ops::store(x + i * 4, value);
    }
  }

  GRADWIRE_KERNEL_TARGET static void round(const Strip& strip, const std::byte* x,
                                           std::byte* bf16) noexcept {
    Room room;
    std::byte* const to = strip.writable(bf16, room);
    GRADWIRE_UNROLL_FOUR
    for (std::size_t i = 0; i < strip.padded; i += Ops::kGroup) {
      Ops::round_group(x + i * 4, to + i * 2);
    }
    strip.settle(bf16, 2, room);
  }

  /// @param x  [padded] of fp32
  GRADWIRE_KERNEL_TARGET static void encode_strip(const Strip& strip, const std::byte* x,
                                                  std::byte* wire, std::size_t count) noexcept {
    const Places<kFormat> places(count, strip.at);
    std::byte* const elements = wire + places.elements;
    if constexpr (kFormat == WireFormat::kBf16) {
      round(strip, x, elements);
    } else {
      typename Ops::Bits bits = Ops::no_bits();
      GRADWIRE_UNROLL_FOUR
      for (std::size_t i = 0; i < strip.padded; i += Ops::kElements) {
        bits = Ops::larger(bits, Ops::load(x + i * 4));
      }
      const float scale = scale_of(Ops::largest(bits));
      store_unaligned(wire + places.scale, scale);
      if (scale != scale) {
        std::memset(elements, 0, strip.count);
        return;
      }
      Room room;
      std::byte* const to = strip.writable(elements, room);
      const Vector inverse = Ops::all(1.0f / scale);
      GRADWIRE_UNROLL_FOUR
      for (std::size_t i = 0; i < strip.padded; i += Ops::kGroup) {
        Ops::quantize_group(x + i * 4, inverse, to + i);
      }
      strip.settle(elements, 1, room);
    }
  }

  /// Stores what the strip decodes to.
  GRADWIRE_KERNEL_TARGET static void store_decoded(const Strip& strip, DataType type,
                                                   const std::byte* wire, std::size_t count,
                                                   std::byte* values) noexcept {
    Room x;
    std::byte* const to = values + strip.at * element_bytes(type);
    if (type == DataType::kBfloat16) {
      decode_strip<How::kSet>(strip, wire, count, x.bytes);
      round(strip, x.bytes, to);
    } else {
      decode_strip<How::kSet>(strip, wire, count, strip.writable(to, x));
      strip.settle(to, sizeof(float), x);
    }
  }

  /// What encoding lost, in one walk with what the strip decodes to if that is stored as fp32.
  /// `values` may be what x is read from.
  GRADWIRE_KERNEL_TARGET static void store_residual(const Strip& strip, const std::byte* x,
                                                    const std::byte* wire, std::size_t count,
                                                    std::byte* residual,
                                                    std::byte* values) noexcept {
    const Places<kFormat> places(count, strip.at);
    Room room;
    const std::byte* const from = strip.readable(wire + places.elements, kElement, room);
    const Vector scale = scale_of_strip(wire, places);
    Room lost_room;
    Room values_room;
    std::byte* const lost = strip.writable(residual, lost_room);
    std::byte* const to = values == nullptr ? nullptr : strip.writable(values, values_room);
    GRADWIRE_UNROLL_FOUR
    for (std::size_t i = 0; i < strip.padded; i += Ops::kElements) {
      Vector value = decoded(from + i * kElement, scale);
      if constexpr (kFormat == WireFormat::kInt8) value = Ops::seal(value);
      Ops::store(lost + i * 4, Ops::residual(Ops::load(x + i * 4), value));
      if (to != nullptr) Ops::store(to + i * 4, value);
    }
    strip.settle(residual, sizeof(float), lost_room);
    if (values != nullptr) strip.settle(values, sizeof(float), values_room);
  }

  /// What a part's strip comes to before it is encoded: in the only member, if that will do.
  GRADWIRE_KERNEL_TARGET static const std::byte* fold(const Strip& strip, const FormatPart& part,
                                                      Room& room) noexcept {
    const std::byte* const first = part.members[0].data();
    if (part.members.size() == 1 && part.residual_in.empty() &&
        part.datatype == DataType::kFloat32) {
      fetch_ahead(first + strip.at * sizeof(float), strip.count * sizeof(float));
      return strip.readable(first + strip.at * sizeof(float), sizeof(float), room);
    }
    take<false>(strip, part.datatype, first, room.bytes);
    for (const BytesIn& member : part.members.subspan(1)) {
      take<true>(strip, part.datatype, member.data(), room.bytes);
    }
    if (!part.residual_in.empty()) {
      take<true>(strip, DataType::kFloat32, part.residual_in.data(), room.bytes);
    }
    return room.bytes;
  }

  GRADWIRE_KERNEL_TARGET static void part(const FormatPart& work, std::size_t count) noexcept {
    Room room;
    for (std::size_t at = 0; at < count; at += kFormatBlock) {
      const Strip strip = strip_at(at, count);
      const std::byte* const x = fold(strip, work, room);
      encode_strip(strip, x, work.wire.data(), count);
      const bool is_fp32 = work.datatype == DataType::kFloat32;
      const bool with_stored = !work.stored.empty() && is_fp32;
      if (!work.residual_out.empty()) {
        store_residual(strip, x, work.wire.data(), count, work.residual_out.data() + at * 4,
                       with_stored ? work.stored.data() + at * 4 : nullptr);
        if (is_fp32) continue;
      }
      // It may be what x is read from, and so comes last.
      if (!work.stored.empty()) {
        store_decoded(strip, work.datatype, work.wire.data(), count, work.stored.data());
      }
    }
  }

  GRADWIRE_KERNEL_TARGET static void divide_and_seal(const Strip& strip, std::uint32_t divisor,
                                                     std::byte* x) noexcept {
    const Vector by = Ops::all(static_cast<float>(divisor));
    GRADWIRE_UNROLL_FOUR
    for (std::size_t i = 0; i < strip.padded * 4; i += kVectorBytes) {
      Vector value = Ops::load(x + i);
      if (divisor != 1) value = Ops::divide(value, by);
      Ops::store(x + i, Ops::seal(value));
    }
  }

  GRADWIRE_KERNEL_TARGET static void store_sum(const Strip& strip, DataType type,
                                               const std::byte* x, std::byte* values) noexcept {
    if (type == DataType::kBfloat16) {
      round(strip, x, values + strip.at * 2);
    } else {
      std::memcpy(values + strip.at * sizeof(float), x, strip.count * sizeof(float));
    }
  }

  GRADWIRE_KERNEL_TARGET static void result(const FormatResult& work) noexcept {
    Room x;
    for (std::size_t at = 0; at < work.count; at += kFormatBlock) {
      const Strip strip = strip_at(at, work.count);
      auto parts = work.parts;
      if (!work.sum.empty()) {
        take<false>(strip, DataType::kFloat32, work.sum.data(), x.bytes);
      } else {
        decode_strip<How::kSet>(strip, parts[0].data(), work.count, x.bytes);
        parts = parts.subspan(1);
      }
      for (const BytesIn& part : parts) {
        decode_strip<How::kAdd>(strip, part.data(), work.count, x.bytes);
      }
      divide_and_seal(strip, work.divisor, x.bytes);
      if (!work.wire.empty()) {
        encode_strip(strip, x.bytes, work.wire.data(), work.count);
        if (!work.stored.empty()) {
          store_decoded(strip, work.datatype, work.wire.data(), work.count, work.stored.data());
        }
      } else if (!work.stored.empty()) {
        store_sum(strip, work.datatype, x.bytes, work.stored.data());
      }
    }
  }

  GRADWIRE_KERNEL_TARGET static void decode(DataType type, const std::byte* wire, std::byte* values,
                                            std::size_t count) noexcept {
    for (std::size_t at = 0; at < count; at += kFormatBlock) {
      store_decoded(strip_at(at, count), type, wire, count, values);
    }
  }

  GRADWIRE_KERNEL_TARGET static void add(const std::byte* wire, std::byte* sum,
                                         std::size_t count) noexcept {
    Room room;
    for (std::size_t at = 0; at < count; at += kFormatBlock) {
      const Strip strip = strip_at(at, count);
      std::byte* const here = sum + at * sizeof(float);
      if (strip.is_padded()) static_cast<void>(strip.readable(here, sizeof(float), room));
      decode_strip<How::kAddAndSeal>(strip, wire, count, strip.writable(here, room));
      strip.settle(here, sizeof(float), room);
    }
  }
};

template <class Ops, WireFormat kFormat>
constexpr FormatFunctions format_functions() noexcept {
  using S = Strips<Ops, kFormat>;
  return {&S::part, &S::result, &S::decode, &S::add};
}
template <class Ops>
constexpr FormatKernels format_kernels_of(const char* name) noexcept {
  return {name,
          {FormatFunctions{}, format_functions<Ops, WireFormat::kBf16>(),
           format_functions<Ops, WireFormat::kInt8>()}};
}

}  // namespace
}  // namespace gradwire::reduce
