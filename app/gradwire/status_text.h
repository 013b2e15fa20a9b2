// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The daemon's status as text: first who waits for whom, then the rest. Pure; any thread.
#pragma once

#include <string>

#include "status/daemon_status.h"

namespace gradwire::cli {

/// Lines of text.
[[nodiscard]] std::string status_text(const status::DaemonStatus& status);

}  // namespace gradwire::cli
