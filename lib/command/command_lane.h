// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What lane 0 does besides being a lane: it alone reads the clients' command queues, checks each
/// command on a private copy, counts commands into ops, compares what the members of a group
/// called, hands complete ops to every lane, and answers when every lane is done. It knows rings
/// and queues, and no port, shard or clock.
///
/// Lane 0 owns it. Adding a client, a memory or a group allocates (those are control events);
/// poll() and on_report() do not.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "command/command_check.h"
#include "command/counters.h"
#include "command/links.h"
#include "command/messages.h"

namespace gradwire::command {

class CommandLane {
 public:
  /// Commands taken from one client in one round: the others and the packets get their turn.
  static constexpr int kCommandsPerRound = 16;

  /// `lanes`: every lane of the daemon, this one too.
  CommandLane(std::span<const LaneRings> lanes, CommandCounters& counters);
  ~CommandLane();
  CommandLane(const CommandLane&) = delete;
  CommandLane& operator=(const CommandLane&) = delete;

  // Control events. Those that take a Request hold it until pop_finished() gives it back.
  void add_client(ClientPort* client);
  /// Its commands are read no more from here on. @return the client, nullptr if unknown.
  ClientPort* remove_client(Request* request);
  void add_memory(const MemoryRegion& region);
  void remove_memory(Request* request);
  /// It stays until the client is removed.
  void add_event(std::uint32_t client_id, std::uint32_t handle, reduce::ReadyEvent* event);
  void add_group(std::uint64_t group_handle, std::span<const std::uint32_t> member_clients,
                 std::uint16_t rank, const OpLimits& limits);
  /// No more commands; finished when every lane has closed its shard and every command of the
  /// group is answered.
  void leave_group(Request* request);

  /// Ops that no member has called yet are refused from here on. Finished when every accepted
  /// command is answered.
  void drain(Request* request);
  /// Ops are taken again.
  void resume();
  /// `since` is not set.
  [[nodiscard]] MembersWait members_wait(std::uint64_t group_handle) const noexcept;

  void on_report(const LaneReport& report) noexcept;
  /// Reads commands, hands out ops, repeats what found no room. @return whether it did anything.
  bool poll() noexcept;

  [[nodiscard]] bool pop_finished(Request*& request) noexcept;
  /// Whether pop_fault() and pop_abort() are to be asked.
  [[nodiscard]] bool has_news() const noexcept { return news_; }
  void clear_news() noexcept { news_ = false; }
  /// A client broke the queue's rules: said once per client.
  [[nodiscard]] bool pop_fault(std::uint32_t& client_id, AbortReason& why) noexcept;
  /// The members of a group called different things: its own shard is to be aborted.
  [[nodiscard]] bool pop_abort(std::uint64_t& group_handle, AbortReason& reason) noexcept;

  // Sleep: ipc/command_queue.h's protocol.
  void set_sleeping(bool sleeping) noexcept;
  [[nodiscard]] bool has_command() const noexcept;
  /// Looks into every queue, also those of clients that rest. A round looks into one of these:
  /// if rounds are far apart, before and after a sleep, that would be late.
  /// @return whether a client that rested has one.
  bool find_commands() noexcept;
  /// Whether an op waits for an event, which rings no bell.
  [[nodiscard]] bool waits_for_input() const noexcept;
  [[nodiscard]] std::size_t client_count() const noexcept { return clients_.size(); }

 private:
  struct Client;
  struct Memory;
  struct Group;
  struct Record;
  struct OpSlot;

  [[nodiscard]] bool poll_client(Client& client) noexcept;
  [[nodiscard]] static bool may_command(const Client& client) noexcept;
  void wake(Client& client) noexcept;
  [[nodiscard]] bool take_command(Client& client, const ipc::CommandEntry& command) noexcept;
  void join_op(Client& client, Group& group, std::size_t member, std::uint16_t record,
               const ipc::CommandEntry& command) noexcept;
  void refuse(Client& client, std::uint16_t record, const Refusal& refusal) noexcept;
  void complete(Client& client, std::uint16_t record, ErrorCode status, const char* text) noexcept;
  void drain_completions(Client& client) noexcept;
  void finish_op(Group& group, OpSlot& slot) noexcept;
  void end_group(Group& group) noexcept;
  bool hand_out(Group& group) noexcept;
  /// Ops whose every input is there are ready.
  bool look_at_inputs(Group& group) noexcept;
  [[nodiscard]] reduce::ReadyEvent::State input_state(Group& group, OpSlot& slot,
                                                      std::size_t& member) noexcept;
  void abort(Group& group, const AbortReason& reason) noexcept;
  void release_finished() noexcept;
  [[nodiscard]] Group* find_group(std::uint64_t handle) noexcept;
  [[nodiscard]] Memory* find_memory(std::uint32_t client_id, std::uint32_t memory) noexcept;
  [[nodiscard]] bool is_member(std::uint32_t client_id) const noexcept;

  std::vector<LaneRings> lanes_;
  CommandCounters& counters_;
  /// After so many rounds without a command a client rests: a round looks into the queue of one of
  /// those, in turns, so that it costs the same however many they are.
  static constexpr std::uint32_t kQuietRounds = 4096;

  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> awake_;  // by id
  std::size_t next_look_ = 0;   // into clients_
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_map<std::uint64_t, Group*> group_index_;                // by handle
  std::unordered_map<std::uint64_t, std::unique_ptr<Memory>> memories_;  // client and handle
  std::vector<Group*> handing_;  // groups that may have an op that not every lane has yet
  std::vector<Request*> finished_;
  std::vector<Request*> drains_;
  bool draining_ = false;
  bool removals_ = false;  // something waits in release_finished()
  bool news_ = false;      // pop_fault() or pop_abort() has something to tell
};

}  // namespace gradwire::command
