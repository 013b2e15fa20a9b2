// SPDX-License-Identifier: BSD-3-Clause
// Commands that are made of transfers: begun, handed to the lanes, answered.
#include <rte_ring_elem.h>

#include <algorithm>
#include <new>

#include "base/counter.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

void CommandLane::begin_transfers(Client& client, Group& group, std::size_t member,
                                  std::uint16_t record, const TransferCommand& command) noexcept {
  if (group.transfers == nullptr) {
    const GroupProcesses processes{group.limits.shape.nranks,
                                   static_cast<std::uint16_t>(group.members.size()),
                                   group.limits.shape.layout};
    try {
      group.transfers = std::make_unique<TransferCalls>(
          processes, group.rank, static_cast<std::uint16_t>(group.members.size()),
          group.limits.lanes, group.limits.streams);
    } catch (const std::bad_alloc&) {
      Refusal refusal;
      refusal.code = ErrorCode::kResourceExhausted;
      std::snprintf(refusal.text, sizeof refusal.text,
                    "there is no memory for the transfers of %u processes here with %u in all",
                    static_cast<unsigned>(group.members.size()),
                    static_cast<unsigned>(processes.count()));
      answers_.refuse(client, record, refusal);
      return;
    }
  }
  group.transfers->add(static_cast<std::uint16_t>(member), record, command);
  if (group.left_count != 0 && !group.aborted) {
    if (const auto never = never_transferred(group, member)) abort(group, *never);
  }
  take_over_transfers(group);
}

/// Answers what has ended, and sees to it that what begins is handed out.
void CommandLane::take_over_transfers(Group& group) noexcept {
  TransferCalls::Over over;
  while (group.transfers->pop_over(over)) {
    count(counters_.ops[index_of(over.collective)]);
    answers_.complete(*group.members[over.member], over.record, ErrorCode::kOk, "", over.bytes);
  }
  std::uint16_t wrong = 0;
  if (group.transfers->pop_wrong_splits(wrong)) {
    cut_off(
        *group.members[wrong], AbortCode::kClientDied,
        "broke the command queue's rules: the splits of one of its calls were wrong, or changed "
        "too soon");
  }
  if (group.handing || group.aborted || !group.transfers->has_news()) return;
  group.handing = true;
  handing_.push_back(&group);
}

bool CommandLane::hand_out_transfers(Group& group) noexcept {
  if (group.transfers == nullptr || group.aborted) return false;
  const std::uint32_t opened = group.transfers->open_some(kHandingSteps);
  steps_ += opened;
  bool worked = opened != 0;
  if (worked) take_over_transfers(group);
  const std::uint32_t most = std::max(kHandingSteps / group.limits.lanes, 1u);
  for (std::uint8_t lane = 0; lane < group.limits.lanes; ++lane) {
    bool given = false;
    for (std::uint32_t left = most; left > 0; --left) {
      const collective::TransferSpec* spec = group.transfers->next(lane);
      if (spec == nullptr) break;
      LaneTransfer transfer{group.handle, spec};
      // If its ring is full: again in the next round.
      if (rte_ring_sp_enqueue_elem(lanes_[lane].transfers, &transfer, sizeof transfer) != 0) break;
      group.transfers->given(lane);
      ++steps_;
      given = true;
    }
    if (given && lane != 0) lanes_[lane].bell->ring();
    worked |= given;
  }
  return worked;
}

}  // namespace gradwire::command
