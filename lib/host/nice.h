// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether a process may give its lanes a nice value below 0, and against which other processes it
/// counts. The kernel compares nice values only within a group of tasks: a session if
/// kernel.sched_autogroup_enabled = 1, or a control group with CPU weights. Control thread; reads
/// and writes files of procfs, allocates.
#pragma once

#include <string>

#include "base/result.h"
#include "host/machine.h"

namespace gradwire::host {

/// The lowest nice value that this process may give its threads: -20 with CAP_SYS_NICE, else as
/// RLIMIT_NICE allows, else 0.
[[nodiscard]] int least_nice(const Machine& machine);

/// Why a nice value was refused, and how to fix it, for a warning.
[[nodiscard]] std::string why_not_nice(const Machine& machine);

/// If this process leads its session, also gives the nice value to the session's group of tasks
/// (sched(7), the autogroup feature). Otherwise the lanes' nice value counts only within the
/// session.
/// @return a warning; empty if there is none.
[[nodiscard]] std::string set_session_nice(const Machine& machine, int nice);

}  // namespace gradwire::host
