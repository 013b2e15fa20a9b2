// SPDX-License-Identifier: BSD-3-Clause
// How a command ends: lanes report, its clients are answered.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/abort_detail.h"
#include "base/counter.h"
#include "base/planted_bug.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

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
        finish_op(*group, slot);
      }
      return;
    }
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

void CommandLane::finish_op(Group& group, OpSlot& slot) noexcept {
  for (std::size_t member = 0; member < group.members.size(); ++member) {
    complete(*group.members[member], slot.records[member], ErrorCode::kOk, "");
  }
  slot.op_seq = 0;
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
  group.ended = end_part(group, steps_ + kEndingSteps);
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
    if (!end_part(group, std::min(until, steps_ + share))) {
      ++next_ending_;
      continue;
    }
    ending_.erase(ending_.begin() + static_cast<std::ptrdiff_t>(next_ending_));
    group.ended = true;
    release_if_done(group);
  }
  return true;
}

bool CommandLane::end_part(Group& group, std::uint64_t until) noexcept {
  if (planted(PlantedBug::kEndsAllAtOnce)) until = UINT64_MAX;
  const std::uint64_t last = *std::max_element(group.joined_seq.begin(), group.joined_seq.end());
  for (; group.end_seq <= last; ++group.end_seq, group.end_member = 0) {
    OpSlot& slot = group.slots[group.end_seq % kOpSlots];
    if (steps_ >= until) return false;
    ++steps_;
    if (slot.op_seq != group.end_seq) continue;
    for (; group.end_member < group.members.size(); ++group.end_member) {
      if (slot.records[group.end_member] == kNoRecord) continue;
      if (steps_ >= until) return false;
      complete(*group.members[group.end_member], slot.records[group.end_member],
               ErrorCode::kAborted, group.reason_text);
    }
    slot.op_seq = 0;
  }
  while (group.transfers != nullptr && !group.transfers->all_ended()) {
    if (steps_ >= until) return false;
    TransferCalls::Over over;
    if (group.transfers->next_unfinished(over)) {
      complete(*group.members[over.member], over.record, ErrorCode::kAborted, group.reason_text);
    } else {
      ++steps_;
    }
  }
  return true;
}

void CommandLane::refuse(Client& client, std::uint16_t index, const Refusal& refusal) noexcept {
  count(counters_.bad_commands);
  complete(client, index, refusal.code, refusal.text);
}

void CommandLane::complete(Client& client, std::uint16_t index, ErrorCode status,
                           const char* text) noexcept {
  Record& record = client.records[index];
  ++steps_;
  if (record.active) {
    --unfinished_;
    const std::uint16_t last = client.active[--client.active_count];
    client.active[record.active_index] = last;
    client.active_ranges[record.active_index] = client.active_ranges[client.active_count];
    client.records[last].active_index = record.active_index;
    record.active = false;
  }
  for (Memory* memory : {record.input, record.output, record.splits}) {
    if (memory == nullptr) continue;
    --memory->uses;
    release_if_done(*memory);
  }
  record.input = record.output = record.splits = nullptr;
  record.ready = nullptr;
  record.status = static_cast<std::uint32_t>(status);
  // As a rule the text is empty: printf would be a twentieth of a command's instructions.
  record.text[std::string_view(text).copy(record.text, sizeof record.text - 1)] = '\0';
  client.done[(client.done_head + client.done_count++) % kRecords] = index;
  // Two, so that what found no room before becomes less.
  drain_completions(client, 2);
  // What found no room is tried again each round, and who gets an answer may have more to ask.
  wake(client);
}

void CommandLane::drain_completions(Client& client, std::uint32_t most) noexcept {
  bool pushed = false;
  for (; client.done_count != 0 && most > 0; --most) {
    const std::uint16_t index = client.done[client.done_head];
    const Record& record = client.records[index];
    ipc::CompletionEntry entry;
    entry.request_id = record.request_id;
    entry.op_seq = record.op_seq;
    entry.status = record.status;
    std::memcpy(entry.text, record.text, sizeof entry.text);
    // A client that does not read its completions gets no more commands read: it has no record.
    if (!client.port->queue.push_completion(entry)) break;
    pushed = true;
    ++steps_;
    client.done_head = (client.done_head + 1) % kRecords;
    --client.done_count;
    client.free[client.free_count++] = index;
  }
  if (pushed && client.port->completion_fd >= 0 && client.port->queue.take_client_waits()) {
    const std::uint64_t one = 1;
    // If the client has closed its end there is nobody to wake, and no signal may come of that.
    [[maybe_unused]] const ssize_t ignored =
        send(client.port->completion_fd, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

}  // namespace gradwire::command
