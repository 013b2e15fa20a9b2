// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether a lane has its core to itself: isolated from the scheduler, without ticks, on its port's
/// NUMA node, never preempted. Facts come from sysfs and procfs, whose roots are parameters for the
/// tests. Control thread; reads files, allocates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gradwire::host {

/// The kernel's list format: "0-3,8,10-11". Empty text and "(null)" are empty lists.
/// @return kInvalidArgument if the text is something else.
[[nodiscard]] Result<std::vector<int>> parse_cpu_list(std::string_view text);
/// The inverse, shortest form.
[[nodiscard]] std::string to_cpu_list(std::span<const int> sorted_cpus);

struct CoreFacts {
  int cpu = -1;
  bool isolated = false;   ///< in /sys/devices/system/cpu/isolated
  bool nohz_full = false;  ///< in /sys/devices/system/cpu/nohz_full
  int numa_node = -1;      ///< -1: the kernel does not say
};

/// @return kNotFound if there is no such CPU.
[[nodiscard]] Result<CoreFacts> read_core_facts(int cpu, const std::string& sysfs_root = "/sys");

/// Why a lane that may run on `cpus` does not have a core to itself: one sentence per problem, with
/// its fix; empty if it does. `port_numa_node` -1: not known.
[[nodiscard]] std::vector<std::string> isolation_problems(std::span<const CoreFacts> cpus,
                                                          int port_numa_node);

/// Involuntary context switches of a thread of this process since it started.
[[nodiscard]] Result<std::uint64_t> read_involuntary_switches(
    int thread_id, const std::string& procfs_root = "/proc");

}  // namespace gradwire::host
