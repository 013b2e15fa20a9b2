// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The control plane logs to stderr, one line per entry, with time and level. The datapath never
/// logs. Call once, before any other thread starts.
#pragma once

#include <string_view>

#include "base/result.h"

namespace gradwire::host {

/// Makes spdlog's default logger write to stderr.
/// @param level  "trace", "debug", "info", "warn" or "error".
[[nodiscard]] Result<void> set_up_logging(std::string_view level);

}  // namespace gradwire::host
