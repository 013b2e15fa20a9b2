// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// CRC32C (Castagnoli, RFC 3720 appendix B.4) in pieces that many threads sum at once. A state is a
/// polynomial modulo the CRC's, bit-reflected: bit 31 is x^0. Without the inversions at both ends
/// the CRC is linear, so the states of pieces, each advanced by the bytes after it, add up to the
/// state of the whole. Private to lib/reduce; CUDA's compiler takes it too. Any thread; nothing
/// here allocates.
#pragma once

#include <cstdint>

#include "reduce/scalar_ops.h"

namespace gradwire::reduce {

inline constexpr std::uint32_t kCrc32cPolynomial = 0x82f63b78u;

/// @return `state` times x^kBits.
template <int kBits>
GRADWIRE_ANYWHERE constexpr std::uint32_t crc32c_bits(std::uint32_t state) noexcept {
  for (int bit = 0; bit < kBits; ++bit) {
    state = (state >> 1) ^ ((0u - (state & 1u)) & kCrc32cPolynomial);
  }
  return state;
}

GRADWIRE_ANYWHERE constexpr std::uint32_t crc32c_multiply(std::uint32_t a,
                                                          std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= (0u - ((b >> bit) & 1u)) & a;
    a = crc32c_bits<1>(a);
  }
  return product;
}

/// @return `state` advanced by `bytes` bytes of zero. Costs thousands of instructions.
GRADWIRE_ANYWHERE constexpr std::uint32_t crc32c_move(std::uint32_t state,
                                                      std::uint32_t bytes) noexcept {
  std::uint32_t power = 0x80000000u >> 8;  // x^8, squared for each bit of the count
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1u) != 0) state = crc32c_multiply(power, state);
    power = crc32c_multiply(power, power);
  }
  return state;
}

/// The same for a number known at compile time; costs three instructions a bit.
template <std::uint32_t kBytes>
GRADWIRE_ANYWHERE constexpr std::uint32_t crc32c_move_by(std::uint32_t state) noexcept {
  constexpr std::uint32_t kPower = crc32c_move(0x80000000u, kBytes);
  return crc32c_multiply(kPower, state);
}

}  // namespace gradwire::reduce
