// SPDX-License-Identifier: BSD-3-Clause
#include "host/examine.h"

#include <algorithm>

#include "fake_machine.h"
#include "host/nice.h"

namespace gradwire::host {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kNic = "0000:3b:00.0";

/// A host that is fit: one NIC with vfio on node 1, and an isolated core there.
void make_good(const FakeMachine& machine) {
  machine.write("/proc/sys/kernel/osrelease", "6.1.0");
  machine.write("/proc/self/status", "CapEff:\t000001ffffffffff");
  machine.write("/proc/mounts", "none /dev/hugepages hugetlbfs rw,pagesize=2M 0 0");
  machine.node(0, 64, 0);
  machine.node(1, 1024, 2);
  machine.nic(kNic, "vfio-pci", "", 1);
  machine.folder("/sys/bus/pci/drivers/vfio-pci");
  machine.folder("/sys/kernel/iommu_groups/7/devices/0000:3b:00.0");
  machine.link("/sys/bus/pci/devices/0000:3b:00.0/iommu_group", "../../../kernel/iommu_groups/7");
  for (const int cpu : {0, 1, 2, 3}) machine.cpu(cpu, cpu / 2);
  machine.write("/sys/devices/system/cpu/isolated", "3");
  machine.write("/sys/devices/system/cpu/nohz_full", "3");
  machine.write("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance");
}

Subject good_subject() {
  Subject subject;
  subject.devices = {kNic};
  subject.lane_cpus = {3};
  subject.base_udp_port = 18515;
  subject.lanes = 2;
  return subject;
}

TEST_CASE("a host as it should be has nothing to mend") {
  FakeMachine machine;
  make_good(machine);
  machine.ruleset = "";
  const Findings findings = examine(machine, good_subject());
  INFO(to_text(findings));
  CHECK(is_fit(findings));
  for (const Finding& finding : findings) {
    CHECK((finding.verdict == Verdict::kOk || finding.verdict == Verdict::kSkip));
    CHECK(finding.mend.empty());
  }
  CHECK_THAT(finding_of(findings, "nic driver", kNic).value, Contains("IOMMU group 7"));
  CHECK_THAT(finding_of(findings, "UDP ports", "18515 to 18516").value, Contains("free"));
}

TEST_CASE("hugepages are judged on the NIC's node") {
  FakeMachine machine;
  make_good(machine);
  machine.node(0, 1024, 0);
  machine.node(1, 0, 0);
  const Findings far = examine(machine, good_subject());
  CHECK_FALSE(is_fit(far));
  const Finding none = finding_of(far, "hugepages", "node 1");
  CHECK(none.verdict == Verdict::kFail);
  CHECK_THAT(none.mend, Contains("--hugepages 1:1024"));
  CHECK(finding_of(far, "hugepages", "node 0").verdict == Verdict::kOk);

  machine.node(1, 100, 0);
  CHECK(finding_of(examine(machine, good_subject()), "hugepages", "node 1").verdict ==
        Verdict::kWarn);

  machine.node(1, 1024, 0);
  machine.write("/proc/mounts", "proc /proc proc rw 0 0");
  CHECK_THAT(finding_of(examine(machine, good_subject()), "hugepages").mend, Contains("mount"));

  machine.node(0, 0, 0);
  machine.node(1, 0, 0);
  const Findings empty = examine(machine, {});
  CHECK(finding_of(empty, "hugepages").verdict == Verdict::kFail);
  CHECK_THAT(finding_of(empty, "hugepages").value, Contains("none on any node"));
  CHECK(std::ranges::count(empty, "hugepages", &Finding::check) == 1);

  machine.node(1, 1024, 0);
  const Finding control = finding_of(examine(machine, good_subject()), "hugepages", "node 0");
  CHECK(control.verdict == Verdict::kWarn);
  CHECK_THAT(control.value, Contains("main lcore"));
  CHECK_THAT(control.mend, Contains("--hugepages 0:64"));
}

TEST_CASE("memlock below a gigabyte is told") {
  FakeMachine machine;
  make_good(machine);
  CHECK(finding_of(examine(machine, good_subject()), "memlock").value == "unlimited");
  machine.memlock = 8 << 20;
  const Finding small = finding_of(examine(machine, good_subject()), "memlock");
  CHECK(small.verdict == Verdict::kWarn);
  CHECK(small.value == "8 MiB");
}

TEST_CASE("vfio needs the IOMMU, or its unsafe mode, or it is not wanted") {
  FakeMachine machine;
  make_good(machine);
  machine.remove("/sys/kernel/iommu_groups");
  CHECK(finding_of(examine(machine, good_subject()), "IOMMU").verdict == Verdict::kFail);
  machine.write("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
  const Finding unsafe = finding_of(examine(machine, good_subject()), "IOMMU");
  CHECK(unsafe.verdict == Verdict::kWarn);
  CHECK_THAT(unsafe.value, Contains("unsafe"));

  machine.nic(kNic, "mlx5_core", "eth1", 1);
  CHECK(finding_of(examine(machine, good_subject()), "IOMMU").verdict == Verdict::kSkip);
}

TEST_CASE("of links in memory nobody asks for NICs, and of the kernel's none for vfio") {
  FakeMachine machine;
  make_good(machine);
  machine.remove("/sys/kernel/iommu_groups");
  machine.remove("/sys/bus/pci/drivers/vfio-pci");
  Subject subject;
  CHECK(has(examine(machine, subject), "IOMMU"));
  subject.pci = false;
  const Findings by_kernel = examine(machine, subject);
  CHECK_FALSE(has(by_kernel, "IOMMU"));
  CHECK_FALSE(has(by_kernel, "vfio"));
  CHECK(has(by_kernel, "nic driver"));
  subject.nics = false;
  const Findings in_memory = examine(machine, subject);
  CHECK_FALSE(has(in_memory, "nic driver"));
  CHECK_FALSE(has(in_memory, "PCIe"));
  CHECK_FALSE(has(in_memory, "flow control"));
  CHECK(has(in_memory, "hugepages"));
}

TEST_CASE("a group that others share cannot be opened") {
  FakeMachine machine;
  make_good(machine);
  const std::string members = "/sys/bus/pci/devices/0000:3b:00.0/iommu_group";
  machine.remove(members);
  machine.folder(members + "/devices/0000:3b:00.0");
  machine.folder(members + "/devices/0000:3b:00.1");
  machine.folder(members + "/devices/0000:3a:00.0");
  machine.nic("0000:3b:00.1", "ice", "eth2", 1);
  machine.link("/sys/bus/pci/devices/0000:3a:00.0/driver", "../pcieport");
  const Finding shared = finding_of(examine(machine, good_subject()), "IOMMU group", kNic);
  CHECK(shared.verdict == Verdict::kFail);
  CHECK_THAT(shared.value, Contains("0000:3b:00.1 (ice)") && !Contains("3a:00.0"));
}

TEST_CASE("the driver of a NIC") {
  FakeMachine machine;
  make_good(machine);
  machine.nic(kNic, "ice", "eth1", 1);
  const Finding kernels =
      finding_of(examine(machine, good_subject()), "nic driver", "0000:3b:00.0 (eth1)");
  CHECK(kernels.verdict == Verdict::kFail);
  CHECK_THAT(kernels.mend, Contains("--bind 0000:3b:00.0"));

  // It was not asked for, so it may be meant for the kernel.
  const Findings all = examine(machine, {});
  CHECK(finding_of(all, "nic driver", "0000:3b:00.0 (eth1)").verdict == Verdict::kSkip);
  CHECK(finding_of(all, "nic").verdict == Verdict::kWarn);

  machine.write("/proc/net/route", "Iface\tDestination\tGateway\neth1\t00000000\t0100000A");
  const Finding route =
      finding_of(examine(machine, good_subject()), "nic driver", "0000:3b:00.0 (eth1)");
  CHECK(route.verdict == Verdict::kFail);
  CHECK_THAT(route.value, Contains("default route"));

  machine.nic(kNic, "uio_pci_generic", "", 1);
  machine.remove("/sys/bus/pci/devices/0000:3b:00.0/net");
  CHECK(finding_of(examine(machine, good_subject()), "nic driver", kNic).verdict == Verdict::kWarn);

  Subject absent = good_subject();
  absent.devices = {"0000:99:00.0"};
  CHECK(finding_of(examine(machine, absent), "nic", "0000:99:00.0").verdict == Verdict::kFail);
}

TEST_CASE("link and MTU of an interface that the kernel has") {
  FakeMachine machine;
  make_good(machine);
  machine.nic(kNic, "mlx5_core", "eth1", 1);
  Subject subject = good_subject();
  subject.devices = {"eth1"};
  const std::string name = "0000:3b:00.0 (eth1)";
  CHECK_THAT(finding_of(examine(machine, subject), "link", name).value, Contains("100000"));
  CHECK(finding_of(examine(machine, subject), "MTU", name).verdict == Verdict::kOk);
  machine.write("/sys/class/net/eth1/mtu", "1500");
  CHECK(finding_of(examine(machine, subject), "MTU", name).verdict == Verdict::kWarn);
  subject.mtu = 9000;
  CHECK(finding_of(examine(machine, subject), "MTU", name).verdict == Verdict::kFail);
  machine.write("/sys/class/net/eth1/carrier", "0");
  CHECK(finding_of(examine(machine, subject), "link", name).verdict == Verdict::kWarn);
}

TEST_CASE("a slot narrower than the NIC") {
  FakeMachine machine;
  make_good(machine);
  const std::string folder = "/sys/bus/pci/devices/0000:3b:00.0/";
  CHECK_FALSE(has(examine(machine, good_subject()), "PCIe"));
  machine.write(folder + "current_link_width", "16");
  machine.write(folder + "max_link_width", "16");
  machine.write(folder + "current_link_speed", "16.0 GT/s PCIe");
  machine.write(folder + "max_link_speed", "16.0 GT/s PCIe");
  CHECK(finding_of(examine(machine, good_subject()), "PCIe", kNic).verdict == Verdict::kOk);
  machine.write(folder + "current_link_width", "8");
  const Finding narrow = finding_of(examine(machine, good_subject()), "PCIe", kNic);
  CHECK(narrow.verdict == Verdict::kWarn);
  CHECK_THAT(narrow.value, Contains("x8") && Contains("it can do x16"));
}

TEST_CASE("flow control, and ECN where the congestion control needs it") {
  FakeMachine machine;
  make_good(machine);
  machine.nic(kNic, "mlx5_core", "eth1", 1);
  Subject subject = good_subject();
  const std::string name = "0000:3b:00.0 (eth1)";
  CHECK(finding_of(examine(machine, subject), "flow control", name).verdict == Verdict::kSkip);
  machine.pauses["eth1"] = {true, true};
  CHECK(finding_of(examine(machine, subject), "flow control", name).verdict == Verdict::kOk);
  machine.pauses["eth1"] = {true, false};
  CHECK(finding_of(examine(machine, subject), "flow control", name).verdict == Verdict::kWarn);
  CHECK_FALSE(has(examine(machine, subject), "ECN"));
  subject.congestion = "dctcp";
  CHECK(finding_of(examine(machine, subject), "ECN").verdict == Verdict::kFail);
  subject.ecn = true;
  CHECK(finding_of(examine(machine, subject), "ECN").verdict == Verdict::kOk);
}

TEST_CASE("the nice value that lanes may have") {
  FakeMachine machine;
  make_good(machine);
  constexpr const char* kNone = "Name:\tx\nCapEff:\t0000000000000000\nThreads:\t1";
  constexpr const char* kLimit = "Limit Soft Hard Units\nMax nice priority         ";
  machine.write("/proc/self/status", "Name:\tx\nCapEff:\t0000000000800000\nThreads:\t1");
  CHECK(least_nice(machine) == -20);
  machine.write("/proc/self/status", kNone);
  CHECK(least_nice(machine) == 0);
  machine.write("/proc/self/limits", std::string(kLimit) + "0                    0");
  CHECK(least_nice(machine) == 0);
  const Finding none = finding_of(examine(machine, good_subject()), "nice value");
  CHECK(none.verdict == Verdict::kWarn);
  CHECK_THAT(none.mend, Contains("LimitNICE=-20") && Contains("SYS_NICE"));
  CHECK_THAT(why_not_nice(machine), Contains("RLIMIT_NICE allows 0"));
  machine.write("/proc/self/limits", std::string(kLimit) + "30                   40");
  CHECK(least_nice(machine) == -10);
  machine.write("/proc/self/limits", std::string(kLimit) + "40                   40");
  CHECK(least_nice(machine) == -20);
  CHECK(finding_of(examine(machine, good_subject()), "nice value").verdict == Verdict::kOk);
}

TEST_CASE("a session's nice value is set if the kernel groups sessions and this one is its own") {
  FakeMachine machine;
  CHECK(set_session_nice(machine, -20).empty());
  machine.write("/proc/sys/kernel/sched_autogroup_enabled", "0");
  machine.write("/proc/self/autogroup", "/autogroup-7 nice 0");
  CHECK(set_session_nice(machine, -20).empty());
  CHECK(machine.text("/proc/self/autogroup") == "/autogroup-7 nice 0");
  machine.write("/proc/sys/kernel/sched_autogroup_enabled", "1");
  const std::string told = set_session_nice(machine, -20);
  if (getsid(0) == getpid()) {
    CHECK(told.empty());
    CHECK(machine.text("/proc/self/autogroup") == "-20");
  } else {
    CHECK_THAT(told, Contains("does not lead its session"));
    CHECK(machine.text("/proc/self/autogroup") == "/autogroup-7 nice 0");
  }
}

TEST_CASE("lanes' cores, their node and their frequency") {
  FakeMachine machine;
  make_good(machine);
  Subject subject = good_subject();
  subject.lane_cpus = {0, 3, 9};
  machine.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave");
  const Findings findings = examine(machine, subject);
  const Finding shared = finding_of(findings, "cores", "CPU 0");
  CHECK(shared.verdict == Verdict::kWarn);
  CHECK_THAT(shared.value, Contains("isolated: no") && Contains("the NIC is on node 1"));
  CHECK(finding_of(findings, "cores", "CPU 3").verdict == Verdict::kOk);
  CHECK(finding_of(findings, "cores", "CPU 9").verdict == Verdict::kFail);
  const Finding slow = finding_of(findings, "frequency", "CPU 0,3,9");
  CHECK(slow.verdict == Verdict::kWarn);
  CHECK_THAT(slow.value, Contains("powersave"));

  machine.write("/sys/devices/system/cpu/isolated", "");
  subject.lane_cpus.clear();
  CHECK(finding_of(examine(machine, subject), "cores").verdict == Verdict::kWarn);
}

TEST_CASE("GPUs: driver, place, and the ways into their memory") {
  FakeMachine machine;
  make_good(machine);
  Subject subject = good_subject();
  CHECK(finding_of(examine(machine, subject), "GPU").verdict == Verdict::kSkip);
  subject.reduces_on_gpu = true;
  CHECK(finding_of(examine(machine, subject), "GPU").verdict == Verdict::kFail);

  const std::string gpu = "/sys/bus/pci/devices/0000:17:00.0";
  machine.write(gpu + "/class", "0x030200");
  machine.write(gpu + "/vendor", "0x10de");
  machine.write(gpu + "/numa_node", "0");
  Findings findings = examine(machine, subject);
  CHECK(finding_of(findings, "GPU driver", "0000:17:00.0").verdict == Verdict::kFail);
  CHECK(finding_of(findings, "GPU and NIC", "0000:17:00.0 and 0000:3b:00.0").verdict ==
        Verdict::kWarn);
  CHECK(finding_of(findings, "GPUDirect").verdict == Verdict::kWarn);
  CHECK(finding_of(findings, "GDRCopy").verdict == Verdict::kWarn);

  machine.link(gpu + "/driver", "../nvidia");
  machine.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module 550");
  machine.write("/dev/gdrdrv", "");
  machine.write(gpu + "/numa_node", "1");
  findings = examine(machine, subject);
  CHECK(finding_of(findings, "GPU driver", "0000:17:00.0").verdict == Verdict::kOk);
  CHECK(finding_of(findings, "GPU and NIC", "0000:17:00.0 and 0000:3b:00.0").verdict ==
        Verdict::kOk);
  CHECK_THAT(finding_of(findings, "GPUDirect").value, Contains("dma-buf"));
  CHECK(finding_of(findings, "GDRCopy").verdict == Verdict::kOk);
}

TEST_CASE("sealing packets on a CPU without AES is told, if the daemon has a key") {
  FakeMachine machine;
  make_good(machine);
  constexpr const char* kStart = "processor\t: 0\nmodel name\t: x\nflags\t\t: fpu vaes sse ";
  machine.write("/proc/cpuinfo", std::string(kStart) + "vpclmulqdq");
  Subject subject = good_subject();
  CHECK_FALSE(has(examine(machine, subject), "AES"));
  subject.seals = true;
  const Finding none = finding_of(examine(machine, subject), "AES");
  CHECK(none.verdict == Verdict::kWarn);
  CHECK_THAT(none.value, Contains("no instructions for AES (no aes, no pclmulqdq in /proc/"));
  CHECK_THAT(none.why, Contains("a tenth as fast or less"));
  CHECK(to_sentence(finding_of(examine_for_daemon(machine, subject), "AES")) == to_sentence(none));

  machine.write("/proc/cpuinfo", std::string(kStart) + "aes lm");
  CHECK_THAT(finding_of(examine(machine, subject), "AES").value, Contains("(no pclmulqdq in"));
  machine.write("/proc/cpuinfo", std::string(kStart) + "aes pclmulqdq\nbugs\t\t: x");
  CHECK(finding_of(examine(machine, subject), "AES").verdict == Verdict::kOk);
  machine.remove("/proc/cpuinfo");
  CHECK(finding_of(examine(machine, subject), "AES").verdict == Verdict::kSkip);
}

TEST_CASE("UDP ports of others, and a firewall") {
  FakeMachine machine;
  make_good(machine);
  machine.write("/proc/net/udp",
                "  sl  local_address rem_address   st\n"
                "   1: 00000000:4854 00000000:0000 07\n"
                "   2: 00000000:4855 00000000:0000 07\n");
  machine.ruleset = "table inet filter { chain input { policy drop; } }";
  const Findings findings = examine(machine, good_subject());
  const Finding taken = finding_of(findings, "UDP ports", "18515 to 18516");
  CHECK(taken.verdict == Verdict::kWarn);
  CHECK(taken.value == "another program uses 18516");
  const Finding firewall = finding_of(findings, "firewall");
  CHECK(firewall.verdict == Verdict::kWarn);
  CHECK_THAT(firewall.mend, Contains("18515-18516"));
}

TEST_CASE("the daemon is told what it does not see itself, and of its own ports") {
  FakeMachine machine;
  make_good(machine);
  machine.nic("0000:01:00.0", "e1000e", "eth0", 0);
  machine.remove("/sys/kernel/iommu_groups");
  const Findings findings = examine_for_daemon(machine, good_subject());
  CHECK(finding_of(findings, "IOMMU").verdict == Verdict::kFail);
  CHECK_FALSE(has(findings, "hugepages"));
  CHECK_FALSE(has(findings, "GPU"));
  for (const Finding& finding : findings) CHECK_THAT(finding.subject, !Contains("0000:01:00.0"));
  CHECK_FALSE(has(findings, "firewall"));

  // memif and such ports do not use the host's NICs.
  Subject without = good_subject();
  without.devices.clear();
  CHECK_FALSE(has(examine_for_daemon(machine, without), "IOMMU"));
}

}  // namespace
}  // namespace gradwire::host
