// SPDX-License-Identifier: BSD-3-Clause
// The front of the bytes is cut into four runs: one for the multiplier, 128 or 256 bytes a step,
// and three for the crc32 instruction, whose result takes three cycles, 48 or 32 bytes a step each.
// The multiplier folds what it has onto as many bytes further on: V. Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. At the end the
// runs' values are moved to the end of the last run and added.
#include "wire/crc32c_wide.h"

#include "wire/crc32c_fold.h"

namespace gradwire::wire {
namespace {

GRADWIRE_WIDE_INLINE __m256i load(const std::byte* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

GRADWIRE_WIDE_INLINE __m256i both_lanes(const Move& move) noexcept {
  return _mm256_broadcastsi128_si256(halves(move));
}

GRADWIRE_WIDE_INLINE __m256i moved(__m256i value, __m256i move) noexcept {
  return _mm256_xor_si256(_mm256_clmulepi64_epi128(value, move, 0x00),
                          _mm256_clmulepi64_epi128(value, move, 0x11));
}

/// Reduces the 1,024 bits in four registers to a value of 32.
GRADWIRE_WIDE_INLINE std::uint64_t reduced(__m256i a, __m256i b, __m256i c, __m256i d) noexcept {
  const __m256i sum = _mm256_xor_si256(
      _mm256_xor_si256(moved(a, both_lanes(kOver<768>)), moved(b, both_lanes(kOver<512>))),
      _mm256_xor_si256(moved(c, both_lanes(kOver<256>)), d));
  const __m128i lower = _mm256_castsi256_si128(sum);
  const __m128i move = halves(kOver<128>);
  return wire::reduced(_mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lower, move, 0x00),
                                                   _mm_clmulepi64_si128(lower, move, 0x11)),
                                     _mm256_extracti128_si256(sum, 1)));
}

template <class Shape>
std::uint32_t take_all(std::uint32_t state, std::span<const std::byte>& bytes,
                       const std::byte* ahead, decltype(take_steps_256)& take_steps) noexcept {
  static_assert(Shape::kBytes <= Shape::kLeastBytes && kWideLeastBytes <= Shape::kLeastBytes);
  if (bytes.size() < Shape::kLeastBytes) return state;
  for (std::size_t steps = bytes.size() / Shape::kBytes; steps != 0;
       steps = bytes.size() / Shape::kBytes) {
    if (steps > kMostSteps) steps = kMostSteps;
    state = take_steps(state, bytes.data(), steps, ahead);
    if (ahead != nullptr) ahead += steps * 64 * Shape::kAheadLines;
    bytes = bytes.subspan(steps * Shape::kBytes);
  }
  return state;
}

}  // namespace

GRADWIRE_WIDE std::uint32_t take_steps_256(std::uint32_t state, const std::byte* folded,
                                           std::size_t steps, const std::byte* ahead) noexcept {
  Runs<Shape256::kRun> runs(folded + steps * Shape256::kFolded, steps);
  const __m256i over_step = both_lanes(kOver<1024>);
  __m256i a = _mm256_xor_si256(load(folded),
                               _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m256i b = load(folded + 32);
  __m256i c = load(folded + 64);
  __m256i d = load(folded + 96);
  for (std::size_t offset = 0; offset != Shape256::kRun; offset += 8) runs.take(offset);
  for (std::size_t step = 1; step < steps; ++step) {
    runs.next_step();
    folded += Shape256::kFolded;
    fetch<Shape256::kAheadLines>(ahead);
    // Interleaved, so that neither unit waits for the other.
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
  }
  return runs.joined(reduced(a, b, c, d), steps);
}

WideCrc wide_crc() noexcept {
  static const WideCrc width = [] {
    const auto has = [](auto... there) { return (... && (there != 0)); };
    if (!has(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("pclmul"),
             __builtin_cpu_supports("vpclmulqdq"), __builtin_cpu_supports("sse4.2"))) {
      return WideCrc::kNone;
    }
    return has(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512vl"),
               __builtin_cpu_supports("avx512dq"))
               ? WideCrc::k512
               : WideCrc::k256;
  }();
  return width;
}

std::uint32_t crc32c_wide(WideCrc width, std::uint32_t state, std::span<const std::byte>& bytes,
                          const std::byte* ahead) noexcept {
  return width == WideCrc::k512 ? take_all<Shape512>(state, bytes, ahead, take_steps_512)
                                : take_all<Shape256>(state, bytes, ahead, take_steps_256);
}

}  // namespace gradwire::wire
