// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sets of up to 64 chunks as bits. Pure; any thread.
#pragma once

#include <cstdint>

namespace gradwire::collective {

[[nodiscard]] constexpr std::uint64_t low_bits(std::uint64_t count) noexcept {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}
/// Without the lowest `by`, for a set that begins that much later.
[[nodiscard]] constexpr std::uint64_t shifted(std::uint64_t bits, std::uint32_t by) noexcept {
  return by >= 64 ? 0 : bits >> by;
}

}  // namespace gradwire::collective
