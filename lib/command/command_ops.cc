// SPDX-License-Identifier: BSD-3-Clause
// The way of a command: read, checked, joined to an op, handed to the lanes.
#include <fmt/format.h>
#include <rte_ring_elem.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/abort_detail.h"
#include "base/counter.h"
#include "base/planted_bug.h"
#include "command/client_turns_run.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"
#include "ipc/bus_guard.h"

namespace gradwire::command {
namespace {

/// Of the first member whose input is not there, else kReady. What has passed is not asked again:
/// by then it may have been marked for a later op.
reduce::ReadyEvent::State input_state(Group& group, OpSlot& slot, std::size_t& member) noexcept {
  for (member = 0; member < group.members.size(); ++member) {
    Record& record = group.members[member]->records[slot.records[member]];
    if (record.ready == nullptr) continue;
    const auto state = record.ready->state();
    if (state != reduce::ReadyEvent::State::kReady) return state;
    record.ready = nullptr;
  }
  return reduce::ReadyEvent::State::kReady;
}

/// Passes ops that are ready to the lanes that have room.
bool hand_out(Group& group, const std::vector<LaneRings>& lanes) noexcept {
  if (group.handed_seq == group.ready_seq || group.aborted) return false;
  bool worked = false;
  bool all = true;
  for (std::size_t lane = 0; lane < group.limits.lanes; ++lane) {
    if (group.sent_seq[lane] == group.ready_seq) continue;
    LaneOps ops{group.handle, group.ready_seq, group.specs.data()};
    if (rte_ring_sp_enqueue_elem(lanes[lane].ops, &ops, sizeof ops) != 0) {
      all = false;  // its ring is full: again in the next round
      continue;
    }
    group.sent_seq[lane] = group.ready_seq;
    if (lane != 0) lanes[lane].bell->ring();
    worked = true;
  }
  if (all) group.handed_seq = group.ready_seq;
  return worked;
}

}  // namespace

bool CommandLane::poll() noexcept {
  bool worked = false;
  if (ipc::has_hits()) [[unlikely]]
    drop_hit_clients();
  if (!dropping_.empty()) [[unlikely]] {
    abort_groups_of_dropped();
    worked = true;  // The lane must not sleep before the rest.
  }
  clients_.look_at_next();
  worked |= clients_.run(
      [this](Client& client, std::uint64_t until) { return poll_client(client, until); });
  if (!handing_.empty()) worked |= hand_out_some();
  if (!ending_.empty()) worked |= end_some();
  if (!drains_.empty() && answers_.unfinished() == 0) {
    finished_.insert(finished_.end(), drains_.begin(), drains_.end());
    drains_.clear();
  }
  return worked;
}

bool CommandLane::poll_client(Client& client, std::uint64_t until) noexcept {
  if (client.done_count != 0) answers_.push_waiting(client, kCommandsPerTurn);
  if (client.removal != nullptr || client.faulty) return false;
  bool worked = false;
  for (std::uint32_t i = 0; i < kCommandsPerTurn && client.free_count != 0 && steps_ <= until;
       ++i) {
    if (client.has_held) {
      ++steps_;
      if (!take_command(client, client.held, client.held_extra)) return worked;
      client.has_held = false;
      worked = true;
      continue;
    }
    ipc::CommandEntry command;
    ipc::CommandExtra extra;
    const ipc::PopResult popped = client.port->queue.pop_command(command, extra);
    if (popped == ipc::PopResult::kEmpty) break;
    if (popped == ipc::PopResult::kPeerFault) {
      cut_off(client, AbortCode::kClientDied,
              "broke the command queue's rules: it wrote an impossible index into its command "
              "queue");
      return true;
    }
    worked = true;
    ++steps_;
    count(counters_.commands);
    if (!take_command(client, command, extra)) {
      client.held = command;
      client.held_extra = extra;
      client.has_held = true;
      break;
    }
  }
  return worked;
}

/// Only a command that makes an op complete gives a group something to hand out (join_op); it stays
/// so until every lane has the op. Groups that rest are not looked at.
bool CommandLane::hand_out_some() noexcept {
  const std::uint64_t until = steps_ + kHandingSteps;
  bool worked = false;
  for (std::size_t left = handing_.size(); left > 0 && steps_ < until; --left) {
    if (next_handing_ >= handing_.size()) next_handing_ = 0;
    Group& group = *handing_[next_handing_];
    ++steps_;
    if (group.ready_seq != group.called_seq) worked |= look_at_inputs(group);
    worked |= hand_out(group, lanes_);
    worked |= hand_out_transfers(group);
    const bool has_transfers = group.transfers != nullptr && group.transfers->has_news();
    group.handing = !group.aborted && (group.handed_seq != group.called_seq || has_transfers);
    if (group.handing) {
      ++next_handing_;
    } else {
      handing_.erase(handing_.begin() + static_cast<std::ptrdiff_t>(next_handing_));
    }
  }
  return worked;
}

namespace {

/// Whether a command's memory is none that an unfinished one of the client's writes, or reads if
/// this one writes; if not, says so.
bool is_apart(const Client& client, const CommandRanges& ranges, Refusal& refusal) noexcept {
  for (std::uint32_t i = 0; i < client.active_count; ++i) {
    if (!ranges.conflicts(client.active_ranges[i])) continue;
    const Record& other = client.records[client.active[i]];
    refusal.code = ErrorCode::kInvalidArgument;
    std::snprintf(refusal.text, sizeof refusal.text,
                  "its memory overlaps that of the unfinished request %" PRIu64
                  " and one of the two writes: wait for that one first",
                  other.request_id);
    return false;
  }
  return true;
}

}  // namespace

bool CommandLane::takes(Group* group, std::size_t member, const ipc::CommandEntry& command,
                        Refusal& refusal) noexcept {
  const auto refuse_with = [&](ErrorCode code, const char* text) noexcept {
    refusal.code = code;
    std::snprintf(refusal.text, sizeof refusal.text, "%s", text);
  };
  if (group == nullptr) {
    refusal.code = ErrorCode::kNotFound;
    std::snprintf(refusal.text, sizeof refusal.text,
                  "group handle 0x%" PRIx64 " is not an open group of this client's",
                  command.group_handle);
  } else if (group->aborted) {
    refuse_with(ErrorCode::kAborted, group->reason_text);
  } else if (group->left[member]) {
    // It was called before the member left, and nobody waits for it.
    refuse_with(ErrorCode::kAborted, "the group was left before the op was finished");
    abort(*group, left_unread(*group, member));
  } else if (group->leave != nullptr) {
    refuse_with(ErrorCode::kNotFound, "the group is being left: it takes no more commands");
  } else if (group->limits.folds_only) {
    refuse_with(ErrorCode::kUnsupported,
                "this rank has no members: it sums for the others, and calls nothing");
  } else if (draining_ && is_transfer(command.collective)) {
    refuse_with(ErrorCode::kUnavailable, "the daemon is draining and starts no new transfer");
  } else if (draining_ && group->joined_seq[member] == *std::max_element(group->joined_seq.begin(),
                                                                         group->joined_seq.end())) {
    // One that another member has called is under way and will be finished.
    refuse_with(ErrorCode::kUnavailable, "the daemon is draining and starts no new op");
  } else if (group->formed != group->all_lanes()) {
    refuse_with(ErrorCode::kBusy, "the group is not formed yet: wait for the reply to join");
  }
  return refusal.code == ErrorCode::kOk;
}

/// @return false where the command has to wait for a slot.
bool CommandLane::take_command(Client& client, const ipc::CommandEntry& command,
                               const ipc::CommandExtra& extra) noexcept {
  const std::uint16_t index = client.free[client.free_count - 1];
  Record& record = client.records[index];
  Refusal refusal;
  Group* group = find_group(command.group_handle);
  std::size_t member = 0;
  if (group != nullptr) {
    const auto found = std::find(group->members.begin(), group->members.end(), &client);
    member = static_cast<std::size_t>(found - group->members.begin());
    if (found == group->members.end()) group = nullptr;
  }
  Memory* input = memories_.find(client.port->client_id, command.input_memory);
  Memory* output = memories_.find(client.port->client_id, command.output_memory);
  const auto event = client.events.find(command.event());
  CommandRanges ranges;
  SplitsView splits;
  std::array<Memory*, 2> beside{};
  const bool transfers = is_transfer(command.collective);
  if (!takes(group, member, command, refusal)) {
    // It is refused below.
  } else if (command.event() != 0 && event == client.events.end()) {
    refusal.code = ErrorCode::kNotFound;
    std::snprintf(refusal.text, sizeof refusal.text, "event %" PRIu32 " is not this client's",
                  command.event());
  } else {
    const auto view = [](const Memory* memory) noexcept {
      return memory == nullptr || memory->removal != nullptr
                 ? MemoryView{}
                 : MemoryView{memory->region.base, memory->region.bytes};
    };
    if (command.has_splits()) {
      beside[0] = memories_.find(client.port->client_id, command.root);
      splits.memory = view(beside[0]);
    }
    const ProcessPlace place = group->place_of(member);
    bool good = check_command(command, group->limits, place, view(input), view(output), ranges,
                              refusal, &splits);
    if (good && command.has_residuals()) [[unlikely]] {
      beside = {memories_.find(client.port->client_id, extra.residual_in_memory),
                memories_.find(client.port->client_id, extra.residual_out_memory)};
      good = check_residuals(command, extra, place, member, {view(beside[0]), view(beside[1])},
                             ranges, refusal);
    }
    if (good) (void)is_apart(client, ranges, refusal);
  }

  if (refusal.code == ErrorCode::kOk && !transfers) {
    const std::uint64_t op_seq = group->joined_seq[member] + 1;
    const OpSlot& slot = group->slots[op_seq % kOpSlots];
    if (slot.op_seq != 0 && slot.op_seq != op_seq) return false;
  }
  --client.free_count;
  record.request_id = command.request_id;
  record.op_seq = 0;
  record.ranges = ranges;
  record.input = record.output = nullptr;
  record.beside = {};
  record.ready = nullptr;
  if (refusal.code != ErrorCode::kOk) {
    answers_.refuse(client, index, refusal);
    return true;
  }
  if (command.event() != 0 && command.count != 0) record.ready = event->second;
  if (ranges.input.begin != nullptr) {
    record.input = input;
    ++input->uses;
  }
  if (ranges.output.begin != nullptr && !planted(PlantedBug::kOutputNotHeld)) {
    record.output = output;
    ++output->uses;
  }
  if (splits.table == nullptr && ranges.residual_in.begin == nullptr) beside[0] = nullptr;
  if (ranges.residual_out.begin == nullptr) beside[1] = nullptr;
  record.beside = beside;
  for (Memory* const memory : beside) {
    if (memory != nullptr) ++memory->uses;
  }
  answers_.begin(client, index);
  if (transfers) {
    TransferCommand call{command.call(), ranges, splits.table, command.up_to(),
                         static_cast<std::uint16_t>(command.stream())};
    if (splits.table != nullptr) {
      call.call.count = 0;
      call.call.root = has_root(command.collective) ? group->place_of(member).process : 0;
    }
    begin_transfers(client, *group, member, index, call);
  } else {
    join_op(client, *group, member, index, command, extra);
  }
  return true;
}

void CommandLane::join_op(Client& client, Group& group, std::size_t member, std::uint16_t index,
                          const ipc::CommandEntry& command,
                          const ipc::CommandExtra& extra) noexcept {
  Record& record = client.records[index];
  const std::uint64_t op_seq = ++group.joined_seq[member];
  record.op_seq = op_seq;
  OpSlot& slot = group.slots[op_seq % kOpSlots];
  collective::OpSpec& spec = group.specs[op_seq % kOpSlots];
  const CollectiveCall call = command.call();
  if (slot.op_seq == 0) {
    slot = {};
    slot.op_seq = op_seq;
    slot.call = call;
    slot.first_member = static_cast<std::uint16_t>(member);
    slot.records.fill(kNoRecord);
    spec.op_seq = op_seq;
    spec.collective = call.collective;
    spec.root = has_root(call.collective) ? call.root : collective::kNoRoot;
    spec.count = call.count;
    spec.tag = call.tag;
    spec.datatype = call.datatype;
    spec.redop = call.redop;
    spec.wire = call.wire;
    spec.factors = &group.factors[op_seq % kOpSlots * group.members.size()];
    spec.residual_in = nullptr;
    spec.residual_out = nullptr;
  }
  if (record.ranges.residual_out.begin != nullptr) [[unlikely]] {
    spec.residual_in = record.ranges.residual_in.begin;
    spec.residual_out = const_cast<std::byte*>(record.ranges.residual_out.begin);
  }
  group.factors[op_seq % kOpSlots * group.members.size() + member] = extra.factor;
  slot.records[member] = index;
  spec.inputs[member] = record.ranges.input.begin;
  spec.outputs[member] = const_cast<std::byte*>(record.ranges.output.begin);
  ++slot.joined;

  if (slot.call != call) {
    AbortReason reason;
    reason.code = AbortCode::kMismatch;
    reason.culprit_rank = reason.reporter_rank = group.rank;
    reason.op_seq = op_seq;
    format_detail(reason, "member {} of rank {} called {}, member {} called {}", slot.first_member,
                  group.rank, text_of(slot.call).text, member, text_of(call).text);
    abort(group, reason);
    return;
  }
  if (group.left_count != 0) {
    CallerText by;
    if (const auto never = never_called(group, op_seq, by.of(group.place_of(member).process))) {
      return abort(group, *never);
    }
  }
  // Members call in order, so ops become complete in order.
  if (slot.joined != group.members.size()) return;
  group.called_seq = op_seq;
  if (!group.handing) {
    group.handing = true;
    handing_.push_back(&group);
  }
  look_at_inputs(group);
}

void CommandLane::abort(Group& group, const AbortReason& reason) noexcept {
  group.aborted = true;
  aborts_.push_back(group.handle);
  news_ = true;
  group.set_reason(reason);
}

bool CommandLane::look_at_inputs(Group& group) noexcept {
  bool worked = false;
  for (std::uint32_t looks = 0;
       looks < kCommandsPerTurn && group.ready_seq != group.called_seq && !group.aborted;
       ++looks, ++steps_) {
    OpSlot& slot = group.slots[(group.ready_seq + 1) % kOpSlots];
    std::size_t member = 0;
    const auto state = input_state(group, slot, member);
    if (state == reduce::ReadyEvent::State::kPending) break;
    worked = true;
    if (state == reduce::ReadyEvent::State::kReady) {
      ++group.ready_seq;
      continue;
    }
    AbortReason reason;
    reason.code = AbortCode::kReduceFailed;
    reason.culprit_rank = reason.reporter_rank = group.rank;
    reason.op_seq = slot.op_seq;
    format_detail(reason, "the stream that computes the input of member {} of rank {} failed",
                  member, group.rank);
    abort(group, reason);
  }
  return worked;
}

}  // namespace gradwire::command
