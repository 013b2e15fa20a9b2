// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Endpoints of DPDK's own telemetry socket, for dpdk-telemetry.py and whatever else reads it:
/// /gradwire/status, groups, ports, lanes and counters. Without a parameter the last four list what
/// exists; with one (an index, or a name of that list) they show it.
#pragma once

#include <memory>

#include "base/result.h"
#include "metrics/status_board.h"

namespace gradwire::metrics {

/// Control thread, once, after the EAL started. If the EAL runs with --no-telemetry the
/// endpoints are registered and nobody can ask. DPDK cannot forget an endpoint: `board` lives on
/// with them.
[[nodiscard]] Result<void> register_dpdk_telemetry(std::shared_ptr<StatusBoard> board);

}  // namespace gradwire::metrics
