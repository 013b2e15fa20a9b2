// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <sstream>

#include "host/examine.h"

namespace gradwire::host {
namespace {

/// What the kernel says that the first CPU can do, with a blank around each word; empty: unknown.
std::string flags_of_cpu(const Machine& machine) {
  std::istringstream lines(machine.text("/proc/cpuinfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with("flags") && colon != std::string::npos) {
      return line.substr(colon + 1) + " ";
    }
  }
  return {};
}

}  // namespace

void check_aes(const Machine& machine, const Subject& subject, Findings& out) {
  if (!subject.seals) return;
  const std::string flags = flags_of_cpu(machine);
  if (flags.empty()) {
    out.push_back({"AES", "", Verdict::kSkip, "/proc/cpuinfo does not show it", "", ""});
    return;
  }
  std::string missing;
  for (const char* const flag : {"aes", "pclmulqdq"}) {
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) continue;
    missing += fmt::format("{}{}", missing.empty() ? "no " : ", no ", flag);
  }
  Finding finding{"AES",
                  "",
                  Verdict::kOk,
                  "this CPU has instructions for AES",
                  "groups whose packets are sealed are a tenth as fast or less without",
                  ""};
  if (!missing.empty()) {
    finding.verdict = Verdict::kWarn;
    finding.value =
        fmt::format("this CPU has no instructions for AES ({} in /proc/cpuinfo)", missing);
    finding.why = "groups whose packets are sealed are a tenth as fast or less";
    finding.mend =
        "in a virtual machine, give it the CPU model of its host; else keep groups that are sealed "
        "off this host";
  }
  out.push_back(std::move(finding));
}

}  // namespace gradwire::host
