// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How groups end.
///
/// - A group ends when all its members have left. Once one has left, the others have
/// Limits::leave_grace_ns to leave too; then the group aborts with kPeerLeft.
/// - When a shard aborts, or a member asks for it, every lane aborts, every member gets a
/// kGroupAborted event, and the group stays on the lanes until a member leaves, so that commands
/// that members still post are answered with the reason.
/// - When a client dies, its groups abort and leave the lanes at once; a closed group is kept until
/// its living members leave.
/// - A client's death may abort hundreds of groups of 64 members each, so a round tells
/// kToldPerRound members, and the next ones tell the rest. Who leaves, or asked for the abort, is
/// told before its answer.
/// - Formation that fails leaves nothing behind: members get an error and no handle.
///
/// The control thread owns it; time is a parameter; it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "base/abort_reason.h"
#include "base/result.h"
#include "control/clients/client_table.h"
#include "control/groups/group_table.h"
#include "control/lanes/lane_control.h"
#include "control/lanes/lane_requests.h"
#include "control/options.h"
#include "control/replies.h"
#include "control/work_meter.h"

namespace gradwire::control {

/// A reason whose culprit is this rank.
[[nodiscard]] AbortReason reason_here(const Group& group, AbortCode code,
                                      const std::string& detail);

class GroupEnds {
 public:
  /// All of them outlive it.
  GroupEnds(const Limits& limits, LaneControl& lanes, GroupTable& groups,
            const ClientTable& clients, LaneRequests& requests, Replies& replies, WorkMeter& work);
  /// Destroys the plans that lanes still have; the lanes must be stopped before.
  ~GroupEnds();
  GroupEnds(const GroupEnds&) = delete;
  GroupEnds& operator=(const GroupEnds&) = delete;

  /// How many members a round tells of aborts.
  static constexpr std::size_t kToldPerRound = 512;
  /// Tells those of earlier rounds.
  void begin_round();

  // Requests of members.
  void leave(const PendingReply& to, Client& client, std::span<const std::byte> body, TimeNs now);
  void abort(const PendingReply& to, Client& client, std::span<const std::byte> body, TimeNs now);

  /// No lane is told that knows already.
  static constexpr int kNoLane = -1;
  /// @param from_lane  the lane that knows already, or kNoLane.
  void abort(Group& group, const AbortReason& reason, int from_lane, TimeNs now);
  /// Answers all members with the error, and closes the group on the lanes.
  void fail_formation(Group& group, const Error& error, const AbortReason& reason, TimeNs now);
  /// Tells the lanes to leave, unless they were told.
  void begin_close(Group& group, TimeNs now);
  void on_lane_closed(Group& group, std::uint8_t lane, TimeNs now);
  /// Aborts the group if members have not left in time.
  void check_leave_deadline(Group& group, TimeNs now);
  /// @param why  continues the sentence "the client ...".
  void on_client_gone(Group& group, Member& member, AbortCode code, const std::string& why,
                      TimeNs now);

 private:
  /// The group of that handle, if the client is a member that has not left.
  [[nodiscard]] Result<Group*> group_of(const Client& client, std::uint64_t handle);
  void ask_to_leave(Group& group);
  void forget_if_left(std::uint64_t handle);
  /// Tells as many members of aborts as this round may still tell.
  void tell_some();
  /// Tells the member if the group was aborted, once.
  void tell(const Group& group, Member& member);
  void tell(const ipc::GroupAbortedEvent& event, Member& member);

  const Limits& limits_;
  LaneControl& lanes_;
  GroupTable& groups_;
  const ClientTable& clients_;
  LaneRequests& requests_;
  Replies& replies_;
  WorkMeter& work_;
  std::deque<std::uint64_t> untold_;  ///< groups that aborted, of which not all members were told
  std::size_t told_ = 0;              ///< members in this round
};

}  // namespace gradwire::control
