// SPDX-License-Identifier: BSD-3-Clause
// What happens to a group after the lanes got it: abort, leave, close; and how the daemon stops.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/clean_text.h"
#include "control/bodies.h"
#include "control/manager.h"

namespace gradwire::control {
namespace {

/// A client's text, which other ranks, logs and terminals will show.
std::string printable(std::string text) {
  clean_text(text);
  return text;
}

}  // namespace

std::string key_text(const GroupKey& key) {
  return fmt::format("group {:016x} epoch {}", key.group_id, key.epoch);
}

const char* name_of(GroupState state) noexcept {
  switch (state) {
    case GroupState::kGathering:
      return "gathering";
    case GroupState::kResolving:
      return "resolving";
    case GroupState::kForming:
      return "forming";
    case GroupState::kFormed:
      return "formed";
    case GroupState::kClosing:
      return "closing";
    case GroupState::kClosed:
      return "closed";
  }
  return "group state?";
}

Result<Group*> Manager::group_of(Client& client, std::uint64_t handle) {
  Group* group = group_by_handle(handle);
  Member* member = group == nullptr ? nullptr : group->member_of(client.id);
  // A handle is valid from the join reply until the member leaves.
  if (member == nullptr || member->left || member->join_reply) {
    return fail(ErrorCode::kNotFound,
                fmt::format("group handle {} does not name a group that this client is a member of",
                            handle));
  }
  return group;
}

void Manager::leave(const PendingReply& to, Client& client, std::span<const std::byte> body,
                    TimeNs now) {
  const auto wanted = ipc::body_as<ipc::GroupRequest>(body);
  if (!wanted) return reply_error(to, wrong_size<ipc::GroupRequest>(to.type, body));
  const auto found = group_of(client, wanted->group_handle);
  if (!found) return reply_error(to, found.error());
  Group& group = **found;
  Member& member = *group.member_of(client.id);
  member.left = true;
  if (group.state == GroupState::kClosed) {
    reply(to, {});
    return forget_if_left(group.handle);
  }
  if (to.request_id != ipc::kNoReply) member.leave_reply = to;
  if (group.state == GroupState::kClosing) return;
  // One without members sums for the others until they leave, and then its lanes do.
  if (group.folds_only() && !group.reason.is_set()) return ask_to_leave(group);
  // After an abort there is no need to wait for the other members, because no op can run any more.
  if (group.all_left() || group.reason.is_set()) return begin_close(group, now);
  group.leave_deadline = std::min(group.leave_deadline, now + options_.limits.leave_grace_ns);
  if (group.state != GroupState::kFormed) return;
  command::Request left;
  left.type = command::RequestType::kMemberLeft;
  left.group_handle = group.handle;
  left.client_id = client.id;
  request(0, left);
}

void Manager::abort(const PendingReply& to, Client& client, std::span<const std::byte> body,
                    TimeNs now) {
  const auto wanted = ipc::body_as<ipc::AbortRequest>(body);
  if (!wanted) return reply_error(to, wrong_size<ipc::AbortRequest>(to.type, body));
  const auto found = group_of(client, wanted->group_handle);
  if (!found) return reply_error(to, found.error());
  Group& group = **found;
  const Member& member = *group.member_of(client.id);
  const auto index = static_cast<std::uint32_t>(&member - group.members.data());
  std::string detail =
      group.folds_only() ? fmt::format("its client (pid {})", member.pid)
                         : fmt::format("process {} (pid {})",
                                       group.processes().process_of(group.rank, index), member.pid);
  if (const std::string text = printable(ipc::text_of(wanted->text)); !text.empty()) {
    detail += ": " + text;
  }
  // The client hears of the abort before the answer, so that it knows of it when its call returns.
  abort_group(group, reason_here(group, AbortCode::kClientAbort, detail), -1, now);
  reply(to, {});
}

AbortReason Manager::reason_here(const Group& group, AbortCode code,
                                 const std::string& detail) const {
  AbortReason reason;
  reason.code = code;
  reason.culprit_rank = group.rank;
  reason.reporter_rank = group.rank;
  ipc::copy_text(reason.detail, detail);
  return reason;
}

void Manager::abort_group(Group& group, const AbortReason& reason, int from_lane, TimeNs now) {
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
      request(lane, abort);
    }
  }
  ipc::GroupAbortedEvent event;
  event.group_handle = group.handle;
  ipc::copy_text(event.text, text);
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(ipc::MessageType::kGroupAborted);
  for (const Member& member : group.members) {
    // A member that still waits for its join reply gets the error as that reply. One that has left
    // and waits for the close is told too, since its ops may not have finished.
    const Client* client = client_by_id(member.client_id);
    if (client == nullptr || client->retired || (member.left && !member.leave_reply)) continue;
    sink_.send(client->connection, header, ipc::bytes_of(event), {});
  }
  // Members that have left wait for the close, and now only for that.
  group.leave_deadline = kNever;
  const auto leaving = [](const Member& member) { return member.left; };
  if (group.state == GroupState::kFormed && std::ranges::any_of(group.members, leaving)) {
    begin_close(group, now);
  }
}

void Manager::begin_close(Group& group, TimeNs now) {
  if (group.state >= GroupState::kClosing || group.plan == nullptr) return;
  set_state(group, GroupState::kClosing, now);
  ask_to_leave(group);
}

void Manager::ask_to_leave(Group& group) {
  if (group.leave_asked) return;
  group.leave_asked = true;
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    command::Request leave;
    leave.type = command::RequestType::kLeaveGroup;
    leave.group_handle = group.handle;
    request(lane, leave);
  }
}

void Manager::on_lane_closed(Group& group, std::uint8_t lane, TimeNs now) {
  if (!group.leave_asked || group.state == GroupState::kClosed) return;
  group.state = GroupState::kClosing;
  group.lanes_closed.set(lane);
  if (group.lanes_closed.count() < group.wanted.lanes) return;
  lanes_.destroy_plan(group.plan);
  group.plan = nullptr;
  set_state(group, GroupState::kClosed, now);
  spdlog::info("group {:016x} epoch {} closed", group.key.group_id, group.key.epoch);
  for (Member& member : group.members) {
    if (member.leave_reply) reply(*member.leave_reply, {});
    member.leave_reply.reset();
  }
  forget_if_left(group.handle);
}

void Manager::check_leave_deadline(Group& group, TimeNs now) {
  if (group.state != GroupState::kFormed || now < group.leave_deadline) return;
  std::string text;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = group.members[i];
    text += fmt::format("{}member {} (pid {}) {}", text.empty() ? "" : ", ", i, member.pid,
                        member.left ? "left" : "did not leave");
  }
  abort_group(group, reason_here(group, AbortCode::kPeerLeft, text), -1, now);
}

void Manager::client_gone(Group& group, Member& member, AbortCode code, const std::string& why,
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
    abort_group(group, reason, -1, now);
    // At once, even if other members are alive, because nothing may refer to the dead client's
    // memory any more.
    begin_close(group, now);
  }
  if (group.state == GroupState::kClosed) forget_if_left(group.handle);
}

void Manager::forget_if_left(std::uint64_t handle) {
  const Group* group = group_by_handle(handle);
  if (group != nullptr && group->plan == nullptr && group->all_left()) forget_group(handle);
}

void Manager::forget_group(std::uint64_t handle) {
  const auto found = groups_.find(handle);
  const Group& group = *found->second;
  for (const Member& member : group.members) {
    if (Client* client = member.joined() ? client_by_id(member.client_id) : nullptr) {
      --client->groups;
    }
  }
  const auto of_user = groups_of_user_.find(group.uid);
  if (--of_user->second == 0) groups_of_user_.erase(of_user);
  handles_.erase({group.key.group_id, group.key.epoch});
  groups_.erase(found);
}

void Manager::begin_stop(TimeNs now) {
  if (stop_ != StopState::kRunning) return;
  spdlog::info("stopping: {} groups and {} clients have {} ms to leave", groups_.size(),
               clients_.size(), options_.limits.stop_drain_ns / 1'000'000);
  stop_ = StopState::kDraining;
  stop_deadline_ = now + options_.limits.stop_drain_ns;
  for (const std::uint64_t handle : group_handles()) {
    Group* group = group_by_handle(handle);
    if (group == nullptr || group->state > GroupState::kForming) continue;
    const AbortReason reason = reason_here(*group, AbortCode::kDaemonStopped, "");
    fail_formation(*group, {ErrorCode::kUnavailable, describe(reason)}, reason, now);
  }
}

void Manager::poll_stop(TimeNs now) {
  if (stop_ != StopState::kDraining) return;
  if (now < stop_deadline_ && !groups_.empty()) return;
  stop_ = StopState::kClosing;
  stop_deadline_ = now + options_.limits.stop_close_ns;
  for (const std::uint64_t handle : group_handles()) {
    Group* group = group_by_handle(handle);
    if (group == nullptr || group->state != GroupState::kFormed) continue;
    abort_group(*group, reason_here(*group, AbortCode::kDaemonStopped, ""), -1, now);
    begin_close(*group, now);
  }
  std::vector<Client*> clients;
  for (const auto& [id, client] : clients_) clients.push_back(client.get());
  for (Client* client : clients) cut_off(*client, "is disconnected because the daemon stops", now);
}

bool Manager::stopped(TimeNs now) const noexcept {
  if (stop_ != StopState::kClosing) return false;
  return (clients_.empty() && groups_.empty()) || now >= stop_deadline_;
}

std::string Manager::leftovers() const {
  std::string text;
  for (const auto& [handle, group] : groups_) {
    text += fmt::format("{}group {:016x} epoch {} is {} (closed on {} of {} lanes)",
                        text.empty() ? "" : "; ", group->key.group_id, group->key.epoch,
                        name_of(group->state), group->lanes_closed.count(), group->wanted.lanes);
  }
  for (const auto& [id, client] : clients_) {
    text += fmt::format("{}client {} (pid {}) has {} memory regions", text.empty() ? "" : "; ", id,
                        client->peer.pid, client->memories.size());
  }
  return text;
}

void Manager::set_state(Group& group, GroupState state, TimeNs now) const {
  group.state = state;
  group.since = now;
}

Group* Manager::group_by_handle(std::uint64_t handle) noexcept {
  const auto found = groups_.find(handle);
  return found == groups_.end() ? nullptr : found->second.get();
}

std::vector<std::uint64_t> Manager::group_handles() const {
  std::vector<std::uint64_t> handles;
  handles.reserve(groups_.size());
  for (const auto& [handle, group] : groups_) handles.push_back(handle);
  return handles;
}

}  // namespace gradwire::control
