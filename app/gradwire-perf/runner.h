// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs the ops of gradwire-perf over a transport, times them, checks them and counts what they
/// cost. One thread.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "options.h"
#include "report.h"
#include "transport.h"

namespace gradwire::perf {

/// Collective: every process calls it with the same options except rank, member and addresses.
/// @param on_result  called after each size.
[[nodiscard]] Result<std::vector<SizeResult>> run(
    const Options& options, Transport& transport,
    const std::function<void(const SizeResult&)>& on_result);

}  // namespace gradwire::perf
