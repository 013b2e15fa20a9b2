// SPDX-License-Identifier: BSD-3-Clause
// Hugepages of each NUMA node, where they are mounted, and how much memory may be locked.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "host/examine.h"
#include "host/mounts.h"

namespace gradwire::host {
namespace {

constexpr const char* kNodes = "/sys/devices/system/node";
constexpr const char* kWhyPages =
    "packets and gradients live in hugepages on the NUMA node of their NIC; the daemon does not "
    "start without them";

struct Pages {
  std::int64_t total = 0;
  std::int64_t free = 0;
};

Pages pages_of(const Machine& machine, const std::string& node, int kib) {
  const std::string folder = fmt::format("{}/{}/hugepages/hugepages-{}kB", kNodes, node, kib);
  return {machine.number(folder + "/nr_hugepages").value_or(0),
          machine.number(folder + "/free_hugepages").value_or(0)};
}

/// The nodes that NICs of the subject are on; empty if that is not known.
std::set<int> nodes_of_nics(const Machine& machine, const Subject& subject) {
  std::set<int> nodes;
  if (subject.devices.empty()) return nodes;
  for (const Nic& nic : find_nics(machine, subject)) {
    if (nic.numa_node >= 0) nodes.insert(nic.numa_node);
  }
  return nodes;
}

bool is_mounted(const Machine& machine) {
  return std::ranges::any_of(mounts_of(machine),
                             [](const Mount& mount) { return mount.type == "hugetlbfs"; });
}

}  // namespace

void check_hugepages(const Machine& machine, const Subject& subject, Findings& out) {
  constexpr std::int64_t kUsualMib = 2048;
  constexpr std::int64_t kControlMib = 128;
  const auto wanted =
      subject.memory_mib != 0 ? static_cast<std::int64_t>(subject.memory_mib) : kUsualMib;
  const std::set<int> nic_nodes = nodes_of_nics(machine, subject);
  std::int64_t total_mib = 0;
  Findings nodes;
  for (const std::string& name : machine.names(kNodes)) {
    if (!name.starts_with("node") || name.find_first_of("0123456789") != 4) continue;
    const Pages small = pages_of(machine, name, 2048);
    const Pages large = pages_of(machine, name, 1048576);
    const std::int64_t mib = small.total * 2 + large.total * 1024;
    total_mib += mib;
    Finding finding{"hugepages",
                    name.substr(0, 4) + " " + name.substr(4),
                    Verdict::kOk,
                    fmt::format("{} of 2 MB ({} free), {} of 1 GB ({} free)", small.total,
                                small.free, large.total, large.free),
                    kWhyPages,
                    ""};
    const int node = std::stoi(name.substr(4));
    if (nic_nodes.contains(node) && mib < wanted) {
      finding.verdict = mib == 0 ? Verdict::kFail : Verdict::kWarn;
      finding.value +=
          fmt::format("; the NIC is on this node, and the daemon wants {} MiB here", wanted);
      finding.mend = fmt::format("scripts/setup-host.sh --hugepages {}:{}", node, wanted / 2);
    } else if (mib == 0) {
      finding.verdict = Verdict::kWarn;
      finding.value += "; a daemon cannot start if its main lcore is on this node";
      finding.why = "the EAL keeps the memory that all its threads share on the main lcore's node";
      finding.mend = fmt::format(
          "scripts/setup-host.sh --hugepages {}:{}, or put the main lcore on a node that has "
          "hugepages",
          node, kControlMib / 2);
    }
    nodes.push_back(std::move(finding));
  }
  if (total_mib == 0) {
    // Reported once, not for each node.
    std::erase_if(nodes, [](const Finding& f) { return f.verdict != Verdict::kFail; });
    nodes.push_back({"hugepages", "", Verdict::kFail, "none on any node", kWhyPages,
                     fmt::format("scripts/setup-host.sh --hugepages {}", wanted / 2)});
  } else if (!is_mounted(machine)) {
    nodes.push_back({"hugepages", "", Verdict::kFail, "no hugetlbfs is mounted",
                     "DPDK allocates hugepages from a mounted hugetlbfs",
                     "mount -t hugetlbfs -o pagesize=2M none /dev/hugepages"});
  }
  out.insert(out.end(), nodes.begin(), nodes.end());
}

void check_memlock(const Machine& machine, Findings& out) {
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 30;
  const std::uint64_t limit = machine.memlock_bytes();
  const bool enough = limit >= kEnough;
  out.push_back({"memlock", "", enough ? Verdict::kOk : Verdict::kWarn,
                 limit == kUnlimited ? "unlimited" : fmt::format("{} MiB", limit >> 20),
                 "vfio counts all memory that a NIC can access as locked: unless it runs as root, "
                 "a daemon needs a limit as large as its hugepages",
                 enough ? "" : "scripts/setup-host.sh --memlock unlimited, then log in again"});
}

}  // namespace gradwire::host
