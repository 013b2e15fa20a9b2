// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Values as they lie in memory, at any address. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gradwire::wire {

template <class T>
[[nodiscard]] inline T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

/// 16 bytes at once: a vector that every CPU has, on x86.
using Lanes [[gnu::vector_size(16)]] = std::uint64_t;

[[nodiscard]] inline bool any_bit(Lanes lanes) noexcept { return (lanes[0] | lanes[1]) != 0; }

}  // namespace gradwire::wire
