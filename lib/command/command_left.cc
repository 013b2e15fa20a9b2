// SPDX-License-Identifier: BSD-3-Clause
// A member has left a group that others of its rank still have: what waits for it ends at once.
#include <algorithm>

#include "base/abort_detail.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

void CommandLane::member_left(std::uint64_t group_handle, std::uint32_t client_id) noexcept {
  Group* const group = find_group(group_handle);
  if (group == nullptr || group->aborted || group->leave != nullptr) return;
  const auto found = std::find_if(
      group->members.begin(), group->members.end(), [&](const Client* client) noexcept {
        return client != nullptr && client->port->client_id == client_id;
      });
  if (found == group->members.end()) return;
  const auto member = static_cast<std::size_t>(found - group->members.begin());
  group->left_count += group->left[member] ? 0 : 1;
  group->left[member] = true;

  const std::uint64_t called = group->joined_seq[member];
  const std::uint64_t first = called >= kOpSlots ? called - kOpSlots + 1 : 1;
  AbortReason reason;
  reason.code = AbortCode::kPeerLeft;
  reason.culprit_rank = reason.reporter_rank = group->rank;
  for (std::uint64_t op_seq = first; op_seq <= called; ++op_seq) {
    const OpSlot& slot = group->slots[op_seq % kOpSlots];
    if (slot.op_seq != op_seq || slot.records[member] == kNoRecord) continue;
    reason.op_seq = op_seq;
    format_detail(reason, "process {} left and had not waited for the op",
                  group->place_of(member).process);
    return abort(*group, reason);
  }
  if (group->transfers != nullptr && group->transfers->unfinished(member) != 0) {
    format_detail(reason, "process {} left, and transfer calls of its own were unfinished",
                  group->place_of(member).process);
    return abort(*group, reason);
  }
  for (std::size_t other = 0; other < group->members.size() && !group->aborted; ++other) {
    CallerText by;
    auto never =
        never_called(*group, group->joined_seq[other], by.of(group->place_of(other).process));
    if (!never) never = never_transferred(*group, other);
    if (never) abort(*group, *never);
  }
}

AbortReason left_unread(const Group& group, std::size_t member) noexcept {
  AbortReason reason;
  reason.code = AbortCode::kPeerLeft;
  reason.culprit_rank = reason.reporter_rank = group.rank;
  format_detail(reason, "process {} left and had called more than had been read",
                group.place_of(member).process);
  return reason;
}

void CommandLane::heard_posted(std::uint64_t group_handle, std::uint64_t op_seq) noexcept {
  Group* const group = find_group(group_handle);
  if (group == nullptr || group->left_count == 0) return;
  if (group->aborted) return;
  if (const auto never = never_called(*group, op_seq, "the next rank")) abort(*group, *never);
}

std::optional<AbortReason> never_called(const Group& group, std::uint64_t op_seq,
                                        const char* by) noexcept {
  for (std::size_t gone = 0; gone < group.left.size(); ++gone) {
    if (!group.left[gone] || op_seq <= group.joined_seq[gone]) continue;
    AbortReason reason;
    reason.code = AbortCode::kPeerLeft;
    reason.culprit_rank = reason.reporter_rank = group.rank;
    reason.op_seq = group.joined_seq[gone] + 1;
    format_detail(reason, "process {} left and had not called it, and {} has",
                  group.place_of(gone).process, by);
    return reason;
  }
  return {};
}

std::optional<AbortReason> never_transferred(const Group& group, std::size_t member) noexcept {
  if (group.transfers == nullptr) return {};
  for (std::size_t gone = 0; gone < group.left.size(); ++gone) {
    if (!group.left[gone] || !group.transfers->needs(static_cast<std::uint16_t>(member),
                                                     static_cast<std::uint16_t>(gone))) {
      continue;
    }
    AbortReason reason;
    reason.code = AbortCode::kPeerLeft;
    reason.culprit_rank = reason.reporter_rank = group.rank;
    format_detail(reason, "process {} left, and process {} has a transfer with it unfinished",
                  group.place_of(gone).process, group.place_of(member).process);
    return reason;
  }
  return {};
}

}  // namespace gradwire::command
