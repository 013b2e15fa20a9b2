// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Starts DPDK's EAL and checks that it provides what lanes need. Main thread, once per process.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "base/result.h"

namespace gradwire::port {

/// If set to 1, the process may run without hugepages: only for tests of logic.
inline constexpr const char* kNoHugeVariable = "GRADWIRE_TEST_NO_HUGE";

/// @param shared  other processes (dpdk-dumpcap) may attach: hugepages keep their files.
/// @return the arguments for rte_eal_init(): the program, `given` and, unless given, a file prefix
/// made of `name` and the option that frees hugepages when the process ends. kInvalidArgument if
/// `given` asks for a secondary process.
[[nodiscard]] Result<std::vector<std::string>> make_eal_arguments(
    const std::string& program, const std::vector<std::string>& given, const std::string& name,
    bool shared = false);

/// Where DPDK's libraries log from here on, before the EAL starts too. The stream stays open.
void log_to(std::FILE* stream) noexcept;

/// Requires a primary process, hugepages and at least `least_lcores` lcores (a daemon needs two:
/// one for the control plane and one for a lane); otherwise the error says what to pass. Call it
/// once per process, and end the process by _exit(). rte_eal_cleanup() is never called, because it
/// unmaps the hugepages while the EAL's interrupt thread still runs (observed: a segmentation fault
/// when a memif peer ended at the same moment, also from exit handlers). The kernel frees
/// everything but the EAL's files.
[[nodiscard]] Result<void> start_eal(std::vector<std::string> arguments, unsigned least_lcores = 2);

/// @return the folder with the files by which another process attaches to this one's EAL, named
/// like its prefix; kUnsupported, with the argument to blame, if no process can attach.
[[nodiscard]] Result<std::string> shared_runtime_folder();

/// Call it before the process ends, when no lane runs: closes the devices that the EAL probed and
/// removes its files. Does nothing if the EAL has not started.
void leave_eal() noexcept;
/// The second half of leave_eal(), for a process that ends while a lane still runs.
void remove_eal_files() noexcept;

}  // namespace gradwire::port
