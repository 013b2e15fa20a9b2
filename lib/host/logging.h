// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The control plane logs to stderr, one line per entry, with time and level, and never waits for
/// whoever reads it (host/output.h). The datapath never logs. Call once, before any other thread
/// starts.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/result.h"

namespace gradwire::host {

/// Makes spdlog's default logger write to stderr.
/// @param level  "trace", "debug", "info", "warn" or "error".
[[nodiscard]] Result<void> set_up_logging(std::string_view level);

/// What is written there goes where the log goes, without waiting: for libraries that log by
/// themselves. It stays open. @return nullptr if there is no memory.
[[nodiscard]] std::FILE* log_stream();

}  // namespace gradwire::host
