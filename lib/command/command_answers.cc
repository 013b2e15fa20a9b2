// SPDX-License-Identifier: BSD-3-Clause
// How a command ends: lanes report, its clients are answered.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/abort_detail.h"
#include "base/counter.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

void CommandLane::on_report(const LaneReport& report) noexcept {
  Group* group = find_group(report.group_handle);
  if (group == nullptr) return;
  const auto lane_bit = static_cast<std::uint16_t>(1u << report.lane);
  switch (report.type) {
    case collective::EventType::kFormed:
      group->formed |= lane_bit;
      return;
    case collective::EventType::kOpDone: {
      OpSlot& slot = group->slots[report.op_seq % kOpSlots];
      if (slot.op_seq != report.op_seq || group->ended) return;
      slot.lanes_done |= lane_bit;
      if (slot.lanes_done == group->all_lanes()) finish_op(*group, slot);
      return;
    }
    case collective::EventType::kTransferDone:
      if (group->transfers == nullptr || group->ended) return;
      group->transfers->lane_done(report.op_seq, report.lane);
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
      removals_ = true;
      break;
  }
  if (group->quiet == group->all_lanes() && !group->ended) end_group(*group);
}

void CommandLane::finish_op(Group& group, OpSlot& slot) noexcept {
  for (std::size_t member = 0; member < group.members.size(); ++member) {
    complete(*group.members[member], slot.records[member], ErrorCode::kOk, "");
  }
  slot.op_seq = 0;
}

/// No lane refers to client memory any more: whatever is unfinished never will be finished.
void CommandLane::end_group(Group& group) noexcept {
  group.aborted = true;
  group.ended = true;
  if (!group.reason.is_set()) {
    std::snprintf(group.reason_text, sizeof group.reason_text,
                  "the group was left before the op was finished");
  }
  const std::uint64_t last = *std::max_element(group.joined_seq.begin(), group.joined_seq.end());
  const std::uint64_t first = last >= kOpSlots ? last - kOpSlots + 1 : 1;
  for (std::uint64_t op_seq = first; op_seq <= last; ++op_seq) {
    OpSlot& slot = group.slots[op_seq % kOpSlots];
    if (slot.op_seq != op_seq) continue;
    for (std::size_t member = 0; member < group.members.size(); ++member) {
      if (slot.records[member] == kNoRecord) continue;
      complete(*group.members[member], slot.records[member], ErrorCode::kAborted,
               group.reason_text);
    }
    slot.op_seq = 0;
  }
  end_transfers(group);
}

void CommandLane::refuse(Client& client, std::uint16_t index, const Refusal& refusal) noexcept {
  count(counters_.bad_commands);
  complete(client, index, refusal.code, refusal.text);
}

void CommandLane::complete(Client& client, std::uint16_t index, ErrorCode status,
                           const char* text) noexcept {
  Record& record = client.records[index];
  if (record.active) {
    const std::uint16_t last = client.active[--client.active_count];
    client.active[record.active_index] = last;
    client.active_ranges[record.active_index] = client.active_ranges[client.active_count];
    client.records[last].active_index = record.active_index;
    record.active = false;
  }
  for (Memory* memory : {record.input, record.output, record.splits}) {
    if (memory == nullptr) continue;
    --memory->uses;
    if (memory->removal != nullptr) removals_ = true;
  }
  record.input = record.output = record.splits = nullptr;
  record.ready = nullptr;
  record.status = static_cast<std::uint32_t>(status);
  // As a rule the text is empty: printf would be a twentieth of a command's instructions.
  record.text[std::string_view(text).copy(record.text, sizeof record.text - 1)] = '\0';
  client.done[(client.done_head + client.done_count++) % kRecords] = index;
  drain_completions(client);
  // What found no room is tried again each round, and who gets an answer may have more to ask.
  wake(client);
}

void CommandLane::drain_completions(Client& client) noexcept {
  bool pushed = false;
  while (client.done_count != 0) {
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
    client.done_head = (client.done_head + 1) % kRecords;
    --client.done_count;
    client.free[client.free_count++] = index;
  }
  if (pushed && client.port->completion_fd >= 0 && client.port->queue.take_client_waits()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = write(client.port->completion_fd, &one, sizeof one);
  }
}

}  // namespace gradwire::command
