// SPDX-License-Identifier: BSD-3-Clause
// Formation: members gather, neighbors' addresses are resolved, lanes send hellos, members get
// their handles. All of it together has one time limit, and an error names what is missing.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "control/formation/folding.h"
#include "control/manager.h"
#include "control/plans/plan_request.h"

namespace gradwire::control {
namespace {

/// How much longer a shard waits than the manager, so that the manager gives up first: it can name
/// what is missing.
constexpr TimeNs kShardGraceNs = 1'000'000'000;

// A table's entry is checked in about a microsecond; a plan of it takes twice as long.
constexpr std::uint64_t kPlanSteps = 2;
constexpr std::uint64_t kProcessesPerStep = 64;
/// Of groups whose time for forming is over, in one round; the last may exceed it.
constexpr std::uint64_t kEndStepsPerRound = 4'096;

std::string seconds_text(TimeNs ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

Result<void> check_epoch(const Epochs& epochs, uid_t uid, const GroupKey& key) {
  const auto last = epochs.last(uid, key.group_id);
  if (!last || key.epoch > *last) return {};
  return fail(
      ErrorCode::kBusy,
      fmt::format("{}: this daemon has begun to form epoch {} of the group already. Packets "
                  "of that time may still be on their way, so the epoch must be higher each "
                  "time that a group is formed: use {} or more",
                  key_text(key), *last, std::uint64_t{*last} + 1));
}

}  // namespace

void Manager::join(const PendingReply& to, Client& client, const ipc::Message& message,
                   TimeNs now) {
  if (stop_ != StopState::kRunning) {
    return reply_error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  const auto parsed = ipc::parse_join(message);
  if (!parsed) return reply_error(to, parsed.error());
  const auto bound = formation_bound(parsed->request);
  if (!bound) return reply_error(to, bound.error());
  steps_ += parsed->table.size() + parsed->ranks.size() / kProcessesPerStep;
  const auto found = group_to_join(*parsed, client, now);
  if (!found) return reply_error(to, found.error());
  Group& group = **found;
  Member& member = group.members[parsed->request.member];
  member.client_id = client.id;
  ++client.groups;
  member.pid = client.peer.pid;
  member.join_reply = to;
  group.formation_deadline = std::min(group.formation_deadline, now + *bound);
  if (group.all_joined()) begin_resolving(group, now);
}

Result<TimeNs> Manager::formation_bound(const ipc::JoinRequest& request) const {
  if (request.timeout_ms == 0) return options_.limits.formation_default_ns;
  const TimeNs bound = static_cast<TimeNs>(request.timeout_ms) * 1'000'000;
  if (bound > options_.limits.formation_max_ns) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a timeout of {} ms was asked for: it must be at most {}",
                            request.timeout_ms, options_.limits.formation_max_ns / 1'000'000));
  }
  return bound;
}

Result<Group*> Manager::group_to_join(const ipc::JoinBody& body, const Client& client, TimeNs now) {
  // First what costs nothing: a table may have 1,024 ranks, and anybody may send as many joins as
  // the daemon answers.
  if (client.groups >= options_.limits.groups_per_client) {
    return fail(
        ErrorCode::kResourceExhausted,
        fmt::format("the client is already a member of {} groups, and limits.client_groups = {}: "
                    "leave one, or raise limits.client_groups in the daemon's configuration",
                    client.groups, options_.limits.groups_per_client));
  }
  const GroupKey key = {body.request.group_id, body.request.epoch};
  if (const auto exists = handles_.find({key.group_id, key.epoch}); exists != handles_.end()) {
    Group& group = *group_by_handle(exists->second);
    if (auto ok = check_member(group, body, client); !ok) return tl::unexpected(ok.error());
    return &group;
  }
  if (auto rises = check_epoch(epochs_, client.peer.uid, key); !rises) {
    return tl::unexpected(rises.error());
  }
  if (drain_ != DrainState::kNone) {
    return fail(ErrorCode::kUnavailable, "the daemon is draining and forms no new group");
  }
  if (auto room = room_for_group(client.peer.uid); !room) return tl::unexpected(room.error());
  // Bad tables, and ranks that have no common network, are refused before anybody waits.
  steps_ += kPlanSteps * body.table.size();
  auto wanted = plan_request(body, info_for(client.peer.uid), lanes_.addresses());
  if (!wanted) return tl::unexpected(wanted.error());
  auto group = std::make_unique<Group>();
  group->key = key;
  group->rank = body.request.rank;
  group->uid = client.peer.uid;
  group->table = body.table;
  group->ranks = body.ranks;
  group->wanted = std::move(*wanted);
  group->members.resize(clients_of(body.request));
  group->since = group->formation_start = now;
  group->formation_deadline = kNever;
  count_idle_networks(*group);
  group->handle = next_group_handle_++;
  handles_[{key.group_id, key.epoch}] = group->handle;
  ++groups_of_user_[group->uid];
  Group* made = groups_.emplace(group->handle, std::move(group)).first->second.get();
  remember_name(*made);
  return made;
}

Result<void> Manager::room_for_group(uid_t uid) const {
  const Limits& limits = options_.limits;
  if (groups_.size() >= limits.groups) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the daemon already has {} groups, and limits.groups = {}",
                            groups_.size(), limits.groups));
  }
  const auto found = groups_of_user_.find(uid);
  const std::uint32_t of_user = found == groups_of_user_.end() ? 0 : found->second;
  if (of_user >= limits.groups_per_user) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("user {} already has {} groups, and limits.user_groups = {}: leave "
                            "one, or raise limits.user_groups in the daemon's configuration",
                            uid, of_user, limits.groups_per_user));
  }
  return {};
}

Result<void> Manager::check_member(const Group& group, const ipc::JoinBody& body,
                                   const Client& client) const {
  if (group.uid != client.peer.uid) {
    return fail(ErrorCode::kPermission,
                fmt::format("{} belongs to another user on this daemon", key_text(group.key)));
  }
  if (group.state != GroupState::kGathering) {
    return fail(ErrorCode::kBusy,
                fmt::format("{} already exists on this daemon (it is {}): use the next epoch, or "
                            "wait until all its members have left",
                            key_text(group.key), name_of(group.state)));
  }
  if (body.request.rank != group.rank || body.request.member >= body.request.member_count ||
      body.request.member >= group.members.size() || body.ranks != group.ranks) {
    // Names what is wrong with it.
    if (auto joins = check_join(body, info_for(client.peer.uid)); !joins) {
      return tl::unexpected(joins.error());
    }
  }
  if (body.request.folding_ranks != group.wanted.folding_ranks) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("member {} joined with {} ranks that have no members, the others on this "
                    "daemon with {}",
                    body.request.member, body.request.folding_ranks, group.wanted.folding_ranks));
  }
  if (clients_of(body.request) != group.members.size()) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("member {} joined with {} members per rank, the others on this daemon with {}",
                    body.request.member, body.request.member_count, group.members.size()));
  }
  if (body.request.member >= group.members.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("member {} in a rank of {} members: members count from 0",
                            body.request.member, group.members.size()));
  }
  const auto& ours = group.ranks;
  if (const auto [mine, theirs] = std::ranges::mismatch(ours, body.ranks);
      mine != ours.end() || theirs != body.ranks.end()) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("member {} has {} processes and those that joined before have {}; from "
                    "process {} on they are at other ranks",
                    body.request.member, body.ranks.size(), ours.size(), mine - ours.begin()));
  }
  if (const std::string text = difference(group.table, body.table); !text.empty()) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format(
            "the rank table of member {} differs from that of the members that joined before: {}",
            body.request.member, text));
  }
  const Member& member = group.members[body.request.member];
  if (member.joined()) {
    return fail(ErrorCode::kBusy, fmt::format("member {} has already joined (pid {})",
                                              body.request.member, member.pid));
  }
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (group.members[i].joined() && group.members[i].client_id == client.id) {
      return fail(ErrorCode::kBusy, fmt::format("this connection has already joined as member {}: "
                                                "member {} needs a connection of its own",
                                                i, body.request.member));
    }
  }
  return {};
}

void Manager::unreachable(Group& group, const Error& error, TimeNs now) {
  fail_formation(group, error, reason_here(group, AbortCode::kFormation, error.message), now);
}

void Manager::start_lanes(Group& group, TimeNs now) {
  // One of a higher epoch may have begun while the members of this one came.
  if (auto rises = check_epoch(epochs_, group.uid, group.key); !rises) {
    return unreachable(group, rises.error(), now);
  }
  epochs_.begin(group.uid, group.key.group_id, group.key.epoch);
  group.wanted.formation_ns = std::max<TimeNs>(group.formation_deadline - now, 0) + kShardGraceNs;
  const auto plan = lanes_.create_plan(group.wanted);
  if (!plan) {
    return fail_formation(group, plan.error(),
                          reason_here(group, AbortCode::kFormation, plan.error().message), now);
  }
  group.plan = *plan;
  group.plan->group_handle = group.handle;
  group.plan->member_clients.clear();
  for (const Member& member : group.members) {
    group.plan->member_clients.push_back(member.client_id);
  }
  set_state(group, GroupState::kForming, now);
  group.questions = {};
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    command::Request add;
    add.type = command::RequestType::kAddGroup;
    add.group_handle = group.handle;
    add.plan = group.plan;
    request(lane, add);
  }
}

void Manager::on_lane_formed(Group& group, std::uint8_t lane, TimeNs now) {
  if (group.state != GroupState::kForming || lane >= group.wanted.lanes) return;
  group.lanes_formed.set(lane);
  if (group.lanes_formed.count() < group.wanted.lanes) return;
  set_state(group, GroupState::kFormed, now);
  spdlog::info(
      "{} formed: rank {} of {}, {} members, {} lanes, payload {}, direct ops up to {} KiB, in two "
      "steps up to {} KiB, summed by {} of {} ranks, gathered up to {} KiB",
      key_text(group.key), group.rank, group.all_ranks(),
      group.folds_only() ? 0 : group.members.size(), group.wanted.lanes, group.wanted.payload_bytes,
      group.wanted.direct_bytes >> 10, group.wanted.two_step_op_bytes() >> 10,
      group.wanted.two_step_owners(), group.all_ranks(), group.wanted.gathered_bytes >> 10);
  if (!group.wanted.why_not_direct.empty()) {
    spdlog::warn("{}: no op is direct, though rank 0 has transport.direct_kib = {}: {}",
                 key_text(group.key), group.table[0].direct_kib, group.wanted.why_not_direct);
  }
  if (group.all_ranks() > warned_ranks_) {
    const std::string text = short_receive_ring(group);
    if (!text.empty()) {
      spdlog::warn("{}", text);
      warned_ranks_ = group.all_ranks();
    }
  }
  ipc::JoinReply body;
  body.group_handle = group.handle;
  body.payload_bytes = group.wanted.payload_bytes;
  body.lanes = group.wanted.lanes;
  for (Member& member : group.members) {
    if (member.join_reply) reply(*member.join_reply, ipc::bytes_of(body));
    member.join_reply.reset();
  }
}

void Manager::check_formation_deadline(Group& group, TimeNs now,
                                       std::optional<Published>& published) {
  if (group.state > GroupState::kForming || now < group.formation_deadline) return;
  if (ended_steps_ >= kEndStepsPerRound) {
    has_more_ = true;
    return;
  }
  ended_steps_ += group.table.size();
  charge(group.uid, group.table.size());
  if (!published) {
    steps_ += groups_.size() * lanes_.lanes();
    published = read_lanes();
  }
  steps_ += group.table.size();
  const std::string missing = what_is_missing(group, *published);
  AbortReason reason = reason_here(group, AbortCode::kFormation, missing);
  reason.culprit_rank = late_rank(group, *published);
  reason.duration_ns = static_cast<std::uint64_t>(now - group.formation_start);
  fail_formation(
      group,
      {ErrorCode::kTimedOut, fmt::format("{} was not formed within {}: {}", key_text(group.key),
                                         seconds_text(now - group.formation_start), missing)},
      reason, now);
}

void Manager::fail_formation(Group& group, const Error& error, const AbortReason& reason,
                             TimeNs now) {
  spdlog::warn("{}: {}", key_text(group.key), error.message);
  for (Member& member : group.members) {
    if (member.join_reply) reply_error(*member.join_reply, error);
    member.join_reply.reset();
    member.left = true;
  }
  if (group.state == GroupState::kForming) {
    abort_group(group, reason, -1, now);
    begin_close(group, now);
    return;
  }
  forget_if_left(group.handle);
}

}  // namespace gradwire::control
