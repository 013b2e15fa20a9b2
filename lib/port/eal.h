// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Starts DPDK's EAL and checks that what it gives is what lanes need. Main thread, once per
/// process.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gradwire::port {

/// Set to 1 it lets the process run without hugepages: for tests of logic alone.
inline constexpr const char* kNoHugeVariable = "GRADWIRE_TEST_NO_HUGE";

/// @param shared  other processes (dpdk-dumpcap) may attach: hugepages keep their files.
/// @return what rte_eal_init() gets: the program, `given`, and, where they are not given, a file
/// prefix made of `name` and the wish that hugepages are free again when it ends.
/// kInvalidArgument where `given` asks for a secondary process.
[[nodiscard]] Result<std::vector<std::string>> make_eal_arguments(
    const std::string& program, const std::vector<std::string>& given, const std::string& name,
    bool shared = false);

/// Primary process, hugepages, at least `least_lcores` lcores (a daemon has two: control and a
/// lane); else an error that says what to pass. Once per
/// process, which then has to end by _exit(): rte_eal_cleanup() unmaps the hugepages under the
/// EAL's interrupt thread, which nothing stops (seen: a segmentation fault when a memif peer ended
/// at the same moment, and from exit handlers too), so it is not called; the kernel frees all there
/// is to free, the EAL's files apart.
[[nodiscard]] Result<void> start_eal(std::vector<std::string> arguments, unsigned least_lcores = 2);

/// @return the folder of the files by which another process attaches to this one's EAL, named like
/// its prefix; kUnsupported, and which argument is to blame, where none can.
[[nodiscard]] Result<std::string> shared_runtime_folder();

/// Before the process ends: closes what the EAL probed, and removes its files. Nothing where the
/// EAL has not started. No lane runs.
void leave_eal() noexcept;
/// The second half of leave_eal(), for an end while a lane still runs.
void remove_eal_files() noexcept;

}  // namespace gradwire::port
