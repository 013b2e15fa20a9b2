// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An EAL for the simulator: memory for mbufs, and nothing else; no hugepages, no devices, no
/// shared files. Once for each process.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace gradwire::sim {

[[nodiscard]] Result<void> start_eal(std::uint32_t megabytes);
void end_eal();

}  // namespace gradwire::sim
