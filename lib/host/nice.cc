// SPDX-License-Identifier: BSD-3-Clause
#include "host/nice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "host/examine.h"

namespace gradwire::host {
namespace {

constexpr const char* kAutogroupSwitch = "/proc/sys/kernel/sched_autogroup_enabled";
constexpr const char* kAutogroup = "/proc/self/autogroup";
constexpr const char* kMend =
    "start the daemon by the package's unit (LimitNICE=-20), in a container with "
    "--cap-add=SYS_NICE, by hand as root or with RLIMIT_NICE";

bool has_capability(const Machine& machine) {
  constexpr unsigned kSysNice = 23;
  return machine.has_capability(kSysNice).value_or(false);
}

/// The soft limit: 40 stands for -20, 20 and less for 0.
int nice_limit(const Machine& machine) {
  constexpr const char* kName = "Max nice priority";
  std::istringstream lines(machine.text("/proc/self/limits").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kName)) continue;
    std::istringstream words(line.substr(std::strlen(kName)));
    std::string soft;
    words >> soft;
    if (soft == "unlimited") return -20;
    return std::clamp(20 - std::atoi(soft.c_str()), -20, 0);
  }
  return 0;
}

}  // namespace

int least_nice(const Machine& machine) {
  return has_capability(machine) ? -20 : nice_limit(machine);
}

std::string why_not_nice(const Machine& machine) {
  return fmt::format(
      "the kernel refuses it: this process has no CAP_SYS_NICE, and its RLIMIT_NICE allows {} at "
      "best. If other programs compute on the same cores, ops wait for their time slices. To fix "
      "it: {}",
      nice_limit(machine), kMend);
}

std::string set_session_nice(const Machine& machine, int nice) {
  if (machine.number(kAutogroupSwitch).value_or(0) != 1 || !machine.exists(kAutogroup)) return "";
  if (getsid(0) != getpid()) {
    return "the nice value of lanes counts only against processes of the same session "
           "(kernel.sched_autogroup_enabled = 1, and the daemon does not lead its session): start "
           "the daemon by the service manager or with setsid";
  }
  // Without root, the kernel allows one change every 100 ms for all processes of the host together.
  constexpr int kMostTries = 20;
  constexpr auto kPause = std::chrono::milliseconds(20);
  for (int i = 0; i < kMostTries; ++i) {
    std::ofstream file(machine.path(kAutogroup));
    file << nice << std::flush;
    if (file) return "";
    if (errno != EAGAIN) break;
    std::this_thread::sleep_for(kPause);
  }
  return fmt::format(
      "the nice value of lanes counts only against processes of the same session, because the "
      "daemon cannot change that of its session: {} cannot be written: {}",
      kAutogroup, std::strerror(errno));
}

void check_nice(const Machine& machine, Findings& out) {
  if (!machine.exists("/proc/self/status")) {
    out.push_back({"nice value", "", Verdict::kSkip, "/proc does not show it", "", ""});
    return;
  }
  const int least = least_nice(machine);
  Finding finding{"nice value",
                  "",
                  Verdict::kOk,
                  fmt::format("this user may set {} or more", least),
                  "on a core that other programs use, a lane needs -20 (lanes.nice), or else each "
                  "op waits for their time slices",
                  ""};
  if (least > -20) {
    finding.verdict = Verdict::kWarn;
    finding.mend = kMend;
  }
  out.push_back(std::move(finding));
}

}  // namespace gradwire::host
