// SPDX-License-Identifier: BSD-3-Clause
#include "control/groups/group_ends.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/clean_text.h"
#include "control/bodies.h"

namespace gradwire::control {
namespace {

ipc::GroupAbortedEvent event_of(const Group& group) {
  ipc::GroupAbortedEvent event;
  event.group_handle = group.handle;
  ipc::copy_text(event.text, describe(group.reason));
  return event;
}

/// A client's text, which other ranks, logs and terminals will show.
std::string printable(std::string text) {
  clean_text(text);
  return text;
}

}  // namespace

AbortReason reason_here(const Group& group, AbortCode code, const std::string& detail) {
  AbortReason reason;
  reason.code = code;
  reason.culprit_rank = group.rank;
  reason.reporter_rank = group.rank;
  ipc::copy_text(reason.detail, detail);
  return reason;
}

GroupEnds::GroupEnds(const Limits& limits, LaneControl& lanes, GroupTable& groups,
                     const ClientTable& clients, LaneRequests& requests, Replies& replies,
                     WorkMeter& work)
    : limits_(limits),
      lanes_(lanes),
      groups_(groups),
      clients_(clients),
      requests_(requests),
      replies_(replies),
      work_(work) {}

GroupEnds::~GroupEnds() {
  for (const auto& [handle, group] : groups_.all()) {
    if (group->plan != nullptr) lanes_.destroy_plan(group->plan);
  }
}

Result<Group*> GroupEnds::group_of(const Client& client, std::uint64_t handle) {
  Group* group = groups_.by_handle(handle);
  Member* member = group == nullptr ? nullptr : group->member_of(client.id);
  // A handle is valid from the join reply until the member leaves.
  if (member == nullptr || member->left || member->join_reply) {
    return fail(ErrorCode::kNotFound,
                fmt::format("group handle {} does not name a group that this client is a member of",
                            handle));
  }
  return group;
}

void GroupEnds::leave(const PendingReply& to, Client& client, std::span<const std::byte> body,
                      TimeNs now) {
  const auto wanted = ipc::body_as<ipc::GroupRequest>(body);
  if (!wanted) return replies_.error(to, wrong_size<ipc::GroupRequest>(to.type, body));
  const auto found = group_of(client, wanted->group_handle);
  if (!found) return replies_.error(to, found.error());
  Group& group = **found;
  Member& member = *group.member_of(client.id);
  tell(group, member);
  member.left = true;
  if (group.state == GroupState::kClosed) {
    replies_.send(to, {});
    return forget_if_left(group.handle);
  }
  if (to.request_id != ipc::kNoReply) member.leave_reply = to;
  if (group.state == GroupState::kClosing) return;
  // One without members sums for the others until they leave, and then its lanes do.
  if (group.folds_only() && !group.reason.is_set()) return ask_to_leave(group);
  // After an abort there is no need to wait for the other members, because no op can run any more.
  if (group.all_left() || group.reason.is_set()) return begin_close(group, now);
  group.leave_deadline = std::min(group.leave_deadline, now + limits_.leave_grace_ns);
  if (group.state != GroupState::kFormed) return;
  command::Request left;
  left.type = command::RequestType::kMemberLeft;
  left.group_handle = group.handle;
  left.client_id = client.id;
  requests_.send(LaneRequests::kCommandLane, left);
}

void GroupEnds::abort(const PendingReply& to, Client& client, std::span<const std::byte> body,
                      TimeNs now) {
  const auto wanted = ipc::body_as<ipc::AbortRequest>(body);
  if (!wanted) return replies_.error(to, wrong_size<ipc::AbortRequest>(to.type, body));
  const auto found = group_of(client, wanted->group_handle);
  if (!found) return replies_.error(to, found.error());
  Group& group = **found;
  Member& member = *group.member_of(client.id);
  const auto index = static_cast<std::uint32_t>(&member - group.members.data());
  std::string detail =
      group.folds_only() ? fmt::format("its client (pid {})", member.pid)
                         : fmt::format("process {} (pid {})",
                                       group.processes().process_of(group.rank, index), member.pid);
  if (const std::string text = printable(ipc::text_of(wanted->text)); !text.empty()) {
    detail += ": " + text;
  }
  // The client hears of the abort before the answer, so that it knows of it when its call returns.
  abort(group, reason_here(group, AbortCode::kClientAbort, detail), kNoLane, now);
  tell(group, member);
  replies_.send(to, {});
}

void GroupEnds::abort(Group& group, const AbortReason& reason, int from_lane, TimeNs now) {
  if (group.reason.is_set() || group.state == GroupState::kClosed) return;
  group.reason = reason;
  const std::string text = describe(reason);
  spdlog::warn("group {:016x} epoch {} aborted while {}: {}", group.key.group_id, group.key.epoch,
               name_of(group.state), text);
  if (group.plan != nullptr) {
    for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
      if (lane == from_lane || group.lanes_closed.test(lane)) continue;
      command::Request abort;
      abort.type = command::RequestType::kAbortGroup;
      abort.group_handle = group.handle;
      abort.reason = reason;
      requests_.send(lane, abort);
    }
  }
  untold_.push_back(group.handle);
  tell_some();
  // Members that have left wait for the close, and now only for that.
  group.leave_deadline = kNever;
  const auto leaving = [](const Member& member) { return member.left; };
  if (group.state == GroupState::kFormed && std::ranges::any_of(group.members, leaving)) {
    begin_close(group, now);
  }
}

void GroupEnds::begin_round() {
  told_ = 0;
  tell_some();
}

void GroupEnds::tell_some() {
  while (!untold_.empty()) {
    Group* const group = groups_.by_handle(untold_.front());
    if (group != nullptr) {
      const ipc::GroupAbortedEvent event = event_of(*group);
      for (Member& member : group->members) {
        if (member.told) continue;
        if (told_ >= kToldPerRound) return work_.leave_some();
        tell(event, member);
      }
    }
    untold_.pop_front();
  }
}

void GroupEnds::tell(const Group& group, Member& member) {
  if (group.reason.is_set() && !member.told) tell(event_of(group), member);
}

void GroupEnds::tell(const ipc::GroupAbortedEvent& event, Member& member) {
  member.told = true;
  // A member that still waits for its join reply gets the error as that reply. One that has left
  // and waits for the close is told too, since its ops may not have finished.
  const Client* client = clients_.by_id(member.client_id);
  if (client == nullptr || client->retired || (member.left && !member.leave_reply)) return;
  replies_.event(client->connection, ipc::MessageType::kGroupAborted, ipc::bytes_of(event));
  ++told_;
  work_.add(kSendSteps);
}

void GroupEnds::fail_formation(Group& group, const Error& error, const AbortReason& reason,
                               TimeNs now) {
  spdlog::warn("{}: {}", key_text(group.key), error.message);
  for (Member& member : group.members) {
    if (member.join_reply) {
      replies_.error(*member.join_reply, error);
      work_.add(kSendSteps);
    }
    member.join_reply.reset();
    member.left = true;
  }
  if (group.state == GroupState::kForming) {
    abort(group, reason, kNoLane, now);
    begin_close(group, now);
    return;
  }
  forget_if_left(group.handle);
}

void GroupEnds::begin_close(Group& group, TimeNs now) {
  if (group.state >= GroupState::kClosing || group.plan == nullptr) return;
  group.become(GroupState::kClosing, now);
  ask_to_leave(group);
}

void GroupEnds::ask_to_leave(Group& group) {
  if (group.leave_asked) return;
  group.leave_asked = true;
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    command::Request leave;
    leave.type = command::RequestType::kLeaveGroup;
    leave.group_handle = group.handle;
    requests_.send(lane, leave);
  }
}

void GroupEnds::on_lane_closed(Group& group, std::uint8_t lane, TimeNs now) {
  if (!group.leave_asked || group.state == GroupState::kClosed) return;
  group.state = GroupState::kClosing;
  group.lanes_closed.set(lane);
  if (group.lanes_closed.count() < group.wanted.lanes) return;
  lanes_.destroy_plan(group.plan);
  group.plan = nullptr;
  group.become(GroupState::kClosed, now);
  spdlog::info("group {:016x} epoch {} closed", group.key.group_id, group.key.epoch);
  for (Member& member : group.members) {
    if (member.leave_reply) {
      tell(group, member);
      replies_.send(*member.leave_reply, {});
      work_.add(kSendSteps);
    }
    member.leave_reply.reset();
  }
  forget_if_left(group.handle);
}

void GroupEnds::check_leave_deadline(Group& group, TimeNs now) {
  if (group.state != GroupState::kFormed || now < group.leave_deadline) return;
  std::string text;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = group.members[i];
    text += fmt::format("{}member {} (pid {}) {}", text.empty() ? "" : ", ", i, member.pid,
                        member.left ? "left" : "did not leave");
  }
  abort(group, reason_here(group, AbortCode::kPeerLeft, text), kNoLane, now);
}

void GroupEnds::on_client_gone(Group& group, Member& member, AbortCode code, const std::string& why,
                               TimeNs now) {
  const bool had_left = member.left;
  member.left = true;
  member.join_reply.reset();
  member.leave_reply.reset();
  const std::string detail =
      fmt::format("member {} (pid {}) {}", &member - group.members.data(), member.pid, why);
  const AbortReason reason = reason_here(group, code, detail);
  if (group.state <= GroupState::kForming) {
    return fail_formation(group, {ErrorCode::kAborted, describe(reason)}, reason, now);
  }
  if (group.state == GroupState::kFormed && (!had_left || group.folds_only())) {
    abort(group, reason, kNoLane, now);
    // At once, even if other members are alive, because nothing may refer to the dead client's
    // memory any more.
    begin_close(group, now);
  }
  if (group.state == GroupState::kClosed) forget_if_left(group.handle);
}

void GroupEnds::forget_if_left(std::uint64_t handle) {
  const Group* group = groups_.by_handle(handle);
  if (group == nullptr || group->plan != nullptr || !group->all_left()) return;
  for (const Member& member : group->members) {
    if (Client* client = member.joined() ? clients_.by_id(member.client_id) : nullptr) {
      if (!group->wanted.transfers_alone) --client->groups;
    }
  }
  groups_.remove(handle);
}

}  // namespace gradwire::control
