// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What an all-reduce must give, bit for bit: segment by segment in ring order, by the rules of
/// doc/architecture.md (Numbers), written apart from lib/reduce and lib/collective so that it can
/// judge them. The simulator, gradwire-perf and the tests' daemon judge by it. Any thread; slow
/// next to the real thing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"

namespace gradwire::sim {

/// Elements of each segment but the last ones: ceil(count / nranks), rounded up to 64 bytes.
[[nodiscard]] std::uint64_t segment_elements(std::uint64_t count, DataType type,
                                             std::uint32_t nranks) noexcept;

/// Folds `count` elements of one segment.
/// @param inputs  [nranks * members] in folding order: the rank that the segment starts at first,
///                each rank's members in member order; each [count] of `type`. A rank's members
///                are folded first, and then what came from the ranks before it.
/// @param output  [count] of `type`; may be none of the inputs.
/// @param factors [nranks * members] in the same order, of a premul-sum.
void fold_in_order(DataType type, RedOp redop, std::span<const std::byte* const> inputs,
                   std::uint32_t members, std::uint64_t count, std::byte* output,
                   std::span<const double> factors = {});

/// The same of ranks that differ in size.
/// @param members  [ranks] in folding order: how many of the inputs are each one's.
void fold_in_order(DataType type, RedOp redop, std::span<const std::byte* const> inputs,
                   std::span<const std::uint32_t> members, std::uint64_t count, std::byte* output,
                   std::span<const double> factors = {});

/// The whole op.
/// @param inputs  [nranks * members], by rank and then member; each [count] of `type`.
/// @param output  [count] of `type`; may be none of the inputs.
void ring_all_reduce(DataType type, RedOp redop, std::span<const std::byte* const> inputs,
                     std::uint32_t nranks, std::uint32_t members, std::uint64_t count,
                     std::byte* output, std::span<const double> factors = {});

/// Order of contributions for `segment`: indexes into inputs sorted by rank and member.
[[nodiscard]] inline std::size_t contribution_at(std::uint32_t segment, std::size_t position,
                                                 std::uint32_t nranks,
                                                 std::uint32_t members) noexcept {
  const std::size_t rank = (segment + position / members) % nranks;
  return rank * members + position % members;
}

[[nodiscard]] float half_to_float(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t float_to_half(float value) noexcept;
[[nodiscard]] float bfloat_to_float(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t float_to_bfloat(float value) noexcept;

}  // namespace gradwire::sim
