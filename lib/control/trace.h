// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The last events of ops on all lanes, as JSON for whoever operates the daemon. The control thread
/// calls it; it allocates.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "control/groups/group_table.h"
#include "control/lanes/lane_reports.h"

namespace gradwire::control {

/// Reads the events.
/// @param incarnation  of the daemon.
/// @param now          when the control thread's round began; the trace is of that time, or of its
///                     last event's if lanes were faster.
/// @param viewer       what identifies groups of other users on the wire is hidden from it.
/// @return a function that makes the trace from copies; any thread may call it.
[[nodiscard]] std::function<nlohmann::json()> prepare_trace(const LaneReports& reports,
                                                            std::uint8_t lanes,
                                                            std::uint64_t incarnation,
                                                            const GroupTable& groups, TimeNs now,
                                                            uid_t viewer);

}  // namespace gradwire::control
