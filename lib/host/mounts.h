// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is mounted on a host, as /proc/mounts has it. Any thread; reads a file, allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/machine.h"

namespace gradwire::host {

struct Mount {
  std::string folder;
  std::string type;
  std::vector<std::string> options;

  [[nodiscard]] bool has(const std::string& option) const;
  /// Bytes of the option `size`; nothing if it has none.
  [[nodiscard]] std::optional<std::int64_t> size() const;
};

/// In the order of mounting; none if nothing is known of them.
[[nodiscard]] std::vector<Mount> mounts_of(const Machine& machine);

/// Where the folder is, or would be; nullptr if nothing is known of mounts.
[[nodiscard]] const Mount* mount_of(const std::vector<Mount>& mounts, const std::string& folder);

}  // namespace gradwire::host
