// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The numbers that the reduce backends must give, computed another way: small formats through
/// exact doubles and rounding written out, fp32 through fp64 and fp64 through binary128 (both wide
/// enough that rounding twice equals rounding once), integers through 128 bits and an explicit
/// remainder. Slow, for tests only. Elements are bit patterns in the low bytes of a 64-bit word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "base/types.h"

namespace gradwire::test {

/// Any value but a NaN, rounded to nearest even.
[[nodiscard]] std::uint16_t round_to_half(double value);
[[nodiscard]] std::uint16_t round_to_bfloat(double value);

/// Folds `values` in order and divides by `divisor` if it is not 1 and `redop` is avg. One value
/// and no division is a copy.
/// @param factors  of the first values: each is multiplied by its own before it is folded.
[[nodiscard]] std::uint64_t expected_fold(DataType type, RedOp redop,
                                          std::span<const std::uint64_t> values,
                                          std::uint32_t divisor,
                                          std::span<const double> factors = {});

/// Random bits, every second one from what tends to go wrong: NaN of many payloads and both signs,
/// infinities, zeros, denormals, largest values, ties of rounding, extremes of integers.
[[nodiscard]] std::uint64_t awkward_element(DataType type, std::mt19937_64& random);

[[nodiscard]] std::uint64_t load_element(const std::byte* base, std::size_t index,
                                         std::uint32_t bytes);
void store_element(std::byte* base, std::size_t index, std::uint32_t bytes, std::uint64_t bits);

}  // namespace gradwire::test
