// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether a process may give its lanes a nice value below 0, and among whom that counts. The
/// kernel compares nice values inside of one group of tasks alone: a session, where
/// kernel.sched_autogroup_enabled = 1, or a control group with CPU weights.
/// Control thread; reads and writes files of procfs, allocates.
#pragma once

#include <string>

#include "base/result.h"
#include "host/machine.h"

namespace gradwire::host {

/// The least nice value that this process may give its threads: -20 with CAP_SYS_NICE, else what
/// RLIMIT_NICE leaves, else 0.
[[nodiscard]] int least_nice(const Machine& machine);

/// Why a nice value was refused, and what mends it, for a warning.
[[nodiscard]] std::string why_not_nice(const Machine& machine);

/// Gives the session's group of tasks (sched(7), the autogroup feature) the nice value too, if this
/// process leads its session: the session is then its own. Else the lanes' nice value counts among
/// the session's processes alone.
/// @return what is to be known of it; empty if there is nothing.
[[nodiscard]] std::string set_session_nice(const Machine& machine, int nice);

}  // namespace gradwire::host
