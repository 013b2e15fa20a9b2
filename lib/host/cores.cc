// SPDX-License-Identifier: BSD-3-Clause
// Lanes' cores: isolated, without ticks, on their NIC's node, at full frequency.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "host/examine.h"
#include "host/isolation.h"

namespace gradwire::host {
namespace {

constexpr const char* kCpus = "/sys/devices/system/cpu";

/// The NUMA node of gradwire's NICs; -1 if they are on several nodes, or if it is unknown.
int node_of_nics(const Machine& machine, const Subject& subject) {
  std::set<int> nodes;
  for (const Nic& nic : find_nics(machine, subject)) {
    const bool ours =
        !subject.devices.empty() || nic.driver == "vfio-pci" || nic.driver == "mlx5_core";
    if (ours && nic.numa_node >= 0) nodes.insert(nic.numa_node);
  }
  return nodes.size() == 1 ? *nodes.begin() : -1;
}

/// The CPUs to examine: those of the lanes, or else the isolated ones.
std::vector<int> cpus_of(const Machine& machine, const Subject& subject) {
  if (!subject.lane_cpus.empty()) return subject.lane_cpus;
  return host::parse_cpu_list(machine.text(std::string(kCpus) + "/isolated").value_or(""))
      .value_or(std::vector<int>{});
}

}  // namespace

void check_cores(const Machine& machine, const Subject& subject, Findings& out) {
  const auto cpus = cpus_of(machine, subject);
  constexpr const char* kWhy =
      "if a lane is preempted for a millisecond, the whole ring stalls that long";
  if (cpus.empty()) {
    out.push_back({"cores", "", Verdict::kWarn, "no CPU is isolated", kWhy,
                   "scripts/setup-host.sh --isolate CPUS, then reboot; or, on shared cores, set "
                   "lanes.polling = \"adaptive\""});
    return;
  }
  const int node = node_of_nics(machine, subject);
  for (const int cpu : cpus) {
    const std::string name = fmt::format("CPU {}", cpu);
    const auto facts = host::read_core_facts(cpu, machine.path("/sys"));
    if (!facts) {
      out.push_back({"cores", name, Verdict::kFail, facts.error().message, kWhy, ""});
      continue;
    }
    std::string siblings =
        machine.text(fmt::format("{}/cpu{}/topology/thread_siblings_list", kCpus, cpu))
            .value_or("");
    const auto problems = host::isolation_problems({{*facts}}, node);
    Finding finding{"cores",
                    name,
                    problems.empty() ? Verdict::kOk : Verdict::kWarn,
                    fmt::format("isolated: {}, tickless: {}, NUMA node {}, CPUs of its core: {}",
                                facts->isolated ? "yes" : "no", facts->nohz_full ? "yes" : "no",
                                facts->numa_node, siblings.empty() ? "unknown" : siblings),
                    kWhy,
                    ""};
    if (!facts->isolated || !facts->nohz_full) {
      finding.mend = fmt::format("scripts/setup-host.sh --isolate {}, then reboot", cpu);
    }
    if (node >= 0 && facts->numa_node >= 0 && facts->numa_node != node) {
      finding.value += fmt::format("; the NIC is on node {}", node);
      finding.mend = fmt::format("choose a CPU of node {}: /sys/devices/system/node/node{}/cpulist",
                                 node, node);
    }
    out.push_back(std::move(finding));
  }
}

void check_governor(const Machine& machine, const Subject& subject, Findings& out) {
  auto cpus = cpus_of(machine, subject);
  if (cpus.empty()) cpus.push_back(0);
  constexpr const char* kWhy =
      "a core in power saving needs tens of microseconds to return to full speed";
  std::set<std::string> slow;
  bool told = false;
  for (const int cpu : cpus) {
    const auto governor =
        machine.text(fmt::format("{}/cpu{}/cpufreq/scaling_governor", kCpus, cpu));
    told = told || governor.has_value();
    if (governor && *governor != "performance") slow.insert(*governor);
  }
  if (!told) {
    out.push_back({"frequency", "", Verdict::kSkip,
                   "the kernel does not control it here, as in most virtual machines", kWhy, ""});
    return;
  }
  std::string value = "performance";
  if (!slow.empty()) {
    value.clear();
    for (const std::string& name : slow) value += (value.empty() ? "" : ", ") + name;
  }
  out.push_back({"frequency", fmt::format("CPU {}", host::to_cpu_list(cpus)),
                 slow.empty() ? Verdict::kOk : Verdict::kWarn, "governor " + value, kWhy,
                 slow.empty() ? "" : "cpupower frequency-set -g performance"});
}

}  // namespace gradwire::host
