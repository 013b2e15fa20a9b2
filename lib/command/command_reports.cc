// SPDX-License-Identifier: BSD-3-Clause
// Lanes report: ops are done, groups end.
#include <algorithm>

#include "base/planted_bug.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"

namespace gradwire::command {
namespace {

/// Answers some of what is unfinished. @return whether that was all.
bool end_part(Group& group, Answers& answers, std::uint64_t& steps, std::uint64_t until) noexcept {
  if (planted(PlantedBug::kEndsAllAtOnce)) until = UINT64_MAX;
  const std::uint64_t last = *std::max_element(group.joined_seq.begin(), group.joined_seq.end());
  for (; group.end_seq <= last; ++group.end_seq, group.end_member = 0) {
    OpSlot& slot = group.slots[group.end_seq % kOpSlots];
    if (steps >= until) return false;
    ++steps;
    if (slot.op_seq != group.end_seq) continue;
    for (; group.end_member < group.members.size(); ++group.end_member) {
      if (slot.records[group.end_member] == kNoRecord) continue;
      if (steps >= until) return false;
      answers.complete(*group.members[group.end_member], slot.records[group.end_member],
                       ErrorCode::kAborted, group.reason_text);
    }
    slot.op_seq = 0;
  }
  while (group.transfers != nullptr && !group.transfers->all_ended()) {
    if (steps >= until) return false;
    TransferCalls::Over over;
    if (group.transfers->next_unfinished(over)) {
      answers.complete(*group.members[over.member], over.record, ErrorCode::kAborted,
                       group.reason_text);
    } else {
      ++steps;
    }
  }
  return true;
}

}  // namespace

void CommandLane::on_report(const LaneReport& report) noexcept {
  Group* group = find_group(report.group_handle);
  ++steps_;
  if (group == nullptr) return;
  const auto lane_bit = static_cast<std::uint16_t>(1u << report.lane);
  switch (report.type) {
    case collective::EventType::kFormed:
      group->formed |= lane_bit;
      return;
    case collective::EventType::kOpDone: {
      OpSlot& slot = group->slots[report.op_seq % kOpSlots];
      if (slot.op_seq != report.op_seq || group->ending) return;
      slot.lanes_done |= lane_bit;
      if (slot.lanes_done == group->all_lanes() || planted(PlantedBug::kOneLaneIsEnough)) {
        for (std::size_t member = 0; member < group->members.size(); ++member) {
          answers_.complete(*group->members[member], slot.records[member], ErrorCode::kOk, "");
        }
        slot.op_seq = 0;
      }
      return;
    }
    case collective::EventType::kTransferSized:
      if (group->transfers == nullptr || group->ending) return;
      group->transfers->lane_sized(report.op_seq, report.bytes);
      take_over_transfers(*group);
      return;
    case collective::EventType::kTransferDone:
      if (group->transfers == nullptr || group->ending) return;
      steps_ += group->transfers->lane_done(report.op_seq, report.lane) / TransferCalls::kLooks;
      take_over_transfers(*group);
      return;
    case collective::EventType::kAborted:
      group->aborted = true;
      group->set_reason(report.reason);
      group->quiet |= lane_bit;
      break;
    case collective::EventType::kClosed:
      if (report.reason.is_set()) group->set_reason(report.reason);
      group->quiet |= lane_bit;
      group->closed |= lane_bit;
      break;
  }
  if (group->quiet == group->all_lanes() && !group->ending) begin_end(*group);
  release_if_done(*group);
}

/// No lane refers to client memory any more: whatever is unfinished never will be finished.
void CommandLane::begin_end(Group& group) noexcept {
  group.aborted = true;
  group.ending = true;
  if (!group.reason.is_set()) {
    std::snprintf(group.reason_text, sizeof group.reason_text,
                  "the group was left before the op was finished");
  }
  const std::uint64_t last = *std::max_element(group.joined_seq.begin(), group.joined_seq.end());
  group.end_seq = last >= kOpSlots ? last - kOpSlots + 1 : 1;
  group.end_member = 0;
  group.ended = end_part(group, answers_, steps_, steps_ + kEndingSteps);
  if (!group.ended) ending_.push_back(&group);
}

/// Groups get their turns, so that one with many unfinished calls holds up no other.
bool CommandLane::end_some() noexcept {
  const std::uint64_t until = steps_ + kEndingSteps;
  const std::uint64_t share =
      std::max<std::uint64_t>(kEndingSteps / ending_.size(), kCommandsPerTurn);
  for (std::size_t left = ending_.size(); left > 0 && steps_ < until; --left) {
    if (next_ending_ >= ending_.size()) next_ending_ = 0;
    Group& group = *ending_[next_ending_];
    if (!end_part(group, answers_, steps_, std::min(until, steps_ + share))) {
      ++next_ending_;
      continue;
    }
    ending_.erase(ending_.begin() + static_cast<std::ptrdiff_t>(next_ending_));
    group.ended = true;
    release_if_done(group);
  }
  return true;
}

}  // namespace gradwire::command
