// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The command lane's state: clients, groups, ops. Private to lib/command; lane 0 owns all of it.
///
/// How a command becomes an op. A client's record holds an accepted command from the moment it is
/// read until its completion is in the client's queue; there are kCompletionEntries records, which
/// limits everything else. The nth accepted command of a member for a group joins the group's op n.
/// When every member has joined, the op is passed to the lanes; when every lane has reported it,
/// the members' records are completed. An abort completes all records of the group, but only when
/// no lane refers to client memory any more.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "command/command_lane.h"
#include "command/transfer_calls.h"

namespace gradwire::command {

inline constexpr std::uint16_t kNoRecord = 0xffff;

/// Who called something, for a reason.
struct CallerText {
  char text[24] = {};
  const char* of(std::uint32_t process) noexcept {
    std::snprintf(text, sizeof text, "process %u", static_cast<unsigned>(process));
    return text;
  }
};

inline constexpr std::uint32_t kRecords = ipc::kCompletionEntries;

struct Group;

/// An accepted command, or a refused one whose completion waits for room.
struct Record {
  std::uint64_t request_id = 0;
  std::uint64_t op_seq = 0;
  CommandRanges ranges;
  Memory* input = nullptr;
  Memory* output = nullptr;
  /// Of splits, or of residuals.
  std::array<Memory*, 2> beside{};
  reduce::ReadyEvent* ready = nullptr;  // set until the event is seen to have passed
  std::uint64_t bytes = 0;              // that it moved, of a send or a receive that is done
  std::uint32_t status = 0;
  std::uint16_t active_index = 0;  // its place in Client::active
  bool active = false;
  char text[ipc::CompletionEntry::kTextBytes] = {};
};

/// The clients of one user.
struct User {
  std::uint32_t id = 0;
  std::uint32_t clients = 0;
  std::vector<Client*> awake;  // by id
  std::size_t next = 0;        // whose turn it is of those
};

struct Client {
  ClientPort* port = nullptr;
  User* user = nullptr;
  Request* removal = nullptr;
  std::vector<Group*> groups;       // in which it is a member
  std::size_t groups_to_abort = 0;  // the first ones of these, since it removed pages
  bool faulty = false;
  bool has_held = false;           // a command was read, but its op slot is not free yet
  bool awake = false;              // its queue is checked each round
  std::uint32_t quiet_rounds = 0;  // rounds in a row without a command
  ipc::CommandEntry held;
  ipc::CommandExtra held_extra;
  AbortReason fault;
  std::unordered_map<std::uint32_t, reduce::ReadyEvent*> events;

  std::array<Record, kRecords> records{};
  std::array<std::uint16_t, kRecords> free{};
  std::uint32_t free_count = kRecords;
  std::array<std::uint16_t, kRecords> active{};  // records of unfinished commands, in no order
  std::array<CommandRanges, kRecords> active_ranges{};  // of each, side by side: all are compared
                                                        // with every command that comes
  std::uint32_t active_count = 0;
  std::array<std::uint16_t, kRecords> done{};  // records whose completion waits for room, in order
  std::uint32_t done_head = 0;
  std::uint32_t done_count = 0;
};

struct OpSlot {
  std::uint64_t op_seq = 0;  // 0 = free
  CollectiveCall call;       // the first member's, and every other's
  std::uint16_t joined = 0;
  std::uint16_t first_member = 0;
  std::uint16_t lanes_done = 0;  // a bit each
  std::array<std::uint16_t, kMaxMembers> records{};
};

struct Group {
  std::uint64_t handle = 0;
  std::vector<Client*> members;
  std::vector<std::uint64_t> joined_seq;  // by member: the last op that it called
  std::vector<std::uint64_t> sent_seq;    // by lane: the last op passed to it
  std::vector<bool> left;                 // by member
  std::uint16_t left_count = 0;           // of these
  std::uint64_t called_seq = 0;           // every member has called all ops up to this one
  std::uint64_t ready_seq = 0;            // the inputs of all ops up to this one are there too
  std::uint64_t handed_seq = 0;           // all lanes have the ops up to this one
  std::uint16_t rank = 0;
  OpLimits limits;
  std::uint16_t formed = 0;  // one bit for each lane that formed
  std::uint16_t quiet = 0;   // one bit for each lane that no longer accesses client memory
  std::uint16_t closed = 0;
  bool aborted = false;
  bool handing = false;       // it is in CommandLane::handing_
  bool ending = false;        // no record will come any more; those there are, are being answered
  bool ended = false;         // every record was answered
  std::uint64_t end_seq = 0;  // of an ending group: the op and the member that come next
  std::size_t end_member = 0;
  Request* leave = nullptr;
  AbortReason reason;
  char reason_text[ipc::CompletionEntry::kTextBytes] = {};
  std::vector<OpSlot> slots;                 // [kOpSlots]
  std::vector<collective::OpSpec> specs;     // [kOpSlots]
  std::vector<double> factors;               // [kOpSlots][members], of premul-sums
  std::string why_no_transfers;              // empty: it has them
  std::string why_no_formats;                // likewise
  std::unique_ptr<TransferCalls> transfers;  // made by the first call

  /// @return the member's place among the group's processes.
  [[nodiscard]] ProcessPlace place_of(std::size_t member) const noexcept {
    const GroupProcesses processes{limits.shape.nranks, static_cast<std::uint16_t>(members.size()),
                                   limits.shape.layout};
    return {processes.process_of(rank, static_cast<std::uint32_t>(member)), processes.count()};
  }
  /// @return one bit for each lane that has a shard of the group.
  [[nodiscard]] std::uint16_t all_lanes() const noexcept {
    return static_cast<std::uint16_t>((1u << limits.lanes) - 1);
  }
  void set_reason(const AbortReason& why) {
    if (reason.is_set()) return;
    reason = why;
    std::snprintf(reason_text, sizeof reason_text, "%s", describe(why).c_str());
  }
};

// Of a group that a member has left: why what was called can never be done. command_left.cc

/// Of op `op_seq`, which `by` has called.
[[nodiscard]] std::optional<AbortReason> never_called(const Group& group, std::uint64_t op_seq,
                                                      const char* by) noexcept;
/// Of the transfers of a member.
[[nodiscard]] std::optional<AbortReason> never_transferred(const Group& group,
                                                           std::size_t member) noexcept;
/// Of a command of that member, which was still to be read.
[[nodiscard]] AbortReason left_unread(const Group& group, std::size_t member) noexcept;

}  // namespace gradwire::command
