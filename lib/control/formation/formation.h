// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Formation: members gather, neighbors' addresses are resolved (PathQuestions), lanes send hellos,
/// members get their handles. All of it together has one time limit, and an error names what is
/// missing. The keys of a group whose mode is not off are made by the worker in between. Groups
/// start in turn, by user, so that a round has a bound.
///
/// The control thread owns it; time is a parameter; it allocates.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "control/drain.h"
#include "control/formation/entries.h"
#include "control/formation/epochs.h"
#include "control/formation/path_questions.h"
#include "control/groups/group_ends.h"
#include "control/groups/group_table.h"
#include "control/keys/daemon_keys.h"
#include "control/lanes/lane_control.h"
#include "control/lanes/lane_reports.h"
#include "control/lanes/lane_requests.h"
#include "control/lanes/published.h"
#include "control/options.h"
#include "control/replies.h"
#include "control/stopping.h"
#include "control/work_meter.h"
#include "ipc/worker.h"

namespace gradwire::control {

class Formation {
 public:
  /// All of them outlive it.
  Formation(const ManagerOptions& options, LaneControl& lanes, const LaneReports& reports,
            GroupTable& groups, GroupEnds& ends, LaneRequests& requests, Replies& replies,
            WorkMeter& work, const Stopping& stopping, const Drain& drain, const Entries& entries,
            DaemonKeys& keys, ipc::Worker& worker);

  void join(const PendingReply& to, Client& client, const ipc::Message& message, TimeNs now);
  void on_lane_formed(Group& group, std::uint8_t lane, TimeNs now);

  // Once in a round.
  /// Resolves, and starts groups that are resolved.
  void run(TimeNs now);
  /// Before the deadlines of a round.
  void begin_deadlines() noexcept { ended_steps_ = 0; }
  /// @param published  read if it is needed, once for all groups of a round.
  void check_deadline(Group& group, TimeNs now, std::optional<Published>& published);

 private:
  [[nodiscard]] Result<Group*> group_to_join(const ipc::JoinBody& join, const Client& client,
                                             TimeNs now);
  [[nodiscard]] Result<void> room_for_group(uid_t uid, bool transfers_alone) const;
  [[nodiscard]] Result<void> check_member(const Group& group, const ipc::JoinBody& join,
                                          const Client& client) const;
  [[nodiscard]] Result<TimeNs> bound_of(const ipc::JoinRequest& request) const;
  void start_in_turn(const PathQuestions::Users& users, TimeNs now);
  /// The group is resolved, or its keys are made.
  void start_lanes(Group& group, TimeNs now);
  void create_plan(Group& group, TimeNs now);
  /// @return null if the job has none.
  [[nodiscard]] Result<JobKeyPtr> job_key_of(const ipc::JoinBody& body, const Client& client) const;
  void make_keys(Group& group, TimeNs now);
  /// @return false if there are none, and the group has ended.
  [[nodiscard]] bool take_keys(Group& group, TimeNs now);

  const ManagerOptions& options_;
  LaneControl& lanes_;
  const LaneReports& reports_;
  GroupTable& groups_;
  GroupEnds& ends_;
  LaneRequests& requests_;
  Replies& replies_;
  WorkMeter& work_;
  const Stopping& stopping_;
  const Drain& drain_;
  const Entries& entries_;
  DaemonKeys& keys_;
  ipc::Worker& worker_;
  Epochs epochs_;
  PathQuestions paths_;
  uid_t last_started_ = 0;          ///< the user whose group was started last
  std::uint64_t ended_steps_ = 0;   ///< of groups that did not form, in this round
  std::uint32_t warned_ranks_ = 0;  ///< of the largest group that has a short receive ring
};

}  // namespace gradwire::control
