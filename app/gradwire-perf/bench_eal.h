// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Shared by the transports with their own ports: the process's EAL, and memory in hugepages. One
/// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "options.h"
#include "port/port.h"

namespace gradwire::perf {

/// Gradient memory in hugepages of this process.
class HugeMemory {
 public:
  HugeMemory() = default;
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  /// Once. @return kResourceExhausted if too few are reserved.
  [[nodiscard]] Result<std::byte*> allocate(std::uint64_t bytes);

 private:
  void* address_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// The settings of a port that every transport uses, from options that were checked.
[[nodiscard]] port::PortConfig port_config(const PortOption& option, const EmbeddedOptions& wanted);

/// The EAL's arguments: the user's, and a file prefix of this process.
[[nodiscard]] Result<std::vector<std::string>> bench_eal_arguments(
    const std::vector<std::string>& from_user);

/// Once per process. @param lanes  lcores that are needed.
[[nodiscard]] Result<void> start_bench_eal(std::vector<std::string> arguments, unsigned lanes);

/// Ends the process, without exit handlers if the EAL has run (port/eal.h).
/// @return whether the EAL runs; its files are removed then.
bool leave_bench_eal() noexcept;

}  // namespace gradwire::perf
