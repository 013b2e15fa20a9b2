// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_lane.h"

#include <sched.h>

#include <algorithm>

#include "base/planted_bug.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

namespace {

std::uint64_t memory_key(std::uint32_t client_id, std::uint32_t memory) noexcept {
  return static_cast<std::uint64_t>(client_id) << 32 | memory;
}

}  // namespace

CommandLane::CommandLane(std::span<const LaneRings> lanes, CommandCounters& counters)
    : lanes_(lanes.begin(), lanes.end()), counters_(counters) {}

CommandLane::~CommandLane() = default;

void CommandLane::add_client(ClientPort* client) {
  auto added = std::make_unique<Client>();
  added->port = client;
  for (std::uint32_t i = 0; i < kRecords; ++i) {
    added->free[i] = static_cast<std::uint16_t>(kRecords - 1 - i);
  }
  const auto user = std::find_if(users_.begin(), users_.end(),
                                 [&](const auto& each) { return each->id == client->user; });
  if (user == users_.end()) {
    users_.push_back(std::make_unique<User>());
    users_.back()->id = client->user;
    awake_users_.reserve(users_.size());
    added->user = users_.back().get();
  } else {
    added->user = user->get();
  }
  added->user->awake.reserve(++added->user->clients);
  client_index_[client->client_id] = added.get();
  clients_.push_back(std::move(added));
  wake(*clients_.back());
}

ClientPort* CommandLane::remove_client(Request* request) {
  Client* client = find_client(request->client_id);
  if (client == nullptr || client->removal != nullptr) {
    finished_.push_back(request);
    return nullptr;
  }
  client->removal = request;
  ClientPort* port = client->port;
  release_if_done(*client);
  return port;
}

void CommandLane::add_memory(const MemoryRegion& region) {
  auto memory = std::make_unique<Memory>();
  memory->region = region;
  memories_[memory_key(region.client_id, region.memory)] = std::move(memory);
}

void CommandLane::remove_memory(Request* request) {
  Memory* memory = find_memory(request->client_id, request->memory);
  if (memory == nullptr || memory->removal != nullptr) {
    finished_.push_back(request);
    return;
  }
  memory->removal = request;
  release_if_done(*memory);
}

void CommandLane::add_event(std::uint32_t client_id, std::uint32_t handle,
                            reduce::ReadyEvent* event) {
  if (Client* client = find_client(client_id)) client->events[handle] = event;
}

bool CommandLane::waits_for_input() const noexcept {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) noexcept {
    return group->ready_seq != group->called_seq && !group->aborted;
  });
}

void CommandLane::add_group(std::uint64_t group_handle,
                            std::span<const std::uint32_t> member_clients, std::uint16_t rank,
                            const OpLimits& limits, const std::string& why_no_transfers) {
  auto group = std::make_unique<Group>();
  group->handle = group_handle;
  group->rank = rank;
  group->limits = limits;
  group->why_no_transfers = why_no_transfers;
  group->limits.why_no_transfers =
      why_no_transfers.empty() ? nullptr : group->why_no_transfers.c_str();
  group->limits.lanes =
      static_cast<std::uint8_t>(std::min<std::size_t>(limits.lanes, lanes_.size()));
  for (const std::uint32_t client_id : member_clients) {
    Client* const client = find_client(client_id);
    group->members.push_back(client);
    if (client != nullptr) client->groups.push_back(group.get());
  }
  group->joined_seq.resize(member_clients.size());
  group->left.resize(member_clients.size());
  group->sent_seq.resize(lanes_.size());
  group->slots.resize(kOpSlots);
  group->specs.resize(kOpSlots);
  group->factors.resize(kOpSlots * member_clients.size());
  group_index_[group_handle] = group.get();
  groups_.push_back(std::move(group));
  handing_.reserve(groups_.size());
  ending_.reserve(groups_.size());
}

void CommandLane::leave_group(Request* request) {
  Group* group = find_group(request->group_handle);
  if (group == nullptr || group->leave != nullptr) {
    finished_.push_back(request);
    return;
  }
  group->leave = request;
  release_if_done(*group);
}

void CommandLane::drain(Request* request) {
  draining_ = true;
  drains_.push_back(request);
}

void CommandLane::resume() {
  draining_ = false;
  finished_.insert(finished_.end(), drains_.begin(), drains_.end());
  drains_.clear();
}

MembersWait CommandLane::members_wait(std::uint64_t group_handle) const noexcept {
  const auto found = group_index_.find(group_handle);
  if (found == group_index_.end() || found->second->aborted) return {};
  const Group& group = *found->second;
  const auto [least, most] = std::minmax_element(group.joined_seq.begin(), group.joined_seq.end());
  if (least == group.joined_seq.end()) return {};
  if (group.ready_seq != group.called_seq) {
    const std::uint64_t op_seq = group.ready_seq + 1;
    const OpSlot& slot = group.slots[op_seq % kOpSlots];
    std::uint16_t member = 0;
    while (member + 1u < group.members.size() &&
           group.members[member]->records[slot.records[member]].ready == nullptr) {
      ++member;
    }
    return {op_seq, member, true, 0};
  }
  if (*least == *most) return {};
  return {*least + 1, static_cast<std::uint16_t>(least - group.joined_seq.begin()), false, 0};
}

void CommandLane::release_if_done(Memory& memory) noexcept {
  if (planted(PlantedBug::kLooksAtAllMemories)) steps_ += memories_.size();
  if (memory.removal == nullptr || memory.uses != 0) return;
  finished_.push_back(memory.removal);
  memories_.erase(memory_key(memory.region.client_id, memory.region.memory));
}

void CommandLane::release_if_done(Group& group) noexcept {
  if (group.leave == nullptr || group.closed != group.all_lanes() || !group.ended) return;
  finished_.push_back(group.leave);
  for (Client* const client : group.members) {
    if (client == nullptr) continue;
    std::erase(client->groups, &group);
    release_if_done(*client);
  }
  group_index_.erase(group.handle);
  std::erase(handing_, &group);
  std::erase_if(groups_, [&](const auto& each) { return each.get() == &group; });
}

void CommandLane::release_if_done(Client& client) noexcept {
  if (client.removal == nullptr || !client.groups.empty()) return;
  finished_.push_back(client.removal);
  rest(client);
  client_index_.erase(client.port->client_id);
  User* const user = client.user;
  std::erase_if(clients_, [&](const auto& each) { return each.get() == &client; });
  if (--user->clients == 0) {
    std::erase_if(users_, [&](const auto& each) { return each.get() == user; });
  }
}

bool CommandLane::pop_finished(Request*& request) noexcept {
  if (finished_.empty()) return false;
  request = finished_.front();
  finished_.pop_front();
  return true;
}

bool CommandLane::pop_fault(std::uint32_t& client_id, AbortReason& why) noexcept {
  while (!faults_.empty()) {
    const Client* client = find_client(faults_.front());
    faults_.pop_front();
    if (client == nullptr) continue;  // it was removed meanwhile
    client_id = client->port->client_id;
    why = client->fault;
    return true;
  }
  return false;
}

bool CommandLane::pop_abort(std::uint64_t& group_handle, AbortReason& reason) noexcept {
  while (!aborts_.empty()) {
    const Group* group = find_group(aborts_.front());
    aborts_.pop_front();
    if (group == nullptr) continue;  // it was left meanwhile
    group_handle = group->handle;
    reason = group->reason;
    return true;
  }
  return false;
}

void CommandLane::set_sleeping(bool sleeping) noexcept {
  const int core = sleeping ? ::sched_getcpu() : -1;
  for (auto& client : clients_) {
    if (sleeping) client->port->queue.set_lane_core(core);
    client->port->queue.set_daemon_sleeps(sleeping);
  }
}

bool CommandLane::may_command(const Client& client) noexcept {
  return client.removal == nullptr && !client.faulty && client.free_count != 0 &&
         client.port->queue.has_command();
}

bool CommandLane::has_command() const noexcept {
  return std::any_of(clients_.begin(), clients_.end(),
                     [](const auto& client) noexcept { return may_command(*client); });
}

bool CommandLane::find_commands() noexcept {
  if (awake_ == clients_.size()) return false;
  bool found = false;
  for (auto& client : clients_) {
    if (client->awake || !may_command(*client)) continue;
    wake(*client);
    found = true;
  }
  return found;
}

void CommandLane::wake(Client& client) noexcept {
  client.quiet_rounds = 0;
  if (client.awake) return;
  client.awake = true;
  ++awake_;
  User& user = *client.user;
  if (user.awake.empty()) awake_users_.push_back(&user);
  const auto place = std::lower_bound(
      user.awake.begin(), user.awake.end(), client.port->client_id,
      [](const Client* other, std::uint32_t id) noexcept { return other->port->client_id < id; });
  user.awake.insert(place, &client);
}

void CommandLane::rest(Client& client) noexcept {
  if (!client.awake) return;
  client.awake = false;
  --awake_;
  User& user = *client.user;
  std::erase(user.awake, &client);
  if (user.awake.empty()) std::erase(awake_users_, &user);
}

void CommandLane::cut_off(Client& client, AbortCode code, const char* why) noexcept {
  if (client.faulty) return;
  client.faulty = true;
  client.fault.code = code;
  client.fault.set_detail(why);
  faults_.push_back(client.port->client_id);
  news_ = true;
}

CommandLane::Group* CommandLane::find_group(std::uint64_t handle) noexcept {
  const auto found = group_index_.find(handle);
  return found == group_index_.end() ? nullptr : found->second;
}

CommandLane::Memory* CommandLane::find_memory(std::uint32_t client_id,
                                              std::uint32_t memory) noexcept {
  const auto found = memories_.find(memory_key(client_id, memory));
  return found == memories_.end() ? nullptr : found->second.get();
}

CommandLane::Client* CommandLane::find_client(std::uint32_t client_id) noexcept {
  const auto found = client_index_.find(client_id);
  return found == client_index_.end() ? nullptr : found->second;
}

}  // namespace gradwire::command
