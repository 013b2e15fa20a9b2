// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// By which paths a group's packets will go, and which of them answer. Paths to neighbors are asked
/// for at once. Those to other ranks are asked for in turn: users take turns, then the groups of a
/// user, and each port has a bound of open questions. A path that nobody answers is left out if
/// another leads to its rank.
///
/// The control thread owns it; time is a parameter; it allocates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/rate_meter.h"
#include "base/result.h"
#include "control/groups/group_ends.h"
#include "control/groups/group_table.h"
#include "control/lanes/lane_control.h"
#include "control/work_meter.h"

namespace gradwire::control {

class PathQuestions {
 public:
  /// Handles of groups that resolve, by user.
  using Users = std::map<uid_t, std::vector<std::uint64_t>>;

  /// All of them outlive it.
  PathQuestions(LaneControl& lanes, GroupTable& groups, GroupEnds& ends, WorkMeter& work)
      : lanes_(lanes), groups_(groups), ends_(ends), work_(work) {}

  /// From now on the group asks for the paths that it wants.
  void begin(Group& group, TimeNs now);
  /// For all groups that resolve: what is known by now, and questions in turn. Groups that cannot
  /// be formed end in here. @return the others, and some of those.
  [[nodiscard]] Users run(TimeNs now);
  /// Whether all paths that the group needs are known.
  [[nodiscard]] bool is_resolved(Group& group, TimeNs now);
  /// Ends the group.
  void unreachable(Group& group, const Error& error, TimeNs now);

 private:
  void ask_in_turn(const Users& users, TimeNs now);
  /// @param looks  so many of the paths that wait to be asked are looked at.
  void look(Group& group, std::size_t looks, TimeNs now);
  /// @return whether the group had one to ask and there was room for it.
  [[nodiscard]] bool ask_one(Group& group, std::size_t share, TimeNs now);
  /// Takes paths that nobody answers out of the plan, if another leads to each rank.
  [[nodiscard]] static bool leave_silent_rails(Group& group);
  /// @return kPending if it was asked for and may still answer, kFailed if nobody asks for it now,
  /// or an error if it can never work.
  [[nodiscard]] Result<ResolveState> resolve(Group& group, NeighborPath& path, Asking asking,
                                             TimeNs now);

  LaneControl& lanes_;
  GroupTable& groups_;
  GroupEnds& ends_;
  WorkMeter& work_;
  std::map<uid_t, std::uint64_t> asked_of_user_;  ///< as Questions::turn, of users that resolve
  std::map<uid_t, RateMeter> looks_of_user_;      ///< likewise
  std::uint64_t questions_ = 0;
};

}  // namespace gradwire::control
