// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs seeds one after the other and sums up their results. One thread; prints to standard output.
#pragma once

#include "options.h"

namespace gradwire::sim {

/// @return whether no seed failed.
[[nodiscard]] bool run_campaign(const Options& options);

}  // namespace gradwire::sim
