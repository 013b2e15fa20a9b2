// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a sum must give whose elements travel in another format, bit for bit: doc/protocol/
/// formats.md, written from the page and apart from lib/reduce, so that it can judge that. One
/// element after the other; products and quotients in fp64, which is wide enough that rounding
/// twice equals rounding once. Any thread; slow next to the real thing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/wire_format.h"
#include "sim/reference/collective_reference.h"

namespace gradwire::sim {

/// What a receiver makes of values that were encoded: blocks are counted from the first of them.
void round_trip(WireFormat format, std::span<float> values);

/// As collective_results(), of an all-reduce, reduce-scatter or reduce by sum or avg.
[[nodiscard]] std::vector<std::byte> format_results(const CollectiveCall& call,
                                                    std::span<const std::byte* const> inputs);
/// Of such an op what the encoding of each rank loses, [nranks][elements of an input].
[[nodiscard]] std::vector<std::vector<float>> format_losses(
    const CollectiveCall& call, std::span<const std::byte* const> inputs);

}  // namespace gradwire::sim
