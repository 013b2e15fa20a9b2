// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What an op costs: CPU time of processes, and cycles of the time-stamp counter. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace gradwire::perf {

/// CPU time that all threads of a process have used, in nanoseconds; 0 is this process.
/// @return nothing if there is no such process.
[[nodiscard]] std::optional<std::uint64_t> process_cpu_ns(pid_t pid) noexcept;

/// @return nothing if this architecture's counter is not known here.
[[nodiscard]] std::optional<std::uint64_t> time_stamp() noexcept;

}  // namespace gradwire::perf
