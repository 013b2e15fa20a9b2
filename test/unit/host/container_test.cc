// SPDX-License-Identifier: BSD-3-Clause
// What a container keeps from a daemon.
#include "fake_machine.h"

namespace gradwire::host {
namespace {

using Catch::Matchers::Contains;

Findings look(const Machine& machine, const Subject& subject = {}) {
  Findings findings;
  check_container(machine, subject, findings);
  check_shared_memory(machine, findings);
  return findings;
}

TEST_CASE("a host on which nothing limits a daemon has no findings of a container") {
  FakeMachine machine;
  CHECK(look(machine).empty());
  machine.write("/proc/self/cgroup", "0::/system.slice/gradwired.service");
  machine.write("/sys/fs/cgroup/system.slice/hugetlb.2MB.max", "max");
  machine.write("/proc/mounts",
                "none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n"
                "tmpfs /run tmpfs rw,nosuid,size=2451924k 0 0\n"
                "/dev/vda / ext4 rw 0 0");
  CHECK(look(machine).empty());
}

TEST_CASE("the least limit of hugepages of a control group and its parents counts") {
  FakeMachine machine;
  Subject subject;
  subject.memory_mib = 512;
  machine.write("/proc/self/cgroup", "0::/kubepods/pod7/c1");
  machine.write("/sys/fs/cgroup/kubepods/pod7/c1/hugetlb.2MB.max", "max");
  machine.write("/sys/fs/cgroup/kubepods/pod7/hugetlb.2MB.max", std::to_string(256 << 20));
  machine.write("/sys/fs/cgroup/kubepods/hugetlb.2MB.max", std::to_string(1 << 30));
  const Finding found = finding_of(look(machine, subject), "hugepages of the container", "2MB");
  CHECK(found.verdict == Verdict::kWarn);
  CHECK_THAT(found.value, Contains("256 MiB, by /sys/fs/cgroup/kubepods/pod7/hugetlb.2MB.max") &&
                              Contains("512 MiB"));
  CHECK_THAT(found.mend, Contains("hugepages-2Mi to 512Mi"));

  // Inside of a container its own group is the root.
  machine.write("/proc/self/cgroup", "0::/");
  machine.write("/sys/fs/cgroup/hugetlb.2MB.rsvd.max", "0");
  CHECK(finding_of(look(machine, subject), "hugepages of the container", "2MB").verdict ==
        Verdict::kFail);
  machine.write("/sys/fs/cgroup/hugetlb.2MB.rsvd.max", std::to_string(512 << 20));
  CHECK(finding_of(look(machine, subject), "hugepages of the container", "2MB").verdict ==
        Verdict::kOk);

  // Version 1, where a number stands for no limit.
  machine.remove("/sys/fs/cgroup");
  machine.write("/proc/self/cgroup", "5:hugetlb:/docker/7\n4:memory:/docker/7\n0::/");
  machine.write("/sys/fs/cgroup/hugetlb/docker/7/hugetlb.2MB.limit_in_bytes",
                "9223372036852711424");
  CHECK_FALSE(has(look(machine, subject), "hugepages of the container"));
  machine.write("/sys/fs/cgroup/hugetlb/docker/7/hugetlb.2MB.limit_in_bytes",
                std::to_string(64 << 20));
  CHECK(has(look(machine, subject), "hugepages of the container"));
}

TEST_CASE("pages of 1 GB that the host does not have limit nobody") {
  FakeMachine machine;
  machine.write("/proc/self/cgroup", "0::/");
  machine.write("/sys/fs/cgroup/hugetlb.1GB.max", "0");
  CHECK(look(machine).empty());
  machine.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "4");
  CHECK_THAT(finding_of(look(machine), "hugepages of the container", "1GB").mend,
             Contains("hugepages-1Gi"));
}

TEST_CASE("mounts that are too small or read-only are told") {
  FakeMachine machine;
  Subject subject;
  subject.memory_mib = 512;
  machine.write("/proc/mounts",
                "overlay / overlay ro,relatime 0 0\n"
                "tmpfs /run/gradwire tmpfs rw 0 0\n"
                "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0\n"
                "none /dev/hugepages hugetlbfs rw,pagesize=2M,size=268435456 0 0");
  const Findings findings = look(machine, subject);
  const Finding pages = finding_of(findings, "size of hugetlbfs", "/dev/hugepages");
  CHECK(pages.verdict == Verdict::kWarn);
  CHECK(pages.mend == "mount -o remount,size=512M /dev/hugepages");
  const Finding folder = finding_of(findings, "folder of sockets", "/var/run/dpdk");
  CHECK(folder.verdict == Verdict::kFail);
  CHECK_THAT(folder.value, Contains("/ is mounted read-only"));
  const Finding shared = finding_of(findings, "size of /dev/shm");
  CHECK(shared.verdict == Verdict::kWarn);
  CHECK_THAT(shared.value, Contains("64 MiB"));

  // Where /var/run is a link, what it leads to counts.
  machine.link("/var/run", "/run");
  machine.write("/proc/mounts",
                "overlay / overlay ro,relatime 0 0\n"
                "tmpfs /run tmpfs rw 0 0\n"
                "shm /dev/shm tmpfs rw,size=8g 0 0");
  CHECK_FALSE(has(look(machine, subject), "folder of sockets"));
  CHECK(finding_of(look(machine, subject), "size of /dev/shm").verdict == Verdict::kOk);
}

TEST_CASE("capabilities that a port needs are told") {
  FakeMachine machine;
  Subject subject;
  subject.kernel_ports = true;
  machine.write("/proc/self/status", "CapEff:\t0000000000000000");
  machine.memlock = 64 << 10;
  const Findings none = look(machine, subject);
  CHECK(finding_of(none, "capabilities", "NET_RAW").verdict == Verdict::kFail);
  CHECK(finding_of(none, "capabilities", "NET_ADMIN").verdict == Verdict::kWarn);
  CHECK(finding_of(none, "capabilities", "IPC_LOCK").verdict == Verdict::kWarn);
  machine.write("/proc/self/status", "CapEff:\t0000000000007000");  // these three
  CHECK(look(machine, subject).empty());
  machine.write("/proc/self/status", "CapEff:\t0000000000000000");
  subject.kernel_ports = false;
  machine.memlock = kUnlimited;
  CHECK(look(machine, subject).empty());
}

}  // namespace
}  // namespace gradwire::host
