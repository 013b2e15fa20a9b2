// SPDX-License-Identifier: BSD-3-Clause
#include "command_world.h"

#include <fmt/format.h>
#include <rte_ring_elem.h>

#include <algorithm>
#include <utility>

#include "base/require.h"
#include "collective/shapes/shape.h"
#include "command/create_ring.h"

namespace gradwire::sim {
namespace {

constexpr unsigned kRingEntries = 64;
/// Rounds after the last post in which all has to end.
constexpr std::uint64_t kEndRounds = 20'000;
/// Of these so many may pass until what can end by itself has ended.
constexpr std::uint64_t kWaitRounds = 2'000;

bool contains(const std::byte* base, std::uint64_t bytes, const std::byte* address) {
  return address != nullptr && address >= base && address < base + bytes;
}

rte_ring* make_ring(const std::string& name, std::size_t element) {
  rte_ring* const ring =
      command::create_ring(name, element, kRingEntries, RING_F_SP_ENQ | RING_F_SC_DEQ);
  require(ring != nullptr, "a lane's ring can be made");
  return ring;
}

}  // namespace

CommandWorld::CommandWorld(std::uint64_t seed)
    : seed_(seed), random_(seed * 0x9e3779b97f4a7c15u), sizes_(seed * 0x9e3779b97f4a7c15u + 3) {
  lane_count_ = random_.pick<std::uint8_t>({1, 2, 3, 16});
  users_ = static_cast<std::uint32_t>(random_.between(1, 6));
  rounds_wanted_ = static_cast<std::uint32_t>(random_.pick<std::uint64_t>({200, 1000, 3000}));
  activity_ = random_.pick({0.02, 0.2, 0.8});
  lane_speed_ = random_.pick({0.02, 0.2, 0.9});
  wrong_ = random_.pick({0.0, 0.01, 0.3, 1.0});
  burst_ = random_.pick({1u, 4u, 64u, 1024u});
  for (std::uint8_t lane = 0; lane < lane_count_; ++lane) {
    bells_.push_back(std::make_unique<command::WakeBell>());
    command::LaneRings rings;
    rings.bell = bells_.back().get();
    rings.ops = make_ring(fmt::format("ops{}", lane), sizeof(command::LaneOps));
    rings.transfers = make_ring(fmt::format("transfers{}", lane), sizeof(command::LaneTransfer));
    rings_.push_back(rings);
  }
  lane_ = std::make_unique<command::CommandLane>(rings_, counters_);
  const std::uint64_t clients = random_.pick<std::uint64_t>({2, 6, 12, 96});
  for (std::uint64_t i = 0; i < clients; ++i) {
    add_client(static_cast<std::uint32_t>(random_.below(users_)));
  }
}

CommandWorld::~CommandWorld() {
  lane_.reset();
  for (const command::LaneRings& rings : rings_) {
    rte_ring_free(rings.ops);
    rte_ring_free(rings.transfers);
  }
}

std::string CommandWorld::describe() const {
  return fmt::format(
      "seed {}: {} lanes, {} users, {} clients, {} rounds; a client acts in {} of them, lanes work "
      "in {}, {} of the commands are wrong, up to {} at once\n",
      seed_, lane_count_, users_, clients_.size(), rounds_wanted_, activity_, lane_speed_, wrong_,
      burst_);
}

void CommandWorld::fail(const std::string& what) {
  if (failure_.empty()) failure_ = fmt::format("round {}: {}", counts_.rounds, what);
}

std::string CommandWorld::run() {
  for (std::uint32_t i = 0; i < rounds_wanted_ && failure_.empty(); ++i) {
    clients_act();
    round();
  }
  posting_ = false;
  for (std::uint64_t i = 0; failure_.empty() && !end_all(); ++i) {
    if (i == kEndRounds) {
      for (const Asked& each : asked_) {
        if (!each.finished) fail(fmt::format("{} is not finished", each.what));
      }
      fail("what was posted does not end");
    }
    round();
  }
  return failure_;
}

void CommandWorld::round() {
  ++counts_.rounds;
  drain_lanes(false);
  lanes_work();
  if (random_.chance(0.1)) (void)lane_->find_commands();
  const std::uint64_t before = lane_->steps();
  lane_->poll();
  const std::uint64_t steps = lane_->steps() - before;
  counts_.most_steps = std::max(counts_.most_steps, steps);
  if (steps > command::CommandLane::kStepsMax) {
    fail(fmt::format("{} steps in one round, {} allowed", steps, command::CommandLane::kStepsMax));
  }
  for (Client& client : clients_) check_reading(client);
  finish_requests();
  take_news();
  for (std::size_t client = 0; client < clients_.size(); ++client) read_answers(client);
}

/// Who has little to say is heard soon: within one turn of all users and of all its user's clients.
void CommandWorld::check_reading(Client& client) {
  const std::uint32_t head = client.region->command_head.load(std::memory_order_relaxed);
  for (; client.read != head && !client.pushed_at.empty(); ++client.read) {
    const std::uint64_t pushed_at = client.pushed_at.front();
    client.pushed_at.pop_front();
    const std::uint64_t bound = 2 * clients_.size() + users_ + 2;
    if (pushed_at != 0 && client.alive && counts_.rounds - pushed_at > bound) {
      fail(fmt::format("a command of client {}, which had called little, was read after {} rounds",
                       client.id, counts_.rounds - pushed_at));
    }
  }
  client.read = head;
}

CommandWorld::Group* CommandWorld::find_group(std::uint64_t handle) {
  const auto found = std::ranges::find(groups_, handle, &Group::handle);
  return found == groups_.end() ? nullptr : &*found;
}

void CommandWorld::check_spec(const Group& group, const collective::OpSpec& spec) {
  if (spec.op_seq == 0 || spec.op_seq > group.ops.size()) {
    if (!group.may_differ) fail(fmt::format("op {} was not called", spec.op_seq));
    return;
  }
  const CollectiveCall& call = group.calls[group.ops[spec.op_seq - 1]];
  const std::uint32_t root = has_root(call.collective) ? call.root : collective::kNoRoot;
  const bool same = spec.collective == call.collective && spec.count == call.count &&
                    spec.tag == call.tag && spec.datatype == call.datatype &&
                    spec.redop == call.redop && spec.root == root;
  if (!same && !group.may_differ) {
    fail(fmt::format("op {} of group {} is not what was called", spec.op_seq, group.handle));
  }
  const std::uint64_t chunks = collective::lane_chunks(
      group.limits.shape, group.limits.shape.payload_bytes, group.limits.lanes,
      {spec.collective, spec.datatype, spec.root, spec.count, spec.redop});
  if (chunks > group.limits.max_chunks) {
    fail(fmt::format(
        "op {} of group {}, {} of {} {} with {} members a rank, was taken, and has {} chunks for a "
        "lane; a shard takes {}",
        spec.op_seq, group.handle, name_of(spec.collective), spec.count, name_of(spec.datatype),
        group.members.size(), chunks, group.limits.max_chunks));
  }
}

/// What lies in their rings; a lane that lags takes it later, unless `all` is to be taken.
void CommandWorld::drain_lanes(bool all) {
  for (std::uint8_t lane = 0; lane < lane_count_; ++lane) {
    if (!all && !random_.chance(lane_speed_)) continue;
    command::LaneOps ops;
    while (rte_ring_sc_dequeue_elem(rings_[lane].ops, &ops, sizeof ops) == 0) {
      Group* const group = find_group(ops.group_handle);
      if (group == nullptr || group->lanes[lane].quiet) continue;
      LaneOfGroup& own = group->lanes[lane];
      while (own.taken < ops.op_seq) {
        const collective::OpSpec& spec = ops.specs[++own.taken % command::kOpSlots];
        if (spec.op_seq != own.taken) {
          fail(fmt::format("lane {} finds op {} where op {} has to be", lane, spec.op_seq,
                           own.taken));
        }
        check_spec(*group, spec);
        own.ops[own.taken] = spec;
      }
    }
    command::LaneTransfer transfer;
    while (rte_ring_sc_dequeue_elem(rings_[lane].transfers, &transfer, sizeof transfer) == 0) {
      Group* const group = find_group(transfer.group_handle);
      if (group == nullptr || group->lanes[lane].quiet) continue;
      LaneOfGroup& own = group->lanes[lane];
      if (lane != 0 && transfer.spec->up_to) {
        fail(fmt::format("lane {} is given a receive whose size is not known", lane));
      }
      if (!own.transfers.emplace(transfer.spec->id, *transfer.spec).second) {
        fail(fmt::format("lane {} is given transfer {} while it has it", lane, transfer.spec->id));
      }
    }
  }
}

void CommandWorld::report(Group& group, std::uint8_t lane, collective::EventType type,
                          std::uint64_t op_seq, std::uint64_t bytes) {
  AbortReason reason;
  if (type == collective::EventType::kAborted) reason.code = AbortCode::kSilence;
  const std::uint64_t before = lane_->steps();
  lane_->on_report({group.handle, op_seq, type, lane, reason, bytes});
  const std::uint64_t steps = lane_->steps() - before;
  if (steps > command::CommandLane::kStepsMax) fail(fmt::format("{} steps for one report", steps));
}

void CommandWorld::lanes_work() {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (std::uint8_t lane = 0; lane < groups_[i].lanes.size(); ++lane) {
      if (random_.chance(posting_ ? lane_speed_ : 0.5)) lane_works(groups_[i], lane);
    }
  }
}

void CommandWorld::lane_works(Group& group, std::uint8_t lane) {
  LaneOfGroup& own = group.lanes[lane];
  if (own.closed) return;
  if (!own.quiet && group.aborting) {
    own.quiet = true;
    own.ops.clear();
    own.transfers.clear();
    return report(group, lane, collective::EventType::kAborted, 0);
  }
  if (group.leaving) {
    own.quiet = own.closed = true;
    own.ops.clear();
    own.transfers.clear();
    return report(group, lane, collective::EventType::kClosed, 0);
  }
  if (own.quiet) return;
  if (!own.formed) {
    own.formed = true;
    return report(group, lane, collective::EventType::kFormed, 0);
  }
  // Any of the first few: ops need not end in their order.
  if (!own.ops.empty()) {
    auto op = own.ops.begin();
    std::advance(op, random_.below(std::min<std::size_t>(own.ops.size(), 4)));
    const std::uint64_t op_seq = op->first;
    own.ops.erase(op);
    ++group.lanes_done[op_seq];
    report(group, lane, collective::EventType::kOpDone, op_seq);
  }
  for (int i = 0; i < 4 && !own.transfers.empty(); ++i) {
    auto transfer = own.transfers.begin();
    std::advance(transfer, random_.below(own.transfers.size()));
    const std::uint64_t id = transfer->first;
    if (transfer->second.up_to) {
      transfer->second.up_to = false;
      const std::uint64_t bytes = sizes_.below(transfer->second.terms.bytes + 1);
      report(group, lane, collective::EventType::kTransferSized, id, bytes);
      if (sizes_.chance(0.5)) continue;
    }
    own.transfers.erase(transfer);
    if (++group.transfer_lanes[id] == group.lanes.size()) {
      group.transfer_lanes.erase(id);
      ++group.transfers_done;
    }
    report(group, lane, collective::EventType::kTransferDone, id);
  }
}

void CommandWorld::take_news() {
  if (!lane_->has_news()) return;
  lane_->clear_news();
  std::uint32_t client_id = 0;
  AbortReason reason;
  while (lane_->pop_fault(client_id, reason)) {
    const auto found = std::ranges::find(clients_, client_id, &Client::id);
    if (found == clients_.end()) continue;
    die(static_cast<std::size_t>(found - clients_.begin()));
  }
  std::uint64_t handle = 0;
  while (lane_->pop_abort(handle, reason)) {
    Group* const group = find_group(handle);
    if (group == nullptr) continue;
    const bool some_left = std::ranges::find(group->left, true) != group->left.end();
    if (!group->may_differ && !some_left) {
      fail(fmt::format("group {} aborts, and nobody did anything wrong: {}", handle,
                       gradwire::describe(reason)));
    }
    abort(*group);
  }
}

bool CommandWorld::refers(const Group& group, const LaneOfGroup& lane, const Memory& memory) const {
  for (const auto& [seq, spec] : lane.ops) {
    for (std::size_t member = 0; member < group.members.size(); ++member) {
      if (contains(memory.base, kMemoryBytes, spec.inputs[member]) ||
          contains(memory.base, kMemoryBytes, spec.outputs[member])) {
        return true;
      }
    }
  }
  return std::ranges::any_of(lane.transfers, [&](const auto& each) {
    return contains(memory.base, kMemoryBytes, each.second.from) ||
           contains(memory.base, kMemoryBytes, each.second.to);
  });
}

void CommandWorld::check_memory_is_free(const Asked& asked) {
  drain_lanes(true);
  Client& client = clients_[asked.client];
  const auto memory = std::ranges::find(client.memories, asked.request.memory, &Memory::handle);
  for (const Group& group : groups_) {
    for (const LaneOfGroup& lane : group.lanes) {
      if (!refers(group, lane, *memory)) continue;
      fail(fmt::format("memory {} of client {} is given back, and a lane still has an op in it",
                       memory->handle, client.id));
    }
  }
  client.memories.erase(memory);
}

void CommandWorld::finish_requests() {
  command::Request* request = nullptr;
  while (lane_->pop_finished(request)) {
    const auto asked =
        std::ranges::find_if(asked_, [&](const Asked& each) { return &each.request == request; });
    if (asked == asked_.end() || asked->finished) {
      return fail("a request comes back that nobody made, or twice");
    }
    asked->finished = true;
    switch (request->type) {
      case command::RequestType::kRemoveMemory:
        check_memory_is_free(*asked);
        break;
      case command::RequestType::kLeaveGroup: {
        const auto group = std::ranges::find(groups_, request->group_handle, &Group::handle);
        const bool closed = std::ranges::all_of(group->lanes, &LaneOfGroup::closed);
        if (!closed) fail(fmt::format("{} is through, and a lane has not closed it", asked->what));
        groups_.erase(group);
        break;
      }
      default:
        break;
    }
  }
}

bool CommandWorld::end_all() {
  if (std::exchange(draining_, false)) lane_->resume();
  bool ended = true;
  for (Client& client : clients_) {
    client.reads = true;
    if (client.alive && !client.unanswered.empty()) ended = false;
  }
  // First what ends by itself, then what is ended. Half of the seeds end with all under way.
  if (!ended && seed_ % 2 == 0 && counts_.rounds < rounds_wanted_ + kWaitRounds) return false;
  for (std::size_t client = 0; client < clients_.size(); ++client) die(client);
  for (Group& group : groups_) ask_to_leave(group);
  return groups_.empty() && std::ranges::all_of(asked_, &Asked::finished);
}

}  // namespace gradwire::sim
