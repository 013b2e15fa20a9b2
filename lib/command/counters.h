// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the command lane counts, with the functions of base/counter.h.
#pragma once

#include <cstdint>

namespace gradwire::command {

struct CommandCounters {
  std::uint64_t commands = 0;      ///< taken from clients
  std::uint64_t bad_commands = 0;  ///< answered with an error at once
};

}  // namespace gradwire::command
