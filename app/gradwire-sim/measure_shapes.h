// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// `gradwire-sim --measure shapes` and `all-to-all`: what ops take where endpoints' packets cost
/// something, by size and ranks, beside formulae. Markdown to standard output. One thread.
#pragma once

#include "options.h"

namespace gradwire::sim {

/// @return whether every run ended with the right results.
[[nodiscard]] bool measure_shapes(const Options& options);
[[nodiscard]] bool measure_all_to_all(const Options& options);

}  // namespace gradwire::sim
