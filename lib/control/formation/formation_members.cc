// SPDX-License-Identifier: BSD-3-Clause
// Who may join: whether a user may have one more group, and whether a client fits those that joined
// before.
#include <fmt/format.h>

#include <algorithm>

#include "control/formation/formation.h"
#include "control/room.h"

namespace gradwire::control {

Result<void> Formation::room_for_group(uid_t uid, bool transfers_alone) const {
  const Limits& limits = options_.limits;
  Room room{.what = "groups",
            .key = "limits.groups",
            .user_key = "limits.user_groups",
            .give_up = "leave",
            .count = groups_.count(transfers_alone),
            .limit = limits.groups,
            .of_user = groups_.of_user(uid, transfers_alone),
            .limit_of_user = limits.groups_per_user};
  if (transfers_alone) {
    room.what = "groups for transfers alone";
    room.key = "limits.transfer_groups";
    room.user_key = "limits.user_transfer_groups";
    room.limit = limits.transfer_groups;
    room.limit_of_user = limits.transfer_groups_per_user;
  }
  return check_room(room, uid);
}

Result<void> Formation::check_member(const Group& group, const ipc::JoinBody& body,
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
    if (auto joins = check_join(body, entries_.without_keys(client.peer.uid),
                                keys_.for_join(client.peer.uid, body.wants));
        !joins) {
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
  if (body.request.transfers_alone() != group.wanted.transfers_alone) {
    const bool here = body.request.transfers_alone();
    return fail(ErrorCode::kMismatch,
                fmt::format("member {} joined for {}, the others on this daemon for {}",
                            body.request.member, here ? "transfers alone" : "ops, too",
                            here ? "ops, too" : "transfers alone"));
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
  if (auto own = check_own_keys(group.rank, group.table[group.rank],
                                keys_.for_join(client.peer.uid, body.wants));
      !own) {
    return own;
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

}  // namespace gradwire::control
