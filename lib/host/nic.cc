// SPDX-License-Identifier: BSD-3-Clause
// NICs: their driver, link, MTU, slot and flow control; and the IOMMU.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "host/examine.h"

namespace gradwire::host {
namespace {

constexpr const char* kInterfaces = "/sys/class/net/";

/// Kernel drivers that DPDK needs to drive a NIC.
bool is_bifurcated(const std::string& driver) {
  return driver == "mlx5_core" || driver == "mlx4_core" || driver == "mana" ||
         driver == "hv_netvsc";
}
bool is_userspace(const std::string& driver) {
  return driver == "vfio-pci" || driver == "igb_uio" || driver == "uio_pci_generic";
}

std::string interface_of(const Machine& machine, const std::string& address) {
  const auto direct = machine.names(kPciDevices + address + "/net");
  if (!direct.empty()) return direct.front();
  // virtio's interface is below a bus of its own.
  for (const std::string& name : machine.names(kPciDevices + address)) {
    if (!name.starts_with("virtio")) continue;
    const auto below = machine.names(fmt::format("{}{}/{}/net", kPciDevices, address, name));
    if (!below.empty()) return below.front();
  }
  return {};
}

bool carries_default_route(const Machine& machine, const std::string& interface) {
  // "Iface Destination Gateway ...", one line for each route.
  std::istringstream lines(machine.text("/proc/net/route").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    std::string destination;
    if (fields >> name >> destination && name == interface && destination == "00000000") {
      return true;
    }
  }
  return false;
}

Nic read_nic(const Machine& machine, const std::string& address) {
  Nic nic;
  nic.address = address;
  nic.driver = machine.link_name(kPciDevices + address + "/driver");
  nic.interface = interface_of(machine, address);
  nic.numa_node =
      static_cast<int>(machine.number(kPciDevices + address + "/numa_node").value_or(-1));
  nic.default_route = !nic.interface.empty() && carries_default_route(machine, nic.interface);
  return nic;
}

/// The PCI device of a named interface, if it has one.
Nic read_interface(const Machine& machine, const std::string& interface) {
  for (const std::string& address : machine.names(kPciDevices)) {
    if (interface_of(machine, address) == interface) return read_nic(machine, address);
  }
  Nic nic;
  nic.interface = machine.exists(kInterfaces + interface) ? interface : "";
  nic.default_route = carries_default_route(machine, interface);
  return nic;
}

std::string name_of(const Nic& nic) {
  if (nic.address.empty()) return nic.interface;
  return nic.interface.empty() ? nic.address : fmt::format("{} ({})", nic.address, nic.interface);
}

void check_driver(const Machine& machine, const Nic& nic, bool asked_for, Findings& out) {
  Finding finding{"nic driver",
                  name_of(nic),
                  Verdict::kOk,
                  nic.driver.empty() ? "none" : nic.driver,
                  "DPDK needs vfio-pci as the NIC's kernel driver, or for mlx5 its own",
                  ""};
  const std::string bind = fmt::format("scripts/setup-host.sh --bind {}", nic.address);
  if (nic.address.empty()) {
    finding.value = "not a PCI device";
    finding.verdict = Verdict::kSkip;
    finding.why = "it can still be an af_xdp or af_packet port";
  } else if (is_bifurcated(nic.driver)) {
    finding.value += ", which DPDK and the kernel use together";
  } else if (is_userspace(nic.driver)) {
    if (nic.driver != "vfio-pci") {
      finding.verdict = Verdict::kWarn;
      finding.why = "without vfio the NIC can write to any memory of the host";
      finding.mend = bind;
    }
  } else if (nic.default_route) {
    finding.verdict = asked_for ? Verdict::kFail : Verdict::kSkip;
    finding.value += ": it carries the default route and must stay with the kernel";
    finding.mend = "choose another NIC, or a virtual function: scripts/setup-host.sh --vfs";
  } else {
    finding.verdict = asked_for ? Verdict::kFail : Verdict::kSkip;
    finding.value += asked_for ? ": in use by the kernel"
                               : ": in use by the kernel; to give it to gradwire: " + bind;
    finding.mend = bind;
  }
  if (nic.driver == "vfio-pci") {
    const std::string group = machine.link_name(kPciDevices + nic.address + "/iommu_group");
    if (!group.empty()) finding.value += fmt::format(", IOMMU group {}", group);
  }
  out.push_back(std::move(finding));
}

void check_link(const Machine& machine, const Nic& nic, const Subject& subject, Findings& out) {
  constexpr std::int64_t kJumbo = 9000;
  if (nic.interface.empty()) {
    out.push_back({"link and MTU", name_of(nic), Verdict::kSkip,
                   "the kernel does not see them; gradwired prints both when it starts", "", ""});
    return;
  }
  const std::string folder = kInterfaces + nic.interface;
  const auto mtu = machine.number(folder + "/mtu").value_or(0);
  const auto speed = machine.number(folder + "/speed").value_or(-1);
  const bool carrier = machine.number(folder + "/carrier").value_or(0) == 1;
  Finding link{"link",
               name_of(nic),
               Verdict::kOk,
               carrier ? (speed > 0 ? fmt::format("up, {} Mbit/s", speed) : "up") : "down",
               "a group forms only over links that are up",
               ""};
  if (!carrier) {
    link.verdict = Verdict::kWarn;
    link.mend = fmt::format("ip link set dev {} up; then check cable, transceiver and switch port",
                            nic.interface);
  }
  out.push_back(std::move(link));
  const auto wanted = subject.mtu != 0 ? static_cast<std::int64_t>(subject.mtu) : kJumbo;
  Finding frames{"MTU",
                 name_of(nic),
                 Verdict::kOk,
                 fmt::format("{}", mtu),
                 "the cost of a packet does not depend on its size, and an MTU of 1500 needs six "
                 "times as many packets as 9000",
                 ""};
  if (mtu < wanted) {
    frames.verdict = subject.mtu != 0 ? Verdict::kFail : Verdict::kWarn;
    frames.value += fmt::format(", {} wanted", wanted);
    frames.mend = fmt::format(
        "ip link set dev {} mtu {}, the same on the switch and the peer; then gradwire doctor "
        "--peer ADDRESS",
        nic.interface, wanted);
  }
  out.push_back(std::move(frames));
}

}  // namespace

std::vector<Nic> find_nics(const Machine& machine, const Subject& subject) {
  std::vector<Nic> nics;
  if (!subject.devices.empty()) {
    for (const std::string& device : subject.devices) {
      if (machine.exists(kPciDevices + device)) {
        nics.push_back(read_nic(machine, device));
      } else {
        nics.push_back(read_interface(machine, device));
        if (nics.back().interface.empty()) nics.back().address = device;
      }
    }
    return nics;
  }
  for (const std::string& address : machine.names(kPciDevices)) {
    if (machine.text(kPciDevices + address + "/class").value_or("").starts_with("0x02")) {
      nics.push_back(read_nic(machine, address));
    }
  }
  return nics;
}

void check_nics(const Machine& machine, const Subject& subject, Findings& out) {
  const bool asked_for = !subject.devices.empty();
  const auto nics = find_nics(machine, subject);
  bool usable = false;
  for (const Nic& nic : nics) {
    if (!nic.address.empty() && !machine.exists(kPciDevices + nic.address)) {
      out.push_back({"nic", nic.address, Verdict::kFail, "this host has no such device",
                     "the daemon cannot open it", "dpdk-devbind.py --status-dev net"});
      continue;
    }
    usable = usable || is_bifurcated(nic.driver) || is_userspace(nic.driver);
    check_driver(machine, nic, asked_for, out);
    // A NIC that the host itself needs stays with the kernel, and is not examined further.
    if (asked_for || is_bifurcated(nic.driver) || is_userspace(nic.driver)) {
      check_link(machine, nic, subject, out);
    }
  }
  if (!asked_for && !usable) {
    out.push_back(
        {"nic", "", Verdict::kWarn,
         nics.empty() ? "this host has no PCI network device" : "no NIC is bound for DPDK",
         "without a NIC of its own gradwire can only join daemons on one host, or go through the "
         "kernel (af_xdp, af_packet)",
         nics.empty() ? "" : "scripts/setup-host.sh --bind ADDRESS"});
  }
}

void check_iommu(const Machine& machine, const Subject& subject, Findings& out) {
  const auto nics = find_nics(machine, subject);
  const auto is_vfio = [](const Nic& nic) { return nic.driver == "vfio-pci"; };
  const bool wanted = std::any_of(nics.begin(), nics.end(), is_vfio);
  const bool all_bifurcated =
      !nics.empty() && std::all_of(nics.begin(), nics.end(),
                                   [](const Nic& nic) { return is_bifurcated(nic.driver); });
  const std::size_t groups = machine.names("/sys/kernel/iommu_groups").size();
  const bool unsafe =
      machine.text("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode").value_or("N") == "Y";
  Finding finding{"IOMMU",
                  "",
                  Verdict::kOk,
                  fmt::format("on, {} groups", groups),
                  "it stops a NIC from writing to memory that is not its own, and vfio needs it",
                  ""};
  if (groups == 0 && all_bifurcated) {
    finding.verdict = Verdict::kSkip;
    finding.value = "off; mlx5 does not need it";
  } else if (groups == 0) {
    finding.verdict = unsafe || !wanted ? Verdict::kWarn : Verdict::kFail;
    finding.value = unsafe ? "off; vfio runs in its unsafe no-IOMMU mode" : "off";
    finding.mend =
        "scripts/setup-host.sh --iommu, turn VT-d or AMD-Vi on in the BIOS, then reboot; in a "
        "virtual machine without an IOMMU: setup-host.sh --bind ... --no-iommu";
  } else if (unsafe) {
    finding.verdict = Verdict::kWarn;
    finding.value += ", but vfio also allows its unsafe no-IOMMU mode";
    finding.mend = "echo N > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
  }
  out.push_back(std::move(finding));
  const bool loaded = machine.exists("/sys/bus/pci/drivers/vfio-pci");
  Finding vfio{"vfio",
               "",
               Verdict::kOk,
               loaded ? "loaded" : "not loaded",
               "DPDK accesses a NIC through vfio-pci",
               ""};
  if (!loaded) {
    vfio.verdict = all_bifurcated ? Verdict::kSkip : Verdict::kWarn;
    vfio.mend = "modprobe vfio-pci";
  }
  out.push_back(std::move(vfio));
  for (const Nic& nic : nics) {
    if (nic.driver != "vfio-pci") continue;
    // vfio opens a group only if no device of it has another driver.
    std::string others;
    for (const std::string& member :
         machine.names(kPciDevices + nic.address + "/iommu_group/devices")) {
      const std::string driver = machine.link_name(kPciDevices + member + "/driver");
      if (driver.empty() || driver == "vfio-pci" || driver == "pcieport") continue;
      others += fmt::format(" {} ({})", member, driver);
    }
    if (others.empty()) continue;
    out.push_back({"IOMMU group", name_of(nic), Verdict::kFail, "shared with" + others,
                   "vfio can only take all devices of an IOMMU group together",
                   "bind the others to vfio-pci too, or put the NIC into another slot"});
  }
}

void check_pcie(const Machine& machine, const Subject& subject, Findings& out) {
  for (const Nic& nic : find_nics(machine, subject)) {
    if (nic.address.empty() || nic.default_route) continue;
    const std::string folder = kPciDevices + nic.address;
    const auto width = machine.text(folder + "/current_link_width");
    const auto speed = machine.text(folder + "/current_link_speed");
    const auto width_max = machine.text(folder + "/max_link_width");
    const auto speed_max = machine.text(folder + "/max_link_speed");
    if (!width || !speed || !width_max || !speed_max || *width == "0" || *width_max == "0" ||
        speed->starts_with("Unknown")) {
      continue;  // not PCIe: virtio, or a virtual function, which uses its parent's link
    }
    Finding finding{"PCIe",
                    name_of(nic),
                    Verdict::kOk,
                    fmt::format("x{} at {}", *width, *speed),
                    "the slot limits the NIC's bandwidth: x8 at 8 GT/s carries about 60 Gbit/s",
                    ""};
    if (*width != *width_max || *speed != *speed_max) {
      finding.verdict = Verdict::kWarn;
      finding.value += fmt::format(", but it can do x{} at {}", *width_max, *speed_max);
      finding.mend =
          "use another slot, or check the slot's width and speed in the BIOS: lspci -vvs " +
          nic.address;
    }
    out.push_back(std::move(finding));
  }
}

void check_flow_control(const Machine& machine, const Subject& subject, Findings& out) {
  for (const Nic& nic : find_nics(machine, subject)) {
    if (nic.default_route || (subject.devices.empty() && !is_bifurcated(nic.driver))) continue;
    if (nic.interface.empty()) continue;  // DPDK's driver decides
    const auto pause = machine.pause(nic.interface);
    if (!pause) {
      out.push_back(
          {"flow control", name_of(nic), Verdict::kSkip, "the driver does not report it", "", ""});
      continue;
    }
    const bool one_way = pause->rx != pause->tx;
    out.push_back(
        {"flow control", name_of(nic), one_way ? Verdict::kWarn : Verdict::kOk,
         fmt::format("pause rx {}, tx {}", pause->rx ? "on" : "off", pause->tx ? "on" : "off"),
         "gradwire does not need it because it repairs losses; with priority flow control on the "
         "switch, link-level pause also stops all other traffic of the link",
         one_way ? fmt::format("scripts/setup-host.sh --nic {} --pause off (or on)", nic.interface)
                 : ""});
  }
  if (subject.congestion == "dctcp") {
    out.push_back(
        {"ECN", "", subject.ecn ? Verdict::kOk : Verdict::kFail,
         subject.ecn ? "packets are marked as ECN-capable" : "transport.ecn = false",
         "dctcp reacts to ECN marks of the switch, and the switch marks only packets that are "
         "ECN-capable",
         subject.ecn ? "" : "set transport.ecn = true and turn ECN marking on in the switch"});
  }
}

}  // namespace gradwire::host
