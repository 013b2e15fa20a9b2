// SPDX-License-Identifier: BSD-3-Clause
#include "eal.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include <string>
#include <vector>

#include "sim/world/pool.h"

namespace gradwire::sim {

Result<void> start_eal(std::uint32_t megabytes) {
  std::vector<std::string> arguments = {
      "gradwire-sim",   "--no-huge",   "-m",         std::to_string(megabytes), "--no-pci",
      "--no-telemetry", "--no-shconf", "--lcores=0", "--log-level=4",
  };
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  if (rte_eal_init(static_cast<int>(pointers.size()), pointers.data()) < 0) {
    return fail(ErrorCode::kSystem, fmt::format("the EAL did not start with {} MiB: {}", megabytes,
                                                rte_strerror(rte_errno)));
  }
  return {};
}

void end_eal() {
  PoolBank::instance().clear();
  rte_eal_cleanup();
}

}  // namespace gradwire::sim
