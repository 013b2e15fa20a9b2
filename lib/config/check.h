// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What no single value can tell: keys that must fit each other. Private to lib/config. Control
/// thread; allocates.
#pragma once

#include <string>
#include <vector>

#include "config/daemon_config.h"

namespace gradwire::config {

struct Conflict {
  std::string key;  ///< "section.key" or "section.N.key": whose place the message takes
  std::string message;
};

/// Every value is in its bounds, and `timeouts.silence_ms` is not kAuto.
[[nodiscard]] std::vector<Conflict> find_conflicts(const DaemonConfig& config);

/// Those of [security].
void check_security(const DaemonConfig& config, std::vector<Conflict>& found);

}  // namespace gradwire::config
