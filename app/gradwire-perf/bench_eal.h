// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What transports with ports of their own share: the EAL of the process, and memory of hugepages.
/// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "options.h"
#include "port/port.h"

namespace gradwire::perf {

/// Gradient memory: hugepages of this process.
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

/// What every transport takes of a port's options, which were checked.
[[nodiscard]] port::PortConfig port_config(const PortOption& option, const EmbeddedOptions& wanted);

/// What the EAL is given: what the user said, and a file prefix of this process's own.
[[nodiscard]] Result<std::vector<std::string>> bench_eal_arguments(
    const std::vector<std::string>& from_user);

/// Once per process. @param lanes  lcores that are needed.
[[nodiscard]] Result<void> start_bench_eal(std::vector<std::string> arguments, unsigned lanes);

/// How the process has to end: without exit handlers, once the EAL ran (port/eal.h).
/// @return whether the EAL runs; its files are removed then.
bool leave_bench_eal() noexcept;

}  // namespace gradwire::perf
