// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs the ops of gradwire-perf through the C interface, as any job would. One thread.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "options.h"
#include "report.h"

namespace gradwire::perf {

/// Collective: every process runs it with the same options but rank, member and socket.
/// @param on_result  called after each size.
[[nodiscard]] Result<std::vector<SizeResult>> run(
    const Options& options, const std::function<void(const SizeResult&)>& on_result);

}  // namespace gradwire::perf
