// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The inputs of gradwire-perf: any process can compute the values of any other, so that each can
/// check its result alone. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "options.h"

namespace gradwire::perf {

/// Writes elements [start, start + count) of a contribution to `output`. Floating-point values use
/// their whole mantissa, so that another order of summation gives other bits; they lie in (-1, 1),
/// for prod in [0.5, 1.5). Integers use their whole range.
/// @param contributor  rank * members + member.
/// @param seed a different one for each op.
void fill_pattern(DataType type, RedOp redop, std::uint32_t contributor, std::uint64_t seed,
                  std::uint64_t start, std::uint64_t count, std::byte* output);

/// What --op premul_sum multiplies a contribution by.
[[nodiscard]] double factor_of(std::uint32_t contributor) noexcept;

/// Elements of this process's `result` of an op whose bits are not those of the reference. Of a
/// reduce, on its root.
/// @param count  as the op is called with.
[[nodiscard]] std::uint64_t count_wrong(const Options& options, std::uint64_t seed,
                                        std::uint64_t count, const std::byte* result);

}  // namespace gradwire::perf
