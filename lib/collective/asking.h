// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How often a rank that is no neighbour on the ring is asked, and when it counts as silent: direct
/// ops and transfers judge by the same numbers (doc/protocol.md, Direct ops, Silence). Pure.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace gradwire::collective {

/// A time-out is doubled at most so often.
inline constexpr std::uint32_t kShiftMax = 20;
/// In a ping interval: a late rank is awaited by all others, and a rank may await all others.
inline constexpr std::uint32_t kAsksMax = 64;
/// So many must go unanswered before a rank counts as silent, or be answered in vain. If a fifth of
/// them and a fifth of the answers are lost, all are lost once in 10^7 times.
inline constexpr std::uint32_t kUnansweredMin = 16;
/// So often a rank is asked in a silence limit if it matters: kUnansweredMin fit into half of it,
/// whatever its round-trip time is.
inline constexpr TimeNs kAsksInLimit = 40;

}  // namespace gradwire::collective
