// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What both widths of the wide CRC32C share: the arithmetic of its polynomial, and the runs for
/// the crc32 instruction. Private to lib/wire/crc32c_wide*.cc.
///
/// Bits are reflected: bit 31 of a 32-bit value is the coefficient of x^0. The product of two such
/// values, read as a reflected 64-bit value, is their product times x; that of a 64-bit and a
/// 32-bit value, read as 128 bits, is their product times x^33. The constants below allow for it.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/crc32c_wide.h"

#define GRADWIRE_WIDE __attribute__((target("avx2,pclmul,vpclmulqdq,sse4.2")))
#define GRADWIRE_WIDE_INLINE GRADWIRE_WIDE inline __attribute__((always_inline))

namespace gradwire::wire {

inline constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1) != 0) product ^= b;
    b = (b & 1) != 0 ? b >> 1 ^ kPolynomial : b >> 1;
  }
  return product;
}

/// x^n modulo the polynomial.
constexpr std::uint32_t power_of_x(std::uint64_t n) noexcept {
  std::uint32_t result = 0x80000000;
  for (std::uint32_t square = 0x40000000; n != 0; n >>= 1) {
    if ((n & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

inline constexpr std::size_t kMostSteps = 64;  ///< at once: as many as kMoves has entries for

/// [steps][r]: moves a value over r + 1 runs, each of `steps` steps of `run` bytes.
template <std::size_t run>
inline constexpr auto kMoves = [] {
  std::array<std::array<std::uint32_t, 3>, kMostSteps + 1> moves{};
  for (std::size_t steps = 1; steps <= kMostSteps; ++steps) {
    for (std::size_t r = 0; r < 3; ++r) {
      moves[steps][r] = power_of_x(8 * run * steps * (r + 1) - 33);
    }
  }
  return moves;
}();

/// Moves 128 bits over `bits`: what its lower and its upper half are multiplied by.
struct Move {
  explicit constexpr Move(std::uint64_t bits) noexcept
      : lower(power_of_x(bits + 31)), upper(power_of_x(bits - 33)) {}
  std::uint64_t lower;
  std::uint64_t upper;
};

template <std::uint64_t bits>
inline constexpr Move kOver{bits};

/// In the type that intrinsics take.
constexpr long long half_of(std::uint64_t half) noexcept { return static_cast<long long>(half); }

GRADWIRE_WIDE_INLINE __m128i halves(const Move& move) noexcept {
  return _mm_set_epi64x(half_of(move.upper), half_of(move.lower));
}

GRADWIRE_WIDE_INLINE std::uint64_t taken(std::uint64_t value, const std::byte* at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return _mm_crc32_u64(value, word);
}

GRADWIRE_WIDE_INLINE std::uint64_t moved(std::uint64_t value, std::uint32_t move) noexcept {
  return static_cast<std::uint64_t>(
      _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(value)),
                                             _mm_cvtsi32_si128(static_cast<int>(move)), 0x00)));
}

/// Reduces 128 bits to a value of 32.
GRADWIRE_WIDE_INLINE std::uint64_t reduced(__m128i bits) noexcept {
  const auto first_half = static_cast<std::uint64_t>(_mm_cvtsi128_si64(bits));
  const auto second_half = static_cast<std::uint64_t>(_mm_extract_epi64(bits, 1));
  return _mm_crc32_u64(_mm_crc32_u64(0, first_half), second_half);
}

/// The three runs beside the multiplier's, `run` bytes a step each. Members by name: an array would
/// live in memory.
template <std::size_t run>
struct Runs {
  /// @param first  begin of the first; they follow each other, `steps` steps each.
  GRADWIRE_WIDE_INLINE Runs(const std::byte* first, std::size_t steps) noexcept
      : at_0(first), at_1(first + steps * run), at_2(first + 2 * steps * run) {}

  /// The word `offset` bytes into the step, of each run.
  GRADWIRE_WIDE_INLINE void take(std::size_t offset) noexcept {
    value_0 = taken(value_0, at_0 + offset);
    value_1 = taken(value_1, at_1 + offset);
    value_2 = taken(value_2, at_2 + offset);
  }
  GRADWIRE_WIDE_INLINE void next_step() noexcept {
    at_0 += run;
    at_1 += run;
    at_2 += run;
  }
  /// @param folded  the value of what lies before the runs.
  GRADWIRE_WIDE_INLINE std::uint32_t joined(std::uint64_t folded,
                                            std::size_t steps) const noexcept {
    const auto& moves = kMoves<run>[steps];
    const std::uint64_t sum =
        moved(folded, moves[2]) ^ moved(value_0, moves[1]) ^ moved(value_1, moves[0]);
    return static_cast<std::uint32_t>(_mm_crc32_u64(0, sum) ^ value_2);
  }

  const std::byte* at_0;
  const std::byte* at_1;
  const std::byte* at_2;
  std::uint64_t value_0 = 0;
  std::uint64_t value_1 = 0;
  std::uint64_t value_2 = 0;
};

/// Prefetches `lines` cache lines for the caller and moves past them; a few at a time, since a core
/// can have some twenty in flight.
template <std::size_t lines>
GRADWIRE_WIDE_INLINE void fetch(const std::byte*& ahead) noexcept {
  if (ahead == nullptr) return;
  for (std::size_t line = 0; line < lines; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead + 64 * line), _MM_HINT_T0);
  }
  ahead += 64 * lines;
}

/// A step takes `folded` bytes for the multiplier and `run` for each of the three runs. Below
/// `least` bytes joining the runs costs more than they save over ISA-L.
template <std::size_t folded, std::size_t run, std::size_t least>
struct StepShape {
  static constexpr std::size_t kLeastBytes = least;
  static constexpr std::size_t kFolded = folded;
  static constexpr std::size_t kRun = run;
  static constexpr std::size_t kBytes = folded + 3 * run;
  static constexpr std::size_t kAheadLines = kBytes / 64;
};
using Shape256 = StepShape<128, 48, kWideLeastBytes>;
using Shape512 = StepShape<256, 32, 1056>;

/// The running value after `steps` steps, 1 to kMostSteps, from `bytes` on.
[[nodiscard]] std::uint32_t take_steps_256(std::uint32_t state, const std::byte* bytes,
                                           std::size_t steps, const std::byte* ahead) noexcept;
[[nodiscard]] std::uint32_t take_steps_512(std::uint32_t state, const std::byte* bytes,
                                           std::size_t steps, const std::byte* ahead) noexcept;

}  // namespace gradwire::wire
