// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What each lane published last, by group, read once for all parts of a status. The control thread
/// reads it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "command/messages.h"
#include "control/lanes/lane_reports.h"
#include "control/state.h"

namespace gradwire::control {

/// By lane and group handle.
using Published = std::vector<std::unordered_map<std::uint64_t, command::PublishedStatus>>;

[[nodiscard]] inline Published read_published(const LaneReports& reports, std::uint8_t lanes) {
  Published out(lanes);
  for (std::uint8_t lane = 0; lane < lanes; ++lane) {
    for (const command::PublishedStatus& one : reports.published(lane)) {
      out[lane].emplace(one.group_handle, one);
    }
  }
  return out;
}

/// An empty one if the lane has published nothing of the group.
[[nodiscard]] inline const command::PublishedStatus& published_of(const Published& published,
                                                                  const Group& group,
                                                                  std::uint8_t lane) {
  static const command::PublishedStatus nothing{};
  const auto found = published[lane].find(group.handle);
  return found == published[lane].end() ? nothing : found->second;
}

}  // namespace gradwire::control
