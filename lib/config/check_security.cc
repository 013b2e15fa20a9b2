// SPDX-License-Identifier: BSD-3-Clause
// Which keys of [security] fit each other, and what else there is.
#include <fmt/format.h>

#include <utility>

#include "config/check.h"

namespace gradwire::config {
namespace {

/// How much the mode protects.
int level_of(const std::string& mode) { return mode == "off" ? 0 : mode == "authenticate" ? 1 : 2; }

}  // namespace

void check_security(const DaemonConfig& config, std::vector<Conflict>& found) {
  const SecuritySection& keys = config.security;
  for (const auto& [name, mode] :
       {std::pair("security.mode", &keys.mode), std::pair("security.minimum", &keys.minimum)}) {
    if (level_of(*mode) == 0) continue;
    if (keys.key_file.empty()) {
      found.push_back({name,
                       "needs a key: make one by gradwire key make, give each host the same file, "
                       "and name it in security.key_file"});
    }
    if (config.gpu.staging == "gpudirect") {
      found.push_back({name,
                       "does not go with gpu.staging = gpudirect, because a payload that stays in "
                       "GPU memory passes no CPU that could seal it: set gpu.staging to copy or "
                       "mapped"});
    }
  }
  if (level_of(keys.mode) < level_of(keys.minimum)) {
    found.push_back(
        {"security.mode",
         fmt::format("is below security.minimum = {}, so each job that does not ask for "
                     "more would be refused: set security.mode to {} too",
                     keys.minimum, keys.minimum)});
  }
  if (keys.second_key_file.empty()) return;
  if (keys.key_file.empty()) {
    found.push_back({"security.second_key_file",
                     "is for a second key, and security.key_file names no first one"});
  } else if (keys.second_key_file == keys.key_file) {
    found.push_back({"security.second_key_file",
                     "is the same file as security.key_file: leave it out, or name another key"});
  }
}

}  // namespace gradwire::config
