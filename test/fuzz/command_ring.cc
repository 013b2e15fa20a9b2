// SPDX-License-Identifier: BSD-3-Clause
// The command lane under two hostile clients that write whatever they like wherever they like in
// their queue regions, while groups form, abort and are left and memory is freed. An op that is
// handed to the lanes must lie in its members' memory, and that memory must stay until the lanes
// are done with it; the command lane must answer every request exactly once.
// The input is a list of actions, a byte each and then their fields.
#include <rte_ring_elem.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "command/command_lane.h"
#include "command/create_ring.h"
#include "fuzz/eal.h"
#include "fuzz/hostile_commands.h"
#include "fuzz/input.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using namespace gradwire::command;

constexpr std::uint8_t kLanes = 2;
constexpr std::uint32_t kClients = 2;
constexpr std::size_t kMemoryBytes = 512;
constexpr std::uint16_t kRanks = 2, kStreams = 3;  // this daemon is rank 0
std::array<rte_ring*, kLanes> op_rings;
std::array<rte_ring*, kLanes> transfer_rings;

class Run {
 public:
  Run() {
    for (std::uint8_t lane = 0; lane < kLanes; ++lane) {
      bells_.push_back(std::make_unique<WakeBell>());
      lanes_[lane].ops = op_rings[lane];
      lanes_[lane].transfers = transfer_rings[lane];
      lanes_[lane].bell = bells_.back().get();
    }
    commands_ = std::make_unique<CommandLane>(lanes_, counters_);
    for (std::uint32_t id = 1; id <= kClients; ++id) {
      clients_.push_back(std::make_unique<HostileClient>(id));
      commands_->add_client(&clients_.back()->port);
      add_memory(id, 1);
      add_memory(id, 2);
    }
    add_group(1, {1});
    add_group(2, {1, 2});
    form(1);
    form(2);
  }

  void act(Input& input) {
    HostileClient& client = *clients_[input.pick(kClients)];
    switch (input.pick(15)) {
      case 0:
      case 1:
        return push(client, input, Collective::kAllReduce, 0);
      case 2: {
        static constexpr Collective kOthers[] = {Collective::kReduce,        Collective::kBroadcast,
                                                 Collective::kAllGather,     Collective::kAllReduce,
                                                 Collective::kReduceScatter, Collective::kBarrier};
        const std::uint32_t which = input.pick(std::size(kOthers) + 1);
        const std::uint32_t root = input.pick(6);
        // The last has any number, and any root.
        return which < std::size(kOthers)
                   ? push(client, input, kOthers[which], root)
                   : push(client, input, static_cast<Collective>(input.u8()), input.u32());
      }
      case 3: {  // anywhere in the region, its indexes too
        const std::size_t at = input.u32() % sizeof(ipc::QueueRegion);
        const auto bytes =
            input.bytes(std::min<std::size_t>(1 + input.u8(), sizeof(ipc::QueueRegion) - at));
        std::memcpy(reinterpret_cast<std::byte*>(client.region) + at, bytes.data(), bytes.size());
        return;
      }
      case 4:
        client.region->command_tail.fetch_add(input.u8(), std::memory_order_release);
        return;
      case 5:
        client.region->completion_head.store(input.u32(), std::memory_order_release);
        return;
      case 6: {
        ipc::CompletionEntry entry;
        for (std::uint32_t n = input.u8(); n > 0; --n) {
          if (client.queue.pop_completion(entry) != ipc::PopResult::kEntry) return;
        }
        return;
      }
      case 7:
      case 8:
        return poll();
      case 9: {
        const auto lane = static_cast<std::uint8_t>(input.pick(kLanes));
        return lane_works(lane, input.u8());
      }
      case 10: {
        const std::uint64_t handle = 1 + input.pick(2);
        return abort(handle, static_cast<std::uint8_t>(input.pick(kLanes)));
      }
      case 11:
      case 12: {
        const auto kind = static_cast<Collective>(6 + input.pick(5));
        const std::uint32_t root = input.pick(6);
        return push(client, input, kind, root);
      }
      case 13:
        return push_splits(client, input);
    }
    switch (input.pick(6)) {
      case 5:
        return scribble(client.port.client_id, input);
      case 0:
        return remove_memory(client.port.client_id, 1 + input.pick(3));
      case 1:
        return leave(1 + input.pick(2));
      case 2:
        commands_->set_sleeping(input.pick(2) != 0);
        static_cast<void>(commands_->has_command());
        return;
      case 3:
        if (!client.removed) add_memory(client.port.client_id, next_memory_++);
        return;
      default:
        return;
    }
  }

  /// As the control thread ends it: groups, memory, clients.
  void finish() {
    for (const std::uint64_t handle : {1, 2}) {
      leave(handle);
      for (std::uint8_t lane = 0; lane < kLanes; ++lane) {
        lane_works(lane, 255);
        report(handle, lane, collective::EventType::kClosed);
      }
    }
    for (const auto& [key, memory] : memories_) {
      remove_memory(static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key));
    }
    for (auto& client : clients_) remove_client(*client);
    for (int round = 0; round < 100; ++round) poll();
    FUZZ_CHECK(requests_.size() == returned_);
    FUZZ_CHECK(memories_.empty());
    FUZZ_CHECK(commands_->client_count() == 0);
  }

 private:
  struct Group {
    std::vector<std::uint32_t> members;
    std::array<std::uint64_t, kLanes> handed{};
    std::array<std::uint64_t, kLanes> worked{};
    const collective::OpSpec* specs = nullptr;
    std::array<bool, kLanes> ended{};  // the lane touches nothing of it any more
  };

  static std::uint64_t key_of(std::uint32_t client, std::uint32_t memory) {
    return std::uint64_t{client} << 32 | memory;
  }
  void add_memory(std::uint32_t client, std::uint32_t handle) {
    auto& memory = memories_[key_of(client, handle)];
    memory = std::make_unique<std::byte[]>(kMemoryBytes);
    commands_->add_memory({client, handle, memory.get(), kMemoryBytes});
  }
  void add_group(std::uint64_t handle, std::vector<std::uint32_t> members) {
    OpLimits limits{{.nranks = kRanks, .payload_bytes = 64}, false, kLanes, 4, {}, kStreams};
    commands_->add_group(handle, members, 0, limits);
    groups_[handle].members = std::move(members);
  }
  void report(std::uint64_t handle, std::uint8_t lane, collective::EventType type,
              std::uint64_t op_seq = 0, AbortReason reason = {}) {
    commands_->on_report({handle, op_seq, type, lane, reason});
  }
  void form(std::uint64_t handle) {
    for (std::uint8_t lane = 0; lane < kLanes; ++lane)
      report(handle, lane, collective::EventType::kFormed);
  }
  Request* request(RequestType type) {
    requests_.push_back(std::make_unique<Request>());
    requests_.back()->type = type;
    return requests_.back().get();
  }

  void push(HostileClient& client, Input& input, Collective collective, std::uint32_t root) {
    push_any(client.queue, input, collective, root);
  }
  void push_splits(HostileClient& client, Input& input) {
    const auto memory = [&](std::uint32_t handle) {
      const auto found = memories_.find(key_of(client.port.client_id, handle));
      return std::span(found == memories_.end() ? nullptr : found->second.get(),
                       found == memories_.end() ? 0 : kMemoryBytes);
    };
    static_cast<void>(client.queue.push_command(split_command(input, kRanks, memory)));
  }
  /// A client writes to its memory whenever it likes.
  void scribble(std::uint32_t client, Input& input) {
    const auto found = memories_.find(key_of(client, 1 + input.pick(3)));
    const std::size_t at = input.pick(kMemoryBytes / 8) * 8;
    const std::uint64_t value = input.small_or_any();
    if (found != memories_.end()) std::memcpy(found->second.get() + at, &value, sizeof value);
  }

  void poll() {
    static_cast<void>(commands_->poll());
    std::uint32_t client_id = 0;
    std::uint64_t handle = 0;
    AbortReason reason;
    while (commands_->pop_fault(client_id, reason)) FUZZ_CHECK(client_id >= 1);
    while (commands_->pop_abort(handle, reason)) {
      for (std::uint8_t lane = 0; lane < kLanes; ++lane) abort(handle, lane);
    }
    commands_->clear_news();
    Request* back = nullptr;
    while (commands_->pop_finished(back)) {
      ++returned_;
      if (back->type == RequestType::kRemoveMemory) {
        memories_.erase(key_of(back->client_id, back->memory));
        removing_.erase(key_of(back->client_id, back->memory));
      }
    }
  }

  /// Takes what was handed out, reads and writes it as a lane would, and says that it is done.
  void lane_works(std::uint8_t lane, std::uint32_t ops_done) {
    LaneOps ops;
    while (rte_ring_sc_dequeue_elem(op_rings[lane], &ops, sizeof ops) == 0) {
      Group& group = groups_.at(ops.group_handle);
      FUZZ_CHECK(ops.op_seq > group.handed[lane]);
      group.handed[lane] = ops.op_seq;
      group.specs = ops.specs;
    }
    take_transfers(lane);
    for (; ops_done > 0 && !transfers_[lane].empty(); --ops_done) {
      const auto chosen = transfers_[lane].begin() +
                          static_cast<std::ptrdiff_t>(ops_done % transfers_[lane].size());
      const auto [handle, spec] = *chosen;
      transfers_[lane].erase(chosen);
      const Group& group = groups_.at(handle);
      if (group.ended[lane]) continue;
      FUZZ_CHECK(is_for(lane, kLanes, kStreams, spec));
      touch(group, spec);
      if (spec.up_to) tell_size(*commands_, handle, lane, spec, 1 + ops_done % 3);
      report(handle, lane, collective::EventType::kTransferDone, spec.id);
    }
    for (auto& [handle, group] : groups_) {
      for (; !group.ended[lane] && ops_done > 0 && group.worked[lane] < group.handed[lane];
           --ops_done) {
        const std::uint64_t op_seq = ++group.worked[lane];
        const collective::OpSpec& spec = group.specs[op_seq % kOpSlots];
        FUZZ_CHECK(spec.op_seq == op_seq && is_valid(spec.datatype) && is_valid(spec.redop));
        FUZZ_CHECK(is_valid(spec.collective) && collective::is_supported(spec.collective));
        FUZZ_CHECK(has_root(spec.collective) == (spec.root != collective::kNoRoot));
        for (std::size_t member = 0; member < group.members.size() && spec.count != 0; ++member)
          touch(group, spec, member);
        touch_residuals(spec, kRanks * group.members.size(),
                        [&](auto* at, auto bytes) { return inside(group.members[0], at, bytes); });
        report(handle, lane, collective::EventType::kOpDone, op_seq);
      }
    }
  }
  void take_transfers(std::uint8_t lane) {
    LaneTransfer transfer;
    while (rte_ring_sc_dequeue_elem(transfer_rings[lane], &transfer, sizeof transfer) == 0) {
      const Group& group = groups_.at(transfer.group_handle);
      const collective::TransferSpec& spec = *transfer.spec;
      // A pair has one at a time under way on a lane.
      for (const auto& [handle, other] : transfers_[lane]) {
        FUZZ_CHECK(handle != transfer.group_handle || other.id != spec.id || group.ended[lane]);
      }
      FUZZ_CHECK(spec.terms.call <= wire::kLastTransferCall);
      transfers_[lane].emplace_back(transfer.group_handle, spec);
    }
  }
  void touch(const Group& group, const collective::TransferSpec& spec) {
    const bool sends = spec.end == collective::TransferEnd::kSource;
    const std::uint16_t member = sends ? spec.pair.source : spec.pair.destination;
    const std::size_t members = group.members.size();
    FUZZ_CHECK(member < members);  // this daemon is rank 0
    FUZZ_CHECK((sends ? spec.pair.destination : spec.pair.source) < kRanks * members);
    if (spec.terms.bytes == 0) return;
    const std::byte* const at = sends ? spec.from : spec.to;
    FUZZ_CHECK(inside(group.members[member], at, spec.terms.bytes));
    if (sends) {
      for (std::uint64_t i = 0; i < spec.terms.bytes; ++i)
        sum_ = static_cast<std::uint8_t>(sum_ + std::to_integer<int>(spec.from[i]));
    } else {
      std::memset(spec.to, sum_, spec.terms.bytes);
    }
  }
  /// Reads and writes what the op says that the member brings.
  void touch(const Group& group, const collective::OpSpec& spec, std::size_t member) {
    const auto members = static_cast<std::uint32_t>(group.members.size());
    CollectiveCall call;
    call.collective = spec.collective;
    call.datatype = spec.datatype;
    call.count = spec.count;
    if (has_root(spec.collective)) call.root = spec.root;
    FUZZ_CHECK(call.root < kRanks * members);
    const auto extent = extent_of(call, {static_cast<std::uint32_t>(member), kRanks * members});
    FUZZ_CHECK(extent.has_value());
    const std::uint32_t client = group.members[member];
    std::uint8_t sum = 0;
    FUZZ_CHECK((extent->input != 0) == (spec.inputs[member] != nullptr));
    FUZZ_CHECK((extent->output != 0) == (spec.outputs[member] != nullptr));
    if (extent->input != 0) {
      FUZZ_CHECK(inside(client, spec.inputs[member], extent->input));
      for (std::size_t i = 0; i < extent->input; ++i)
        sum = static_cast<std::uint8_t>(sum + std::to_integer<int>(spec.inputs[member][i]));
    }
    if (extent->output != 0) {
      FUZZ_CHECK(inside(client, spec.outputs[member], extent->output));
      std::memset(spec.outputs[member], sum, extent->output);
    }
  }
  bool inside(std::uint32_t client, const std::byte* at, std::size_t bytes) {
    for (const auto& [key, memory] : memories_) {
      if (key >> 32 == client && at >= memory.get() && bytes <= kMemoryBytes &&
          at + bytes <= memory.get() + kMemoryBytes)
        return true;
    }
    return false;
  }

  void abort(std::uint64_t handle, std::uint8_t lane) {
    Group& group = groups_.at(handle);
    if (group.ended[lane]) return;
    group.ended[lane] = true;
    AbortReason reason{.code = AbortCode::kClientAbort, .op_seq = 1};
    reason.set_detail("the input says so");
    report(handle, lane, collective::EventType::kAborted, 0, reason);
  }
  void leave(std::uint64_t handle) {
    Request* wish = request(RequestType::kLeaveGroup);
    wish->group_handle = handle;
    commands_->leave_group(wish);
  }
  void remove_memory(std::uint32_t client, std::uint32_t handle) {
    // The control thread asks once: a second request is answered though the first still waits.
    if (!removing_.insert(key_of(client, handle)).second) return;
    Request* wish = request(RequestType::kRemoveMemory);
    wish->client_id = client;
    wish->memory = handle;
    commands_->remove_memory(wish);
  }
  void remove_client(HostileClient& client) {
    client.removed = true;
    Request* wish = request(RequestType::kRemoveClient);
    wish->client_id = client.port.client_id;
    static_cast<void>(commands_->remove_client(wish));
  }

  CommandCounters counters_;
  std::vector<std::unique_ptr<WakeBell>> bells_;
  std::array<LaneRings, kLanes> lanes_{};
  std::vector<std::unique_ptr<HostileClient>> clients_;
  std::map<std::uint64_t, std::unique_ptr<std::byte[]>> memories_;  // by client and handle
  std::map<std::uint64_t, Group> groups_;
  /// [lane], what it was given, by group.
  std::array<std::vector<std::pair<std::uint64_t, collective::TransferSpec>>, kLanes> transfers_;
  std::uint8_t sum_ = 0;
  std::set<std::uint64_t> removing_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::size_t returned_ = 0;
  std::uint32_t next_memory_ = 3;
  std::unique_ptr<CommandLane> commands_;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  start_eal();
  for (std::uint8_t lane = 0; lane < kLanes; ++lane) {
    op_rings[lane] = create_ring("fuzz_ops" + std::to_string(lane), sizeof(LaneOps), 8,
                                 RING_F_SP_ENQ | RING_F_SC_DEQ);
    transfer_rings[lane] = create_ring("fuzz_transfers" + std::to_string(lane),
                                       sizeof(LaneTransfer), 8, RING_F_SP_ENQ | RING_F_SC_DEQ);
    FUZZ_CHECK(op_rings[lane] != nullptr && transfer_rings[lane] != nullptr);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(std::as_bytes(std::span(data, size)));
  {
    Run run;
    for (int actions = 0; actions < 2000 && !input.empty(); ++actions) run.act(input);
    run.finish();
  }
  for (rte_ring* ring : op_rings) rte_ring_reset(ring);
  for (rte_ring* ring : transfer_rings) rte_ring_reset(ring);
  return 0;
}
