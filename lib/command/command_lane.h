// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What lane 0 does besides being a lane: it alone reads the clients' command queues, checks each
/// command on a private copy, counts commands into ops, compares what the members of a group
/// called, hands complete ops to every lane, and answers when every lane is done. It depends on
/// rings and queues only, not on ports, shards or clocks.
///
/// Lane 0 owns it. Adding a client, a memory or a group allocates, which happens rarely; poll() and
/// on_report() do not.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "command/command_check.h"
#include "command/counters.h"
#include "command/links.h"
#include "command/messages.h"
#include "command/transfer_calls.h"

namespace gradwire::command {

class CommandLane {
 public:
  /// How many commands a round takes from one client, so that other clients and packets get their
  /// turn.
  static constexpr int kCommandsPerRound = 16;

  /// `lanes`: every lane of the daemon, including this one.
  CommandLane(std::span<const LaneRings> lanes, CommandCounters& counters);
  ~CommandLane();
  CommandLane(const CommandLane&) = delete;
  CommandLane& operator=(const CommandLane&) = delete;

  // Requests of the control thread. Those with a Request keep it until pop_finished() returns it.
  void add_client(ClientPort* client);
  /// Stops reading its commands. @return the client; nullptr if unknown.
  ClientPort* remove_client(Request* request);
  void add_memory(const MemoryRegion& region);
  void remove_memory(Request* request);
  /// It stays until the client is removed.
  void add_event(std::uint32_t client_id, std::uint32_t handle, reduce::ReadyEvent* event);
  void add_group(std::uint64_t group_handle, std::span<const std::uint32_t> member_clients,
                 std::uint16_t rank, const OpLimits& limits,
                 const std::string& why_no_transfers = {});
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

  void on_report(const LaneReport& report) noexcept;
  /// Reads commands, passes ops to lanes, retries what found no room. @return whether it did
  /// anything.
  bool poll() noexcept;

  [[nodiscard]] bool pop_finished(Request*& request) noexcept;
  /// Whether to call pop_fault() and pop_abort().
  [[nodiscard]] bool has_news() const noexcept { return news_; }
  void clear_news() noexcept { news_ = false; }
  /// A client broke the queue's rules; reported once for each client.
  [[nodiscard]] bool pop_fault(std::uint32_t& client_id, AbortReason& why) noexcept;
  /// The members of a group called different ops, so this lane must abort its shard.
  [[nodiscard]] bool pop_abort(std::uint64_t& group_handle, AbortReason& reason) noexcept;

  // For sleeping, by the protocol of ipc/command_queue.h.
  void set_sleeping(bool sleeping) noexcept;
  [[nodiscard]] bool has_command() const noexcept;
  /// Checks every queue, also those of resting clients. A round checks only one of these, which
  /// would be too rare before and after a sleep, since rounds are then far apart.
  /// @return whether a resting client has a command.
  bool find_commands() noexcept;
  /// Whether an op waits for an event, which cannot wake the lane.
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
  [[nodiscard]] bool take_command(Client& client, const ipc::CommandEntry& command,
                                  double factor) noexcept;
  void join_op(Client& client, Group& group, std::size_t member, std::uint16_t record,
               const ipc::CommandEntry& command, double factor) noexcept;
  void begin_transfers(Client& client, Group& group, std::size_t member, std::uint16_t record,
                       const TransferCommand& command) noexcept;
  void take_over_transfers(Group& group) noexcept;
  bool hand_out_transfers(Group& group) noexcept;
  void end_transfers(Group& group) noexcept;
  void refuse(Client& client, std::uint16_t record, const Refusal& refusal) noexcept;
  void complete(Client& client, std::uint16_t record, ErrorCode status, const char* text) noexcept;
  void drain_completions(Client& client) noexcept;
  void finish_op(Group& group, OpSlot& slot) noexcept;
  void end_group(Group& group) noexcept;
  bool hand_out(Group& group) noexcept;
  /// Marks ops as ready whose inputs are all there.
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
  /// After this many rounds without a command a client rests. A round checks the queue of only one
  /// resting client, in turn, so its cost does not depend on their number.
  static constexpr std::uint32_t kQuietRounds = 4096;

  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> awake_;  // by id
  std::size_t next_look_ = 0;   // into clients_
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_map<std::uint64_t, Group*> group_index_;                // by handle
  std::unordered_map<std::uint64_t, std::unique_ptr<Memory>> memories_;  // client and handle
  std::vector<Group*> handing_;  // groups that may have ops not yet passed to every lane
  std::vector<Request*> finished_;
  std::vector<Request*> drains_;
  bool draining_ = false;
  bool removals_ = false;  // release_finished() has something to do
  bool news_ = false;      // pop_fault() or pop_abort() has something to report
};

}  // namespace gradwire::command
