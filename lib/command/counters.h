// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the command lane counts, with the functions of base/counter.h.
#pragma once

#include <array>
#include <cstdint>

#include "base/collective_call.h"
#include "base/counts.h"

namespace gradwire::command {

struct CommandCounters : CommandCounts {
  /// By index_of(): whole ops that are done, and calls of members that are made of transfers.
  std::array<std::uint64_t, kCollectives.size()> ops{};
};

}  // namespace gradwire::command
