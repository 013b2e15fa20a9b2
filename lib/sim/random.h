// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Random numbers of the simulator: the same for a seed on every machine and compiler, which the
/// distributions of the standard library do not promise. xoshiro256** of Blackman and Vigna, seeded
/// by splitmix64. No two arguments of a call may draw: compilers differ in their order. One thread;
/// plain state.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace gradwire::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  /// [0, 1)
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Draws nothing if the answer is known, so that a fault that is off costs nothing.
  bool chance(double probability) noexcept { return probability > 0 && unit() < probability; }
  /// [0, end), 0 if `end` is 0. The bias of the remainder is below 2^-40 for what is drawn here.
  std::uint64_t below(std::uint64_t end) noexcept { return end == 0 ? 0 : next() % end; }
  /// [first, last]
  std::int64_t between(std::int64_t first, std::int64_t last) noexcept {
    return first + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(last - first) + 1));
  }
  template <class T>
  T pick(std::initializer_list<T> values) noexcept {
    return values.begin()[below(values.size())];
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace gradwire::sim
