// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Starts DPDK's EAL for the daemon and checks that what it gives is what the daemon needs. Main
/// thread, once per process.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gradwire::gradwired {

/// Set to 1 it lets the daemon run without hugepages: for tests of logic alone.
inline constexpr const char* kNoHugeVariable = "GRADWIRE_TEST_NO_HUGE";

/// @return what rte_eal_init() gets: the program, `given`, and, where they are not given, a file
/// prefix made of the daemon's name and the wish that hugepages are free again when it ends.
/// kInvalidArgument where `given` asks for what a daemon cannot be.
[[nodiscard]] Result<std::vector<std::string>> make_eal_arguments(
    const std::string& program, const std::vector<std::string>& given,
    const std::string& daemon_name);

/// Calls rte_eal_cleanup() when it goes.
class Eal {
 public:
  /// Primary process, hugepages, at least two lcores; else an error that says what to pass.
  [[nodiscard]] static Result<Eal> start(std::vector<std::string> arguments);
  ~Eal();
  Eal(Eal&& other) noexcept;
  Eal& operator=(Eal&&) = delete;
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;

 private:
  Eal() = default;
  bool started_ = true;
  // The EAL keeps pointers into its arguments.
  std::vector<std::string> arguments_;
};

}  // namespace gradwire::gradwired
