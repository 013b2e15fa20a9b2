// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What lane 0 does besides being a lane: it alone reads the clients' command queues, checks each
/// command on a private copy, counts commands into ops, compares what the members of a group
/// called, hands complete ops to every lane, and answers when every lane is done. It depends on
/// rings and queues only, not on ports, shards or clocks.
///
/// Nobody's commands may keep lane 0 from the others' packets. So what a round does is bounded,
/// however many clients, groups and calls there are: poll() takes so many commands, hands out so
/// much, and answers so much of what ended, and what is left is for the next rounds. It counts
/// steps: a client looked at, a command, a completion, a transfer handed out each is one. Users get
/// their turns, and of a user its clients; groups that end or hand out get theirs.
///
/// Lane 0 owns it. Adding a client, a memory or a group allocates, which happens rarely; poll() and
/// on_report() do not.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "command/client_turns.h"
#include "command/command_answers.h"
#include "command/command_check.h"
#include "command/counters.h"
#include "command/links.h"
#include "command/memory_table.h"
#include "command/messages.h"
#include "command/transfer_calls.h"

namespace gradwire::command {

struct Group;

class CommandLane {
 public:
  /// How many commands a turn of one client takes.
  static constexpr std::uint32_t kCommandsPerTurn = 16;
  /// How many steps a round takes for clients and their commands, over all of them.
  static constexpr std::uint32_t kCommandSteps = 64;
  /// The same for completions of groups that have ended, and for what is handed to the lanes.
  static constexpr std::uint32_t kEndingSteps = 64;
  static constexpr std::uint32_t kHandingSteps = 128;
  /// So many clients are dropped in a round that removed pages, and as many groups of theirs end.
  static constexpr std::uint32_t kHitSteps = 64;
  /// The most steps of one poll(). What begins within a bound may end above it: the ops that one
  /// command or report completes, and a look at every lane.
  static constexpr std::uint32_t kStepsMax =
      2 * (2 * kCommandSteps + kEndingSteps + kHandingSteps + kHitSteps) + 4 * kMaxMembers;

  /// `lanes`: every lane of the daemon, including this one.
  CommandLane(std::span<const LaneRings> lanes, CommandCounters& counters);
  ~CommandLane();

  // Requests of the control thread. Those with a Request keep it until pop_finished() returns it.
  void add_client(ClientPort* client);
  /// Stops reading its commands. @return the client; nullptr if unknown.
  ClientPort* remove_client(Request* request);
  void add_memory(const MemoryRegion& region) { memories_.add(region); }
  void remove_memory(Request* request) { memories_.remove(request); }
  /// It stays until the client is removed.
  void add_event(std::uint32_t client_id, std::uint32_t handle, reduce::ReadyEvent* event);
  void add_group(std::uint64_t group_handle, std::span<const std::uint32_t> member_clients,
                 std::uint16_t rank, const OpLimits& limits,
                 const std::string& why_no_transfers = {}, const std::string& why_no_formats = {});
  /// A member posts no more on the group, and the others of its rank are still there. What can then
  /// never be done, of its own or of what others called, aborts the group, now or as soon as it is
  /// called.
  void member_left(std::uint64_t group_handle, std::uint32_t client_id) noexcept;
  /// The next rank has posted ops up to this one.
  void heard_posted(std::uint64_t group_handle, std::uint64_t op_seq) noexcept;
  /// Takes no more commands of the group. Finished when every lane has closed its shard and every
  /// command of the group is answered.
  void leave_group(Request* request);

  /// From now on refuses ops that no member has called yet. Finished when every accepted command is
  /// answered.
  void drain(Request* request);
  /// Accepts ops again.
  void resume();
  /// `since` is not set.
  [[nodiscard]] MembersWait members_wait(std::uint64_t group_handle) const noexcept;

  /// Takes some steps: one, and one for each completion that follows at once.
  void on_report(const LaneReport& report) noexcept;
  /// Reads commands, passes ops to lanes, retries what found no room. @return whether it did
  /// anything.
  bool poll() noexcept;

  /// Steps taken so far.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  [[nodiscard]] bool pop_finished(Request*& request) noexcept;
  /// Whether to call pop_fault() and pop_abort().
  [[nodiscard]] bool has_news() const noexcept { return news_; }
  void clear_news() noexcept { news_ = false; }
  /// A client is to be cut off, and why; reported once for each client.
  [[nodiscard]] bool pop_fault(std::uint32_t& client_id, AbortReason& why) noexcept;
  /// The members of a group called different ops, so this lane must abort its shard.
  [[nodiscard]] bool pop_abort(std::uint64_t& group_handle, AbortReason& reason) noexcept;

  // For sleeping, by the protocol of ipc/command_queue.h.
  void set_sleeping(bool sleeping) noexcept;
  [[nodiscard]] bool has_command() const noexcept;
  /// Checks every queue, also those of resting clients. A round checks only one of these, which
  /// would be too rare before and after a sleep, since rounds are then far apart.
  /// @return whether a resting client has a command.
  bool find_commands() noexcept { return clients_.wake_all_with_commands(); }
  /// Whether an op waits for an event, which cannot wake the lane.
  [[nodiscard]] bool waits_for_input() const noexcept;
  [[nodiscard]] std::size_t client_count() const noexcept { return clients_.all().size(); }

 private:
  void drop_hit_clients() noexcept;
  void abort_groups_of_dropped() noexcept;
  bool poll_client(Client& client, std::uint64_t until) noexcept;
  bool hand_out_some() noexcept;
  bool end_some() noexcept;
  void cut_off(Client& client, AbortCode code, const char* why) noexcept;
  /// Whether the group takes such a command now, whatever else the command says; if not, why.
  /// @param group  nullptr: the command names none of the client's.
  [[nodiscard]] bool takes(Group* group, std::size_t member, const ipc::CommandEntry& command,
                           Refusal& refusal) noexcept;
  [[nodiscard]] bool take_command(Client& client, const ipc::CommandEntry& command,
                                  const ipc::CommandExtra& extra) noexcept;
  void join_op(Client& client, Group& group, std::size_t member, std::uint16_t record,
               const ipc::CommandEntry& command, const ipc::CommandExtra& extra) noexcept;
  void begin_transfers(Client& client, Group& group, std::size_t member, std::uint16_t record,
                       const TransferCommand& command) noexcept;
  void take_over_transfers(Group& group) noexcept;
  bool hand_out_transfers(Group& group) noexcept;
  /// Answers at once what is little, and leaves the rest to rounds.
  void begin_end(Group& group) noexcept;
  /// Marks ops as ready whose inputs are all there.
  bool look_at_inputs(Group& group) noexcept;
  void abort(Group& group, const AbortReason& reason) noexcept;
  // What a request waits for is looked at when it may have come, and never searched for.
  void release_if_done(Group& group) noexcept;
  void release_if_done(Client& client) noexcept;
  [[nodiscard]] Group* find_group(std::uint64_t handle) const noexcept;

  std::vector<LaneRings> lanes_;
  CommandCounters& counters_;
  std::uint64_t steps_ = 0;
  std::deque<Request*> finished_;
  ClientTurns clients_;
  MemoryTable memories_;
  Answers answers_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Group*> with_ops_;                           // those that are not for transfers alone
  std::unordered_map<std::uint64_t, Group*> group_index_;  // by handle
  std::vector<Group*> handing_;  // groups that may have ops not yet passed to every lane
  std::size_t next_handing_ = 0;
  std::vector<Group*> ending_;  // groups of which not every command is answered yet
  std::size_t next_ending_ = 0;
  std::vector<Client*> dropping_;  // clients that removed pages and may have groups to be aborted
  std::vector<Request*> drains_;
  std::deque<std::uint32_t> faults_;  // clients that pop_fault() is to report
  std::deque<std::uint64_t> aborts_;  // groups that pop_abort() is to report
  bool draining_ = false;
  bool news_ = false;  // pop_fault() or pop_abort() has something to report
};

}  // namespace gradwire::command
