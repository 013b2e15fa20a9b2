// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The command lane by seeds: clients of several users that post right and wrong commands, free
/// memory, leave and die at any time; a control thread that does with requests what the daemon's
/// does; lanes that take what they are given, late, and report it in any order. No shards, no
/// network: ops end by chance. What is judged:
/// - each command is answered once, by the status that fits: done only if every lane was through
///   with it, refused only for a reason, aborted only if its group ended;
/// - what lanes are given is what was called, within the callers' memory, and what a shard takes;
/// - memory is given back when no lane refers to it any more, and every request is finished;
/// - one round of the lane has so many steps at most, whatever clients do, and a client that calls
///   little is read within a few rounds.
/// One thread; it allocates.
#pragma once

#include <rte_ring.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/transfers/transfer.h"
#include "command/command_lane.h"
#include "ipc/command_queue.h"
#include "sim/random.h"

namespace gradwire::sim {

class CommandWorld {
 public:
  explicit CommandWorld(std::uint64_t seed);
  ~CommandWorld();
  CommandWorld(const CommandWorld&) = delete;
  CommandWorld& operator=(const CommandWorld&) = delete;

  /// @return what was not as it has to be; empty: nothing.
  std::string run();
  /// Some lines for people.
  [[nodiscard]] std::string describe() const;

  struct Counts {
    std::uint64_t rounds = 0;
    std::uint64_t commands = 0;  ///< posted
    std::uint64_t done = 0;
    std::uint64_t refused = 0;
    std::uint64_t aborted = 0;
    std::uint64_t most_steps = 0;  ///< of a round
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  static constexpr std::uint64_t kSlots = 2048;  ///< of a memory, each for one call
  static constexpr std::uint64_t kSlotBytes = 128 << 10;
  static constexpr std::uint64_t kMemoryBytes = kSlots * kSlotBytes;
  /// A request of the control thread, until the lane has given it back.
  struct Asked {
    command::Request request;
    std::string what;
    std::uint64_t client = UINT64_MAX;  ///< index; of a memory and of a client
    bool finished = false;
  };
  struct Memory {
    std::uint32_t handle = 0;
    std::byte* base = nullptr;
    bool removing = false;
  };
  struct Posted {
    CollectiveCall call;
    std::uint64_t group = 0;
    bool fits = true;  ///< nothing at the time of the call is a reason to refuse it
    std::uint32_t memory = 0;
    std::size_t slot = 0;
    bool up_to = false;  ///< a receive that may get less than it has room for
  };
  struct Client {
    std::uint32_t id = 0;
    std::unique_ptr<std::byte[]> raw;
    ipc::QueueRegion* region = nullptr;
    ipc::ClientQueue queue;
    command::ClientPort port;
    bool alive = true;
    bool reads = true;  ///< its completions, now
    std::vector<Memory> memories;
    std::uint32_t next_handle = 1;
    std::uint64_t next_request = 1;
    std::vector<bool> slots = std::vector<bool>(kSlots);  ///< that an unanswered call has
    std::size_t next_slot = 0;
    std::map<std::uint64_t, Posted> unanswered;  ///< by request
    std::deque<std::uint64_t> pushed_at;         ///< rounds, of what is not read; 0: it may wait
    std::uint32_t read = 0;                      ///< of the queue's commands
  };
  /// What a lane has of a group.
  struct LaneOfGroup {
    bool formed = false;
    bool quiet = false;
    bool closed = false;
    std::uint64_t taken = 0;  ///< op_seq
    std::map<std::uint64_t, collective::OpSpec> ops;
    std::map<std::uint64_t, collective::TransferSpec> transfers;  ///< by id
  };
  struct Group {
    std::uint64_t handle = 0;
    std::vector<std::size_t> members;  ///< clients
    std::vector<bool> left;
    std::vector<std::size_t> called;    ///< of `calls`, by member
    std::vector<CollectiveCall> calls;  ///< that each member makes in turn, drawn when needed
    std::vector<std::size_t> ops;       ///< those that shards take, by op_seq from 1
    command::OpLimits limits;
    std::uint16_t rank = 0;
    std::vector<LaneOfGroup> lanes;
    std::map<std::uint64_t, std::uint32_t> lanes_done;  ///< by op_seq
    std::uint64_t transfers_done = 0;                   ///< by every lane
    std::uint64_t single_done = 0;  ///< sends and receives that were answered so
    std::map<std::uint64_t, std::uint32_t> transfer_lanes;
    bool may_differ = false;  ///< a member called otherwise, or one call of its was refused
    bool aborting = false;    ///< the lanes are told to abort
    bool leaving = false;
  };

  // command_world.cc
  void fail(const std::string& what);
  void round();
  void check_reading(Client& client);
  void drain_lanes(bool all);
  void report(Group& group, std::uint8_t lane, collective::EventType type, std::uint64_t op_seq,
              std::uint64_t bytes = 0);
  void lanes_work();
  void lane_works(Group& group, std::uint8_t lane);
  void take_news();
  void finish_requests();
  void check_memory_is_free(const Asked& asked);
  [[nodiscard]] bool refers(const Group& group, const LaneOfGroup& lane,
                            const Memory& memory) const;
  void check_spec(const Group& group, const collective::OpSpec& spec);
  [[nodiscard]] Group* find_group(std::uint64_t handle);
  /// @return whether all is at its end.
  bool end_all();

  // command_clients.cc
  void add_client(std::uint32_t user);
  void add_memory(std::size_t client);
  void add_group(std::size_t first);
  void clients_act();
  void act(std::size_t client);
  void post(std::size_t client);
  /// The next call of a member: the same for each.
  [[nodiscard]] const CollectiveCall& next_call(Group& group, std::size_t member);
  [[nodiscard]] CollectiveCall drawn_op(const Group& group);
  [[nodiscard]] CollectiveCall drawn_transfer(const Group& group);
  [[nodiscard]] static bool is_taken(const Group& group, const CollectiveCall& call);
  /// Makes a command wrong. @return whether it is refused for sure.
  bool spoil(ipc::CommandEntry& command);
  void read_answers(std::size_t client);
  void check_answer(std::size_t client, const Posted& posted, const ipc::CompletionEntry& answer);
  void leave(std::size_t client, Group& group);
  void free_memory(std::size_t client, Memory& memory);
  void die(std::size_t client);
  void drain();
  void abort(Group& group);
  void ask_to_leave(Group& group);
  command::Request* ask(command::RequestType type, std::string what);

  /// Of many clients each has an address range of its own, which nobody touches.
  static constexpr std::uint64_t kAddresses = std::uint64_t{1} << 40;

  const std::uint64_t seed_;
  Random random_;
  Random sizes_;  ///< of receives up to a size: all else is drawn as without them
  std::uint8_t lane_count_ = 1;
  std::uint32_t users_ = 1;
  std::uint32_t rounds_wanted_ = 0;
  double activity_ = 0;  ///< chance of an action of a client in a round
  double lane_speed_ = 0;
  double wrong_ = 0;  ///< chance that a command is wrong
  std::uint32_t burst_ = 1;
  std::uint64_t next_address_ = kAddresses;
  std::vector<std::unique_ptr<command::WakeBell>> bells_;
  std::vector<command::LaneRings> rings_;
  command::CommandCounters counters_;
  std::unique_ptr<command::CommandLane> lane_;
  std::deque<Client> clients_;
  std::deque<Group> groups_;
  std::deque<Asked> asked_;
  std::uint64_t next_group_ = 1;
  bool draining_ = false;
  bool posting_ = true;
  Counts counts_;
  std::string failure_;
};

}  // namespace gradwire::sim
