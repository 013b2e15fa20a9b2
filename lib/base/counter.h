// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Counters that one thread writes and others read, each value on its own (relaxed). On x86-64 and
/// arm64 these are plain loads and stores.
#pragma once

#include <cstdint>

namespace gradwire {

/// For the writer.
inline void count(std::uint64_t& counter, std::uint64_t n = 1) noexcept {
  __atomic_store_n(&counter, counter + n, __ATOMIC_RELAXED);
}
/// For any reader.
[[nodiscard]] inline std::uint64_t read_counter(const std::uint64_t& counter) noexcept {
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
}

}  // namespace gradwire
