// SPDX-License-Identifier: BSD-3-Clause
// What the clients do, and the control thread for them.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/require.h"
#include "collective/shapes/shape.h"
#include "command_world.h"

namespace gradwire::sim {
namespace {

constexpr std::size_t kClientsMax = 128;
constexpr std::size_t kGroupsMax = 40;
constexpr std::uint64_t kRegionBytes = (sizeof(ipc::QueueRegion) + 63) / 64 * 64;
constexpr std::uint32_t kNoMemory = 0x7fffffff;

}  // namespace

command::Request* CommandWorld::ask(command::RequestType type, std::string what) {
  asked_.emplace_back();
  asked_.back().request.type = type;
  asked_.back().what = std::move(what);
  return &asked_.back().request;
}

void CommandWorld::add_client(std::uint32_t user) {
  Client& client = clients_.emplace_back();
  client.id = static_cast<std::uint32_t>(clients_.size());
  client.raw = std::make_unique<std::byte[]>(kRegionBytes + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(client.raw.get());
  client.region = ipc::create_queue_region(client.raw.get() + (64 - address % 64), kRegionBytes);
  require(client.region != nullptr, "a queue region has room");
  client.queue = ipc::ClientQueue(client.region);
  client.port.client_id = client.id;
  client.port.user = user;
  client.port.queue = ipc::DaemonQueue(client.region);
  lane_->add_client(&client.port);
  for (std::uint64_t i = random_.below(3) + 1; i > 0; --i) add_memory(clients_.size() - 1);
}

void CommandWorld::add_memory(std::size_t index) {
  Client& client = clients_[index];
  auto* const base = reinterpret_cast<std::byte*>(next_address_);
  next_address_ += kMemoryBytes;
  client.memories.push_back({client.next_handle++, base});
  lane_->add_memory({client.id, client.memories.back().handle, base, kMemoryBytes});
}

void CommandWorld::add_group(std::size_t first) {
  Group group;
  const std::uint64_t most = random_.pick<std::uint64_t>({1, 2, 4, 64});
  for (std::size_t i = 0; i < clients_.size() && group.members.size() < most; ++i) {
    const std::size_t client = (first + i) % clients_.size();
    if (clients_[client].alive) group.members.push_back(client);
  }
  if (group.members.empty()) return;
  group.handle = next_group_++;
  group.left.resize(group.members.size());
  group.called.resize(group.members.size());
  collective::ShapeGroup& shape = group.limits.shape;
  shape.nranks = random_.pick<std::uint16_t>({1, 2, 3, 8});
  group.rank = shape.rank = static_cast<std::uint16_t>(random_.below(shape.nranks));
  shape.member_count = static_cast<std::uint16_t>(group.members.size());
  shape.payload_bytes = random_.pick({256u, 1024u});
  shape.exchange_bytes = random_.pick<std::uint64_t>({0, 64 << 10});
  shape.direct_bytes = random_.pick<std::uint64_t>({0, 4 << 10, 64 << 10});
  if (shape.direct_bytes != 0) shape.two_step_bytes = random_.pick<std::uint64_t>({0, 64 << 10});
  group.limits.lanes = static_cast<std::uint8_t>(random_.between(1, lane_count_));
  group.limits.max_chunks = random_.pick({16u, 64u, 128u});
  group.lanes.resize(group.limits.lanes);
  std::vector<std::uint32_t> ids;
  for (const std::size_t member : group.members) ids.push_back(clients_[member].id);
  lane_->add_group(group.handle, ids, group.rank, group.limits);
  groups_.push_back(std::move(group));
}

void CommandWorld::clients_act() {
  if (groups_.size() < kGroupsMax && random_.chance(groups_.size() < 4 ? 0.5 : 0.02)) {
    add_group(random_.below(clients_.size()));
  }
  if (clients_.size() < kClientsMax && random_.chance(0.01)) {
    add_client(static_cast<std::uint32_t>(random_.below(users_)));
  }
  if (seed_ % 5 == 0 && random_.chance(0.01)) drain();
  for (Group& group : groups_) {
    // A neighbor is silent; all of its members were told of the end, and leave.
    if (random_.chance(0.0003)) abort(group);
    if (group.aborting && random_.chance(0.05)) ask_to_leave(group);
  }
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].alive && random_.chance(activity_)) act(client);
  }
}

void CommandWorld::act(std::size_t index) {
  Client& client = clients_[index];
  const double what = random_.unit();
  if (what < 0.0005) return die(index);
  if (what < 0.003) {
    if (client.memories.size() < 6) add_memory(index);
    return;
  }
  if (what < 0.006 && !client.memories.empty()) {
    return free_memory(index, client.memories[random_.below(client.memories.size())]);
  }
  if (what < 0.02) {
    client.reads = random_.chance(0.7);
    std::ranges::fill(client.pushed_at, 0);
    return;
  }
  if (what < 0.021 && random_.chance(wrong_)) {
    // An index that cannot be: it is to be cut off.
    const std::uint32_t head = client.region->command_head.load(std::memory_order_relaxed);
    client.region->command_tail.store(head + 5000, std::memory_order_release);
    return;
  }
  if (what < 0.023 && !groups_.empty()) {
    Group& group = groups_[random_.below(groups_.size())];
    return leave(index, group);
  }
  for (std::uint64_t i = random_.below(burst_) + 1; i > 0; --i) post(index);
}

bool CommandWorld::is_taken(const Group& group, const CollectiveCall& call) {
  const collective::ShapeGroup& shape = group.limits.shape;
  const std::uint32_t root = has_root(call.collective) ? call.root : collective::kNoRoot;
  return collective::lane_chunks(shape, shape.payload_bytes, group.limits.lanes,
                                 {call.collective, call.datatype, root, call.count, call.redop}) <=
         group.limits.max_chunks;
}

CollectiveCall CommandWorld::drawn_op(const Group& group) {
  const std::uint32_t processes =
      std::uint32_t{group.limits.shape.nranks} * group.limits.shape.member_count;
  CollectiveCall call;
  call.collective = random_.pick(
      {Collective::kAllReduce, Collective::kAllReduce, Collective::kReduceScatter,
       Collective::kAllGather, Collective::kBroadcast, Collective::kReduce, Collective::kBarrier});
  call.tag = static_cast<std::uint32_t>(random_.below(3));
  if (call.collective == Collective::kBarrier) return call;
  call.datatype =
      random_.pick({DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, DataType::kInt8});
  if (has_root(call.collective)) call.root = static_cast<std::uint32_t>(random_.below(processes));
  const std::uint64_t most = kSlotBytes / 2 / element_bytes(call.datatype);
  // About as much as a shard takes.
  const std::uint64_t taken = group.limits.max_chunks * group.limits.lanes *
                              std::uint64_t{group.limits.shape.payload_bytes} /
                              element_bytes(call.datatype);
  call.count = random_.below(std::min(most, 2 * taken));
  if (has_blocks(call.collective)) call.count /= processes;
  if (random_.chance(0.1)) call.count = 0;
  return call;
}

const CollectiveCall& CommandWorld::next_call(Group& group, std::size_t member) {
  const std::size_t index = group.called[member]++;
  if (index == group.calls.size()) {
    group.calls.push_back(drawn_op(group));
    if (is_taken(group, group.calls.back())) group.ops.push_back(index);
  }
  return group.calls[index];
}

CollectiveCall CommandWorld::drawn_transfer(const Group& group) {
  const std::uint32_t processes =
      std::uint32_t{group.limits.shape.nranks} * group.limits.shape.member_count;
  CollectiveCall call;
  call.collective =
      random_.pick({Collective::kSend, Collective::kSend, Collective::kRecv, Collective::kRecv,
                    Collective::kAllToAll, Collective::kGather, Collective::kScatter});
  if (call.collective != Collective::kAllToAll) {
    call.root = static_cast<std::uint32_t>(random_.below(processes));
  }
  call.count = random_.below(kSlotBytes / 8 / processes);
  return call;
}

bool CommandWorld::spoil(ipc::CommandEntry& command) {
  switch (random_.below(7)) {
    case 0:
      command.datatype = 200;
      return true;
    case 1:
      command.collective = static_cast<Collective>(77);
      return true;
    case 2:
      command.group_handle += 1 << 20;
      return true;
    case 3:
      command.flags = 9;
      return true;
    case 4:
      command.root = 1 << 20;
      return true;
    case 5:
      command.input_memory = command.output_memory = kNoMemory;
      return false;
    default:
      command.input_offset = command.output_offset = kMemoryBytes - 1;
      return false;
  }
}

void CommandWorld::post(std::size_t index) {
  Client& client = clients_[index];
  std::vector<std::pair<Group*, std::size_t>> own;
  for (Group& group : groups_) {
    const auto found = std::ranges::find(group.members, index);
    const auto member = static_cast<std::size_t>(found - group.members.begin());
    const bool formed = std::ranges::all_of(group.lanes, &LaneOfGroup::formed);
    if (found == group.members.end() || group.left[member] || !formed || group.leaving) continue;
    own.emplace_back(&group, member);
  }
  const auto usable = std::ranges::find(client.memories, false, &Memory::removing);
  if (own.empty() || usable == client.memories.end() ||
      client.unanswered.size() >= ipc::kCommandEntries) {
    return;
  }
  const auto [group, member] = own[random_.below(own.size())];
  const bool wrong = random_.chance(wrong_ * 0.3);
  const bool transfer = random_.chance(0.3);
  CollectiveCall call;
  if (transfer) call = drawn_transfer(*group);
  // A call that is wrong for sure is none of those that the members make in turn.
  if (!transfer) call = wrong ? drawn_op(*group) : next_call(*group, member);
  Posted posted{call, group->handle, transfer || is_taken(*group, call), usable->handle};
  ipc::CommandEntry command;
  command.request_id = client.next_request++;
  command.group_handle = group->handle;
  command.collective = call.collective;
  command.datatype = static_cast<std::uint8_t>(call.datatype);
  command.redop = static_cast<std::uint8_t>(call.redop);
  command.count = call.count;
  command.root = call.root;
  command.tag = call.tag;
  command.input_memory = command.output_memory = usable->handle;
  if (call.collective == Collective::kRecv && sizes_.chance(0.5)) {
    posted.up_to = true;
    command.flags = ipc::CommandEntry::kUpTo;
  }
  while (client.slots[client.next_slot % kSlots]) ++client.next_slot;
  posted.slot = client.next_slot++ % kSlots;
  command.input_offset = posted.slot * kSlotBytes;
  command.output_offset = command.input_offset + kSlotBytes / 2;
  if (wrong) {
    posted.fits = false;
    if (!spoil(command) && !transfer) group->may_differ = true;
  } else if (!transfer && random_.chance(wrong_ * 0.002)) {
    ++command.tag;
    group->may_differ = true;
  }
  if (draining_) {
    posted.fits = false;
    group->may_differ = true;
  }
  if (!client.queue.push_command(command)) {
    group->may_differ = true;  // it makes its next call then
    return;
  }
  const bool little = client.reads && client.unanswered.size() <= 2;
  client.pushed_at.push_back(little ? counts_.rounds + 1 : 0);
  client.unanswered[command.request_id] = posted;
  client.slots[posted.slot] = true;
  ++counts_.commands;
}

void CommandWorld::read_answers(std::size_t index) {
  Client& client = clients_[index];
  if (!client.reads || !client.alive) return;
  ipc::CompletionEntry answer;
  while (client.queue.pop_completion(answer) == ipc::PopResult::kEntry) {
    const auto posted = client.unanswered.find(answer.request_id);
    if (posted == client.unanswered.end()) {
      return fail(fmt::format("client {}: an answer to request {}, which it did not make or had",
                              client.id, answer.request_id));
    }
    check_answer(index, posted->second, answer);
    client.slots[posted->second.slot] = false;
    client.unanswered.erase(posted);
  }
}

void CommandWorld::check_answer(std::size_t index, const Posted& posted,
                                const ipc::CompletionEntry& answer) {
  const auto code = static_cast<ErrorCode>(answer.status);
  Group* const group = find_group(posted.group);
  const std::string who = fmt::format("client {}, request {} ({}): ", clients_[index].id,
                                      answer.request_id, name_of(posted.call.collective));
  if (code == ErrorCode::kOk) {
    ++counts_.done;
    if (group == nullptr) return;  // It was answered before the group was closed.
    if (answer.op_seq != 0) {
      if (group->lanes_done[answer.op_seq] != group->lanes.size()) {
        fail(who + "done before every lane was through with it");
      }
    } else if (has_partner(posted.call.collective)) {
      if (++group->single_done > group->transfers_done) fail(who + "done, and no lane had it");
      const std::uint64_t room = posted.call.count * element_bytes(posted.call.datatype);
      if (posted.up_to ? answer.bytes > room : answer.bytes != room) {
        fail(fmt::format("{}{} bytes are told, with room for {}", who, answer.bytes, room));
      }
    }
    return;
  }
  if (code == ErrorCode::kAborted) {
    ++counts_.aborted;
    const bool ends = group == nullptr || group->aborting || group->leaving || group->may_differ ||
                      std::ranges::find(group->left, true) != group->left.end();
    if (!ends) fail(who + "aborted, and nothing ended its group: " + answer.text);
    return;
  }
  ++counts_.refused;
  const bool left = group == nullptr || group->leaving;
  if (posted.fits && !left) fail(who + "refused: " + answer.text);
}

void CommandWorld::leave(std::size_t index, Group& group) {
  const auto found = std::ranges::find(group.members, index);
  if (found == group.members.end() || group.leaving) return;
  const auto member = static_cast<std::size_t>(found - group.members.begin());
  if (group.left[member]) return;
  group.left[member] = true;
  if (std::ranges::find(group.left, false) == group.left.end()) return ask_to_leave(group);
  lane_->member_left(group.handle, clients_[index].id);
}

void CommandWorld::ask_to_leave(Group& group) {
  if (std::exchange(group.leaving, true)) return;
  command::Request* const request =
      ask(command::RequestType::kLeaveGroup, fmt::format("leaving group {}", group.handle));
  request->group_handle = group.handle;
  lane_->leave_group(request);
}

void CommandWorld::free_memory(std::size_t index, Memory& memory) {
  if (std::exchange(memory.removing, true)) return;
  Client& client = clients_[index];
  // What was not read yet finds it gone.
  for (auto& [request, posted] : client.unanswered) {
    if (posted.memory != memory.handle) continue;
    posted.fits = false;
    if (Group* const group = find_group(posted.group)) group->may_differ = true;
  }
  command::Request* const request =
      ask(command::RequestType::kRemoveMemory,
          fmt::format("giving back memory {} of client {}", memory.handle, client.id));
  asked_.back().client = index;
  request->client_id = client.id;
  request->memory = memory.handle;
  lane_->remove_memory(request);
}

void CommandWorld::die(std::size_t index) {
  Client& client = clients_[index];
  if (!std::exchange(client.alive, false)) return;
  for (Group& group : groups_) {
    if (std::ranges::find(group.members, index) != group.members.end()) abort(group);
  }
  for (Memory& memory : client.memories) free_memory(index, memory);
  command::Request* const request =
      ask(command::RequestType::kRemoveClient, fmt::format("removing client {}", client.id));
  asked_.back().client = index;
  request->client_id = client.id;
  lane_->remove_client(request);
}

void CommandWorld::abort(Group& group) { group.aborting = true; }

/// Or ends it. Of the members of a group some may be refused what others had called.
void CommandWorld::drain() {
  for (Group& group : groups_) group.may_differ = true;
  for (Client& client : clients_) {
    for (auto& [request, posted] : client.unanswered) posted.fits = false;
  }
  draining_ = !draining_;
  if (!draining_) return lane_->resume();
  lane_->drain(ask(command::RequestType::kDrain, "draining"));
}

}  // namespace gradwire::sim
