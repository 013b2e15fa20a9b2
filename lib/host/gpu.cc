// SPDX-License-Identifier: BSD-3-Clause
// GPUs: their driver, their place beside the NICs, and how a NIC can access their memory.
#include <fmt/format.h>

#include <algorithm>

#include "host/examine.h"
#include "host/placement.h"

namespace gradwire::host {
namespace {

std::vector<std::string> find_gpus(const Machine& machine) {
  std::vector<std::string> gpus;
  for (const std::string& address : machine.names(kPciDevices)) {
    const std::string folder = kPciDevices + address;
    // Class 03: display, of which 0302 is a GPU without a screen.
    if (machine.text(folder + "/vendor").value_or("") == "0x10de" &&
        machine.text(folder + "/class").value_or("").starts_with("0x03")) {
      gpus.push_back(address);
    }
  }
  return gpus;
}

void check_place(const Machine& machine, const std::string& gpu, const Subject& subject,
                 Findings& out) {
  const auto node = machine.number(kPciDevices + gpu + "/numa_node").value_or(-1);
  const std::string root = host::pci_root(gpu, machine.path(kPciDevices));
  for (const Nic& nic : find_nics(machine, subject)) {
    if (nic.address.empty() || nic.default_route) continue;
    const std::string nic_root = host::pci_root(nic.address, machine.path(kPciDevices));
    const bool far = node >= 0 && nic.numa_node >= 0 && node != nic.numa_node;
    const bool apart = !root.empty() && !nic_root.empty() && root != nic_root;
    out.push_back({"GPU and NIC", fmt::format("{} and {}", gpu, nic.address),
                   far ? Verdict::kWarn : Verdict::kOk,
                   fmt::format("NUMA nodes {} and {}, PCIe roots {}", node, nic.numa_node,
                               apart ? fmt::format("{} and {}", root, nic_root) : "the same"),
                   "every payload moves between the two, and the link between NUMA nodes is slow",
                   far ? "choose a NIC on the GPU's node (nvidia-smi topo -m shows it)" : ""});
  }
}

}  // namespace

void check_gpus(const Machine& machine, const Subject& subject, Findings& out) {
  const auto gpus = find_gpus(machine);
  if (gpus.empty()) {
    out.push_back({"GPU", "", subject.reduces_on_gpu ? Verdict::kFail : Verdict::kSkip,
                   "this host has no NVIDIA GPU", "without a GPU the CPU reduces",
                   subject.reduces_on_gpu ? "set gpu.device = \"\"" : ""});
    return;
  }
  const auto version = machine.text("/proc/driver/nvidia/version");
  for (const std::string& gpu : gpus) {
    const std::string driver = machine.link_name(kPciDevices + gpu + "/driver");
    const bool ready = driver == "nvidia" && version.has_value();
    out.push_back(
        {"GPU driver", gpu,
         ready ? Verdict::kOk : (subject.reduces_on_gpu ? Verdict::kFail : Verdict::kWarn),
         driver.empty() ? "none" : driver, "CUDA needs NVIDIA's kernel driver",
         ready ? "" : "install NVIDIA's driver: package nvidia-driver"});
    check_place(machine, gpu, subject, out);
  }
  const bool peermem = machine.exists("/sys/module/nvidia_peermem");
  // The open kernel module exports dma-buf; the other does not.
  const bool open = version && version->find("Open Kernel Module") != std::string::npos;
  out.push_back(
      {"GPUDirect", "", peermem || open ? Verdict::kOk : Verdict::kWarn,
       peermem ? "nvidia-peermem is loaded"
               : (open ? "the open kernel module offers dma-buf"
                       : "neither nvidia-peermem "
                         "nor dma-buf"),
       "gpu.staging = gpudirect needs one of them so that a NIC can read and write GPU memory; "
       "copy and mapped need neither",
       peermem || open ? "" : "modprobe nvidia-peermem, or install the open kernel module"});
  const bool gdrcopy = machine.exists("/dev/gdrdrv");
  out.push_back({"GDRCopy", "", gdrcopy ? Verdict::kOk : Verdict::kWarn,
                 gdrcopy ? "/dev/gdrdrv exists" : "/dev/gdrdrv does not exist",
                 "with it the CPU can write small payloads into GPU memory, which is faster than "
                 "starting a copy engine",
                 gdrcopy ? "" : "install GDRCopy, then modprobe gdrdrv"});
}

}  // namespace gradwire::host
