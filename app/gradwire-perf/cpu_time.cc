// SPDX-License-Identifier: BSD-3-Clause
#include "cpu_time.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gradwire::perf {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::uint64_t ns_of(const timespec& time) noexcept {
  return static_cast<std::uint64_t>(time.tv_sec) * kSecondNs +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

std::optional<std::uint64_t> process_cpu_ns(pid_t pid) noexcept {
  // The scheduler's own sums, since /proc/PID/stat has them only in hundredths of a second.
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec used{};
  if (pid != 0 && ::clock_getcpuclockid(pid, &clock) != 0) return std::nullopt;
  if (::clock_gettime(clock, &used) != 0) return std::nullopt;
  return ns_of(used);
}

std::optional<std::uint64_t> machine_cpu_ns_of(std::string_view stat, std::uint64_t uptime_ns,
                                               std::uint64_t cpus,
                                               std::uint64_t ticks_per_s) noexcept {
  // The first line: "cpu", then user, nice, system, idle, iowait, irq, softirq and steal in ticks.
  // A busy CPU's ticks are samples, and what runs between two ticks has none. Idle time is exact.
  constexpr std::string_view kName = "cpu ";
  if (stat.substr(0, kName.size()) != kName || ticks_per_s == 0) return std::nullopt;
  std::array<std::uint64_t, 8> ticks{};
  const char* at = stat.data() + kName.size();
  const char* const end = stat.data() + stat.size();
  for (std::uint64_t& one : ticks) {
    while (at != end && *at == ' ') ++at;
    const auto [after, error] = std::from_chars(at, end, one);
    if (error != std::errc{}) return std::nullopt;
    at = after;
  }
  const std::uint64_t unused_ns = (ticks[3] + ticks[4] + ticks[7]) * (kSecondNs / ticks_per_s);
  const std::uint64_t all_ns = uptime_ns * cpus;
  return all_ns > unused_ns ? all_ns - unused_ns : 0;
}

std::optional<std::uint64_t> machine_cpu_ns() noexcept {
  std::array<char, 256> text{};
  std::FILE* const file = std::fopen("/proc/stat", "re");
  if (file == nullptr) return std::nullopt;
  const std::size_t length = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  timespec uptime{};
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  const long ticks_per_s = ::sysconf(_SC_CLK_TCK);
  if (::clock_gettime(CLOCK_BOOTTIME, &uptime) != 0 || cpus <= 0 || ticks_per_s <= 0) {
    return std::nullopt;
  }
  return machine_cpu_ns_of({text.data(), length}, ns_of(uptime), static_cast<std::uint64_t>(cpus),
                           static_cast<std::uint64_t>(ticks_per_s));
}

std::optional<std::uint64_t> time_stamp() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return std::nullopt;
#endif
}

}  // namespace gradwire::perf
