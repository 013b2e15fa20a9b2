// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Checks whether a host is fit for gradwired. Each check gives a verdict. `gradwire doctor` runs
/// all checks, the daemon at its start those that concern its ports and lanes. Control thread;
/// reads files, allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/finding.h"
#include "host/machine.h"

namespace gradwire::host {

/// What the daemon on this host uses or will use; an empty member is not known.
struct Subject {
  std::vector<std::string> devices;  ///< PCI addresses or interfaces; empty: every NIC there is
  bool pci = true;  ///< a device may be a PCI device; if not, IOMMU and vfio are not checked
  bool kernel_ports = false;  ///< some port is the kernel's (af_packet, af_xdp)
  bool nics = true;           ///< false: the links are in memory (memif), so NICs are not checked
  std::vector<int> lane_cpus;
  std::uint64_t mtu = 0;         ///< wanted
  std::uint64_t memory_mib = 0;  ///< hugepages wanted, on the NICs' node
  std::uint16_t base_udp_port = 0;
  std::uint16_t lanes = 1;
  bool ecn = false;
  std::string congestion;
  bool reduces_on_gpu = false;
  bool seals = false;  ///< it has a key, so that packets of groups may be sealed

  /// One that has only the ports that add_port() adds.
  [[nodiscard]] static Subject without_ports() {
    Subject subject;
    subject.pci = subject.nics = false;
    return subject;
  }
  /// @param device  as the configuration names it: "net_memif0", "0000:3b:00.0".
  void add_port(const std::string& device);
};

/// A NIC of the host, as sysfs has it.
struct Nic {
  std::string address;    ///< PCI; empty for an interface without such a device
  std::string interface;  ///< empty if no kernel driver has it
  std::string driver;     ///< empty: none
  int numa_node = -1;
  bool default_route = false;
};

/// The subject's NICs; a NIC that does not exist has neither driver nor interface.
[[nodiscard]] std::vector<Nic> find_nics(const Machine& machine, const Subject& subject);

// One check each; in the order of a day's work.
void check_versions(const Machine& machine, Findings& out);
void check_hugepages(const Machine& machine, const Subject& subject, Findings& out);
void check_memlock(const Machine& machine, Findings& out);
/// What a control group, a mount or missing capabilities keep from a daemon: findings of what
/// limits it alone.
void check_container(const Machine& machine, const Subject& subject, Findings& out);
/// /dev/shm, which training programs need, if it has a size.
void check_shared_memory(const Machine& machine, Findings& out);
void check_iommu(const Machine& machine, const Subject& subject, Findings& out);
void check_nics(const Machine& machine, const Subject& subject, Findings& out);
void check_pcie(const Machine& machine, const Subject& subject, Findings& out);
void check_flow_control(const Machine& machine, const Subject& subject, Findings& out);
void check_cores(const Machine& machine, const Subject& subject, Findings& out);
/// Checks the user who asks; the daemon may run as another one.
void check_nice(const Machine& machine, Findings& out);
void check_governor(const Machine& machine, const Subject& subject, Findings& out);
/// Sealing packets without the CPU's instructions for it is slow.
void check_aes(const Machine& machine, const Subject& subject, Findings& out);
void check_gpus(const Machine& machine, const Subject& subject, Findings& out);
void check_udp_ports(const Machine& machine, const Subject& subject, Findings& out);
void check_firewall(const Machine& machine, const Subject& subject, Findings& out);

/// All of them.
[[nodiscard]] Findings examine(const Machine& machine, const Subject& subject);
/// Only checks of what the daemon does not know better by itself: it knows its ports' links, its
/// lanes' cores and its own memory. If the subject has no devices, its ports are not NICs.
[[nodiscard]] Findings examine_for_daemon(const Machine& machine, const Subject& subject);

}  // namespace gradwire::host
