// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where memory really is, according to the kernel: the NUMA node of each page, and the page size
/// of an address range. Control thread; system calls, allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gradwire::host {

struct MemoryRange {
  std::string name;  ///< for messages
  const void* base = nullptr;
  std::size_t bytes = 0;
};

/// One mapping of /proc/PID/smaps: [begin, end).
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t page_bytes = 0;  ///< KernelPageSize
};

/// @return the mappings in the order of the text; kInvalidArgument if it does not have the format
/// of smaps.
[[nodiscard]] Result<std::vector<Mapping>> parse_smaps(std::string_view text);
/// Those of this process.
[[nodiscard]] Result<std::vector<Mapping>> read_mappings(
    const std::string& smaps_path = "/proc/self/smaps");

/// @return the smallest page size in `range`; kNotFound if part of it is not mapped,
/// kInvalidArgument if it is empty.
[[nodiscard]] Result<std::size_t> page_bytes_of(std::span<const Mapping> mappings,
                                                const MemoryRange& range);

/// Checks that every range is on hugepages.
/// @return an error that names the first range that is not, with its page size.
[[nodiscard]] Result<void> verify_hugepages(std::span<const Mapping> mappings,
                                            std::span<const MemoryRange> ranges);

struct NodePlacement {
  std::map<int, std::size_t> pages_by_node;
  std::size_t pages_absent = 0;  ///< not touched yet, so not on any node
};

/// Asks the kernel (move_pages, which moves nothing here) for the node of each page of `range`.
[[nodiscard]] Result<NodePlacement> read_placement(const MemoryRange& range,
                                                   std::size_t page_bytes);
/// "node 0: 12 pages, node 1: 1 page".
[[nodiscard]] std::string to_string(const NodePlacement& placement);

/// The PCIe root that the device at a PCI address is below, such as "pci0000:3a", as sysfs has it.
/// @return "" if `address` is not an address, or there is no such device.
[[nodiscard]] std::string pci_root(const std::string& address,
                                   const std::string& devices = "/sys/bus/pci/devices");

}  // namespace gradwire::host
