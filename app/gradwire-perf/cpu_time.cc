// SPDX-License-Identifier: BSD-3-Clause
#include "cpu_time.h"

#include <ctime>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gradwire::perf {

std::optional<std::uint64_t> process_cpu_ns(pid_t pid) noexcept {
  // The scheduler's own sums, since /proc/PID/stat has them only in hundredths of a second.
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec used{};
  if (pid != 0 && ::clock_getcpuclockid(pid, &clock) != 0) return std::nullopt;
  if (::clock_gettime(clock, &used) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(used.tv_nsec);
}

std::optional<std::uint64_t> time_stamp() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return std::nullopt;
#endif
}

}  // namespace gradwire::perf
