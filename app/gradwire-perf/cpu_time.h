// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What an op costs: CPU time of processes, and cycles of the time-stamp counter. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradwire::perf {

/// CPU time that all threads of a process have used, in nanoseconds; 0 is this process.
/// @return nothing if there is no such process.
[[nodiscard]] std::optional<std::uint64_t> process_cpu_ns(pid_t pid) noexcept;

/// CPU time that all CPUs of this machine have used, in nanoseconds from some moment on: of all
/// processes, and of the kernel's own work, which belongs to no process, such as receiving packets.
/// In steps of 10 ms. @return nothing if /proc/stat does not tell.
[[nodiscard]] std::optional<std::uint64_t> machine_cpu_ns() noexcept;

/// @param stat      the text of /proc/stat
/// @param uptime_ns of the machine
/// @param cpus      how many run
/// @return the time in which these CPUs were not idle, and not taken away by a hypervisor
[[nodiscard]] std::optional<std::uint64_t> machine_cpu_ns_of(std::string_view stat,
                                                             std::uint64_t uptime_ns,
                                                             std::uint64_t cpus,
                                                             std::uint64_t ticks_per_s) noexcept;

/// @return nothing if this architecture's counter is not known here.
[[nodiscard]] std::optional<std::uint64_t> time_stamp() noexcept;

}  // namespace gradwire::perf
