// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Looks now and then for whom each group's ops wait, and adds it to the group's LateRanks. A wait
/// counts if the rank itself is late: its processes have not posted the op, or it is silent. The
/// time is sampled: what is found at a look holds for all the time since the look before. The
/// control thread owns it.
#pragma once

#include <cstdint>

#include "control/groups/group_table.h"
#include "control/lanes/lane_reports.h"
#include "control/work_meter.h"

namespace gradwire::control {

class LateWatch {
 public:
  /// All outlive the object.
  LateWatch(const LaneReports& reports, GroupTable& groups, WorkMeter& work) noexcept
      : reports_(reports), groups_(groups), work_(work) {}

  /// Call it every round. It looks each 0.1 s, at 64 groups that wait at most, in turn.
  void run(TimeNs now);

 private:
  static constexpr TimeNs kSpacingNs = 100'000'000;
  static constexpr TimeNs kMostNs = 1'000'000'000;  ///< that one look stands for
  /// Ops wait so long for each other without anybody being late.
  static constexpr TimeNs kNotableNs = 10'000'000;
  static constexpr std::size_t kGroupsAtOnce = 64;
  static constexpr std::size_t kGroupsPerStep = 16;  ///< that wait for nobody

  static void look_at(Group& group, const command::PublishedStatus& published, TimeNs waited,
                      TimeNs now);

  const LaneReports& reports_;
  GroupTable& groups_;
  WorkMeter& work_;
  TimeNs next_look_ = 0;
  TimeNs looked_at_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace gradwire::control
