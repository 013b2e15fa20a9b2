// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// `gradwire-sim --measure WHAT`: measures rings and prints Markdown tables to standard output. One
/// thread.
#pragma once

#include <string>

#include "base/result.h"
#include "options.h"

namespace gradwire::sim {

/// @return whether every run ended with the right sums; an error for an unknown `what`.
[[nodiscard]] Result<bool> run_measurement(const Options& options);

}  // namespace gradwire::sim
