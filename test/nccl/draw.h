// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Numbers that follow from a seed, alike in each process and each run. Nothing here allocates; an
/// object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire::nccl {

/// splitmix64's mixing: each bit of the result depends on each of the input.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return mixed(mixed(a) ^ b); }

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  std::uint64_t number() { return mixed(state_++); }
  /// Of lowest to highest, both included.
  std::uint64_t between(std::uint64_t lowest, std::uint64_t highest) {
    return lowest + number() % (highest - lowest + 1);
  }
  int whole(int lowest, int highest) {
    return lowest + static_cast<int>(number() % static_cast<unsigned>(highest - lowest + 1));
  }
  bool one_in(unsigned n) { return number() % n == 0; }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[number() % i]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace gradwire::nccl
