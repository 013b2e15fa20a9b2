// SPDX-License-Identifier: BSD-3-Clause
// What a container or a small host keeps from a daemon though the host has it: hugepages by a
// control group or by the size of a mount, folders by a root that is read-only, capabilities, and
// the shared memory of the training programs beside it.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "host/examine.h"
#include "host/mounts.h"

namespace gradwire::host {
namespace {

constexpr const char* kGroups = "/sys/fs/cgroup";
/// Version 1 has a number for "no limit": the largest that is whole pages.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;
constexpr std::int64_t kUsualMib = 2048;
constexpr std::int64_t kSharedMib = 1024;
constexpr unsigned kIpcLock = 14, kNetAdmin = 12, kNetRaw = 13;

struct Limit {
  std::int64_t bytes = 0;
  std::string file;
};

/// The least of a group's and its parents' limits of hugepages.
void note_limits(const Machine& machine, const std::string& root, std::string group,
                 std::initializer_list<const char*> names, std::optional<Limit>& least) {
  for (;;) {
    for (const char* const name : names) {
      const std::string file = root + (group == "/" ? "" : group) + "/" + name;
      const auto limit = machine.number(file);
      if (limit && *limit < kNoLimit && (!least || *limit < least->bytes)) {
        least = Limit{*limit, file};
      }
    }
    if (group.size() <= 1) return;
    group.resize(std::max<std::size_t>(group.rfind('/'), 1));
  }
}

/// Of hugepages of one size, as files name it: "2MB".
std::optional<Limit> hugepage_limit(const Machine& machine, const std::string& size) {
  std::optional<Limit> least;
  const std::string now = "hugetlb." + size;
  std::istringstream lines(machine.text("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      const std::string most = now + ".max";
      const std::string reserved = now + ".rsvd.max";
      note_limits(machine, kGroups, group, {most.c_str(), reserved.c_str()}, least);
    } else if (controllers == "hugetlb") {
      const std::string most = now + ".limit_in_bytes";
      const std::string reserved = now + ".rsvd.limit_in_bytes";
      note_limits(machine, std::string(kGroups) + "/hugetlb", group,
                  {most.c_str(), reserved.c_str()}, least);
    }
  }
  return least;
}

/// What nobody tells of is not missing.
bool has_capability(const Machine& machine, unsigned number) {
  return machine.has_capability(number).value_or(true);
}

Verdict of_size(std::int64_t mib, std::int64_t wanted) {
  return mib >= wanted ? Verdict::kOk : mib == 0 ? Verdict::kFail : Verdict::kWarn;
}

void check_hugetlb_limits(const Machine& machine, std::int64_t wanted, Findings& out) {
  const bool large =
      machine.number("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages").value_or(0) != 0;
  for (const char* const size : {"2MB", "1GB"}) {
    const auto limit = hugepage_limit(machine, size);
    if (!limit || (size[0] == '1' && !large)) continue;
    const std::int64_t mib = limit->bytes >> 20;
    Finding finding{"hugepages of the container",
                    size,
                    of_size(mib, wanted),
                    fmt::format("{} MiB, by {}", mib, limit->file),
                    "a process that uses more is ended by SIGBUS, whatever the host has free; "
                    "training programs' gradients count where the programs run",
                    ""};
    if (finding.verdict != Verdict::kOk) {
      finding.value += fmt::format("; the daemon and its clients want {} MiB", wanted);
      finding.mend = fmt::format(
          "in a pod set requests and limits of hugepages-{} to {}Mi or more; elsewhere raise the "
          "control group's limit",
          size[0] == '2' ? "2Mi" : "1Gi", wanted);
    }
    out.push_back(std::move(finding));
  }
}

void check_mounts(const Machine& machine, std::int64_t wanted, Findings& out) {
  const std::vector<Mount> mounts = mounts_of(machine);
  for (const Mount& mount : mounts) {
    const auto size = mount.size();
    if (mount.type != "hugetlbfs" || !size) continue;
    const std::int64_t mib = *size >> 20;
    const bool enough = mib >= wanted;
    out.push_back(
        {"size of hugetlbfs", mount.folder, of_size(mib, wanted), fmt::format("{} MiB", mib),
         "the packet buffers of a daemon are files there; it does not start if they do "
         "not fit",
         enough ? "" : fmt::format("mount -o remount,size={}M {}", wanted, mount.folder)});
  }
  for (const char* const folder : {"/run/gradwire", "/var/run/dpdk"}) {
    // On most systems /var/run is a link.
    const std::string at =
        std::strncmp(folder, "/var/run", 8) == 0 && machine.link_name("/var/run") == "run"
            ? std::string("/run") + (folder + 8)
            : folder;
    const Mount* const mount = mount_of(mounts, at);
    if (mount == nullptr || !mount->has("ro")) continue;
    out.push_back({"folder of sockets", folder, Verdict::kFail,
                   fmt::format("{} is mounted read-only", mount->folder),
                   "a daemon makes its sockets there, and the EAL its files",
                   fmt::format("mount a tmpfs (in a pod an emptyDir) at {}", folder)});
  }
}

void check_capabilities(const Machine& machine, const Subject& subject, Findings& out) {
  if (subject.pci && machine.memlock_bytes() != kUnlimited && !has_capability(machine, kIpcLock)) {
    out.push_back(
        {"capabilities", "IPC_LOCK", Verdict::kWarn, "missing, and memlock has a limit",
         "vfio counts all memory that a NIC can access as locked",
         "add IPC_LOCK to the container's capabilities, or set its memlock to unlimited"});
  }
  if (!subject.kernel_ports) return;
  constexpr std::array<std::pair<unsigned, const char*>, 2> kWanted = {
      std::pair{kNetRaw, "NET_RAW"}, std::pair{kNetAdmin, "NET_ADMIN"}};
  for (const auto& [bit, name] : kWanted) {
    if (has_capability(machine, bit)) continue;
    out.push_back({"capabilities", name, bit == kNetRaw ? Verdict::kFail : Verdict::kWarn,
                   "missing",
                   bit == kNetRaw ? "a port of af_packet or af_xdp opens a raw socket"
                                  : "a port of af_xdp loads a program into its interface",
                   fmt::format("add {} to the container's capabilities, or by hand start the "
                               "daemon as root; under systemd see kernel-ports.conf",
                               name)});
  }
}

}  // namespace

void check_container(const Machine& machine, const Subject& subject, Findings& out) {
  const auto wanted =
      subject.memory_mib != 0 ? static_cast<std::int64_t>(subject.memory_mib) : kUsualMib;
  check_hugetlb_limits(machine, wanted, out);
  check_mounts(machine, wanted, out);
  check_capabilities(machine, subject, out);
}

void check_shared_memory(const Machine& machine, Findings& out) {
  const std::vector<Mount> mounts = mounts_of(machine);
  const Mount* const shared = mount_of(mounts, "/dev/shm");
  if (shared == nullptr || shared->folder != "/dev/shm" || !shared->size()) return;
  const std::int64_t mib = *shared->size() >> 20;
  const bool enough = mib >= kSharedMib;
  out.push_back({"size of /dev/shm", "", enough ? Verdict::kOk : Verdict::kWarn,
                 fmt::format("{} MiB", mib),
                 "gradwire does not use it, but PyTorch's data loaders and NCCL do, and end with a "
                 "bus error if it is full",
                 enough ? ""
                        : "in a pod mount an emptyDir with medium: Memory at /dev/shm; in a "
                          "container --shm-size=8g"});
}

}  // namespace gradwire::host
