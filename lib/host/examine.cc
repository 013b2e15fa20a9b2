// SPDX-License-Identifier: BSD-3-Clause
#include "host/examine.h"

#include <fmt/format.h>

namespace gradwire::host {

void Subject::add_port(const std::string& device) {
  // Devices that the EAL creates itself (memif, af_xdp) have no PCI slot and no kernel driver.
  if (device.find(':') != std::string::npos) devices.push_back(device);
  pci |= !device.starts_with("net_");
  nics |= !device.starts_with("net_memif");
  kernel_ports |= device.starts_with("net_af_");
}

void check_versions(const Machine& machine, Findings& out) {
  std::string value = fmt::format("gradwire {}, built with DPDK {}, kernel {}", GRADWIRE_VERSION,
                                  GRADWIRE_DPDK_VERSION,
                                  machine.text("/proc/sys/kernel/osrelease").value_or("unknown"));
  if (const auto driver = machine.text("/sys/module/nvidia/version")) {
    value += fmt::format(", NVIDIA driver {}", *driver);
  }
  out.push_back({"versions", "", Verdict::kOk, value,
                 "the daemons of a group must have the same version", ""});
}

Findings examine(const Machine& machine, const Subject& subject) {
  Findings out;
  check_versions(machine, out);
  check_hugepages(machine, subject, out);
  check_memlock(machine, out);
  check_container(machine, subject, out);
  check_shared_memory(machine, out);
  if (subject.pci) check_iommu(machine, subject, out);
  if (subject.nics) {
    check_nics(machine, subject, out);
    check_pcie(machine, subject, out);
    check_flow_control(machine, subject, out);
  }
  check_cores(machine, subject, out);
  check_nice(machine, out);
  check_governor(machine, subject, out);
  check_aes(machine, subject, out);
  check_gpus(machine, subject, out);
  check_udp_ports(machine, subject, out);
  check_firewall(machine, subject, out);
  return out;
}

Findings examine_for_daemon(const Machine& machine, const Subject& subject) {
  Findings out;
  check_container(machine, subject, out);
  if (!subject.devices.empty()) {
    check_iommu(machine, subject, out);
    check_pcie(machine, subject, out);
    check_flow_control(machine, subject, out);
  }
  check_governor(machine, subject, out);
  check_aes(machine, subject, out);
  if (subject.reduces_on_gpu) check_gpus(machine, subject, out);
  check_udp_ports(machine, subject, out);
  return out;
}

}  // namespace gradwire::host
