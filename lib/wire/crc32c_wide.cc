// SPDX-License-Identifier: BSD-3-Clause
// The front of the bytes is cut into four runs: one for the multiplier, 128 bytes a step, and three
// for the crc32 instruction, whose result takes three cycles, kRun bytes a step each. The
// multiplier folds 128 bytes onto those 128 bytes further on: V. Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. At the end the
// runs' values are moved to the end of the last run and added.
//
// Bits are reflected: bit 31 of a 32-bit value is the coefficient of x^0. The product of two such
// values, read as a reflected 64-bit value, is their product times x; that of a 64-bit and a 32-bit
// value, read as 128 bits, is their product times x^33. The constants below allow for it.
#include "wire/crc32c_wide.h"

#include <immintrin.h>

#include <array>
#include <cstring>

namespace gradwire::wire {
namespace {

#define GRADWIRE_WIDE __attribute__((target("avx2,pclmul,vpclmulqdq,sse4.2")))
#define GRADWIRE_WIDE_INLINE GRADWIRE_WIDE inline __attribute__((always_inline))

constexpr std::uint32_t kPolynomial = 0x82f63b78;

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

constexpr std::size_t kFolded = 128;  ///< bytes of a step: four registers
constexpr std::size_t kRun = 48;      ///< bytes of a step in each of the three other runs
constexpr std::size_t kStep = kFolded + 3 * kRun;
constexpr std::size_t kMostSteps = 64;           ///< at once: what the table below reaches to
constexpr std::size_t kAheadLines = kStep / 64;  ///< fetched in a step, for the caller
static_assert(2 * kStep > kWideLeastBytes);

/// [steps][r]: moves a value over r + 1 runs of so many steps.
constexpr auto kMoves = [] {
  std::array<std::array<std::uint32_t, 3>, kMostSteps + 1> moves{};
  for (std::size_t steps = 1; steps <= kMostSteps; ++steps) {
    for (std::size_t r = 0; r < 3; ++r) {
      moves[steps][r] = power_of_x(8 * kRun * steps * (r + 1) - 33);
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
constexpr Move kOver1024(1024), kOver768(768), kOver512(512), kOver256(256), kOver128(128);

GRADWIRE_WIDE_INLINE __m256i load(const std::byte* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

GRADWIRE_WIDE_INLINE __m256i both_lanes(const Move& move) noexcept {
  return _mm256_broadcastsi128_si256(
      _mm_set_epi64x(static_cast<long long>(move.upper), static_cast<long long>(move.lower)));
}

GRADWIRE_WIDE_INLINE __m256i moved(__m256i value, __m256i move) noexcept {
  return _mm256_xor_si256(_mm256_clmulepi64_epi128(value, move, 0x00),
                          _mm256_clmulepi64_epi128(value, move, 0x11));
}

GRADWIRE_WIDE_INLINE std::uint64_t taken(std::uint64_t value, const std::byte* at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return _mm_crc32_u64(value, word);
}

/// The three runs beside the multiplier's. Members by name: an array would live in memory.
struct Runs {
  const std::byte* at_0;
  const std::byte* at_1;
  const std::byte* at_2;
  std::uint64_t value_0 = 0;
  std::uint64_t value_1 = 0;
  std::uint64_t value_2 = 0;

  /// The word `offset` bytes into the step, of each run.
  GRADWIRE_WIDE_INLINE void take(std::size_t offset) noexcept {
    value_0 = taken(value_0, at_0 + offset);
    value_1 = taken(value_1, at_1 + offset);
    value_2 = taken(value_2, at_2 + offset);
  }
  GRADWIRE_WIDE_INLINE void next_step() noexcept {
    at_0 += kRun;
    at_1 += kRun;
    at_2 += kRun;
  }
};

GRADWIRE_WIDE_INLINE std::uint64_t moved(std::uint64_t value, std::uint32_t move) noexcept {
  return static_cast<std::uint64_t>(
      _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(value)),
                                             _mm_cvtsi32_si128(static_cast<int>(move)), 0x00)));
}

/// The 1,024 bits that lie side by side in four registers, as a value of 32.
GRADWIRE_WIDE_INLINE std::uint64_t reduce(__m256i a, __m256i b, __m256i c, __m256i d) noexcept {
  const __m256i sum = _mm256_xor_si256(
      _mm256_xor_si256(moved(a, both_lanes(kOver768)), moved(b, both_lanes(kOver512))),
      _mm256_xor_si256(moved(c, both_lanes(kOver256)), d));
  const __m128i lower = _mm256_castsi256_si128(sum);
  const __m128i move = _mm_set_epi64x(static_cast<long long>(kOver128.upper),
                                      static_cast<long long>(kOver128.lower));
  const __m128i last = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lower, move, 0x00),
                                                   _mm_clmulepi64_si128(lower, move, 0x11)),
                                     _mm256_extracti128_si256(sum, 1));
  const auto first_half = static_cast<std::uint64_t>(_mm_cvtsi128_si64(last));
  const auto second_half = static_cast<std::uint64_t>(_mm_extract_epi64(last, 1));
  return _mm_crc32_u64(_mm_crc32_u64(0, first_half), second_half);
}

GRADWIRE_WIDE std::uint32_t take_steps(std::uint32_t state, const std::byte* folded,
                                       std::size_t steps, const std::byte* ahead) noexcept {
  const std::byte* const first_run = folded + steps * kFolded;
  Runs runs{first_run, first_run + steps * kRun, first_run + 2 * steps * kRun};
  const __m256i over_step = both_lanes(kOver1024);
  __m256i a = _mm256_xor_si256(load(folded),
                               _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m256i b = load(folded + 32);
  __m256i c = load(folded + 64);
  __m256i d = load(folded + 96);
  for (std::size_t offset = 0; offset != kRun; offset += 8) runs.take(offset);
  runs.next_step();
  for (std::size_t step = 1; step < steps; ++step) {
    folded += kFolded;
    if (ahead != nullptr) {
      // A few at a time: the core has room for some twenty lines that are under way.
      for (std::size_t line = 0; line < kAheadLines; ++line) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + 64 * line), _MM_HINT_T0);
      }
      ahead += 64 * kAheadLines;
    }
    // Side by side, so that neither unit waits for the other.
    a = _mm256_xor_si256(moved(a, over_step), load(folded));
    runs.take(0);
    runs.take(8);
    b = _mm256_xor_si256(moved(b, over_step), load(folded + 32));
    runs.take(16);
    c = _mm256_xor_si256(moved(c, over_step), load(folded + 64));
    runs.take(24);
    runs.take(32);
    d = _mm256_xor_si256(moved(d, over_step), load(folded + 96));
    runs.take(40);
    runs.next_step();
  }
  const auto& moves = kMoves[steps];
  const std::uint64_t sum = moved(reduce(a, b, c, d), moves[2]) ^ moved(runs.value_0, moves[1]) ^
                            moved(runs.value_1, moves[0]);
  return static_cast<std::uint32_t>(_mm_crc32_u64(0, sum) ^ runs.value_2);
}

}  // namespace

bool has_crc32c_wide() noexcept {
  static const bool has =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("pclmul") != 0 &&
      __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

std::uint32_t crc32c_wide(std::uint32_t state, std::span<const std::byte>& bytes,
                          const std::byte* ahead) noexcept {
  for (std::size_t steps = bytes.size() / kStep; steps != 0; steps = bytes.size() / kStep) {
    if (steps > kMostSteps) steps = kMostSteps;
    state = take_steps(state, bytes.data(), steps, ahead);
    if (ahead != nullptr) ahead += steps * 64 * kAheadLines;
    bytes = bytes.subspan(steps * kStep);
  }
  return state;
}

}  // namespace gradwire::wire
