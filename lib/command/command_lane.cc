// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_lane.h"

#include <sched.h>

#include <algorithm>

#include "command/command_lane_state.h"

namespace gradwire::command {

namespace {

std::uint64_t memory_key(std::uint32_t client_id, std::uint32_t memory) noexcept {
  return static_cast<std::uint64_t>(client_id) << 32 | memory;
}

}  // namespace

CommandLane::CommandLane(std::span<const LaneRings> lanes, CommandCounters& counters)
    : lanes_(lanes.begin(), lanes.end()), counters_(counters) {
  finished_.reserve(256);
}

CommandLane::~CommandLane() = default;

void CommandLane::add_client(ClientPort* client) {
  auto added = std::make_unique<Client>();
  added->port = client;
  for (std::uint32_t i = 0; i < kRecords; ++i) {
    added->free[i] = static_cast<std::uint16_t>(kRecords - 1 - i);
  }
  clients_.push_back(std::move(added));
  awake_.reserve(clients_.size());
  wake(*clients_.back());
}

ClientPort* CommandLane::remove_client(Request* request) {
  for (auto& client : clients_) {
    if (client->port->client_id == request->client_id && client->removal == nullptr) {
      client->removal = request;
      removals_ = true;
      return client->port;
    }
  }
  finished_.push_back(request);
  return nullptr;
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
  removals_ = true;
}

void CommandLane::add_event(std::uint32_t client_id, std::uint32_t handle,
                            reduce::ReadyEvent* event) {
  for (auto& client : clients_) {
    if (client->port->client_id == client_id) client->events[handle] = event;
  }
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
    const auto found = std::find_if(
        clients_.begin(), clients_.end(),
        [&](const auto& client) noexcept { return client->port->client_id == client_id; });
    group->members.push_back(found == clients_.end() ? nullptr : found->get());
  }
  group->joined_seq.resize(member_clients.size());
  group->sent_seq.resize(lanes_.size());
  group->slots.resize(kOpSlots);
  group->specs.resize(kOpSlots);
  group->factors.resize(kOpSlots * member_clients.size());
  group_index_[group_handle] = group.get();
  groups_.push_back(std::move(group));
  handing_.reserve(groups_.size());
}

void CommandLane::leave_group(Request* request) {
  Group* group = find_group(request->group_handle);
  if (group == nullptr || group->leave != nullptr) {
    finished_.push_back(request);
    return;
  }
  group->leave = request;
  removals_ = true;
}

void CommandLane::drain(Request* request) {
  draining_ = true;
  drains_.push_back(request);
  removals_ = true;
}

void CommandLane::resume() {
  draining_ = false;
  finished_.insert(finished_.end(), drains_.begin(), drains_.end());
  drains_.clear();
}

MembersWait CommandLane::members_wait(std::uint64_t group_handle) const noexcept {
  for (const auto& group : groups_) {
    if (group->handle != group_handle || group->aborted) continue;
    const auto [least, most] =
        std::minmax_element(group->joined_seq.begin(), group->joined_seq.end());
    if (least == group->joined_seq.end()) break;
    if (group->ready_seq != group->called_seq) {
      const std::uint64_t op_seq = group->ready_seq + 1;
      const OpSlot& slot = group->slots[op_seq % kOpSlots];
      std::uint16_t member = 0;
      while (member + 1u < group->members.size() &&
             group->members[member]->records[slot.records[member]].ready == nullptr) {
        ++member;
      }
      return {op_seq, member, true, 0};
    }
    if (*least == *most) break;
    return {*least + 1, static_cast<std::uint16_t>(least - group->joined_seq.begin()), false, 0};
  }
  return {};
}

void CommandLane::release_finished() noexcept {
  bool waiting = false;
  if (!drains_.empty()) {
    const bool idle = std::all_of(clients_.begin(), clients_.end(),
                                  [](const auto& client) { return client->active_count == 0; });
    if (idle) {
      finished_.insert(finished_.end(), drains_.begin(), drains_.end());
      drains_.clear();
    }
    waiting = !idle;
  }
  for (std::size_t i = groups_.size(); i-- > 0;) {
    Group& group = *groups_[i];
    if (group.leave == nullptr) continue;
    if (group.closed != group.all_lanes() || !group.ended) {
      waiting = true;
      continue;
    }
    finished_.push_back(group.leave);
    group_index_.erase(group.handle);
    std::erase(handing_, &group);
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (auto i = memories_.begin(); i != memories_.end();) {
    Memory& memory = *i->second;
    if (memory.removal != nullptr && memory.uses == 0) {
      finished_.push_back(memory.removal);
      i = memories_.erase(i);
      continue;
    }
    waiting |= memory.removal != nullptr;
    ++i;
  }
  for (std::size_t i = clients_.size(); i-- > 0;) {
    Client& client = *clients_[i];
    if (client.removal == nullptr) continue;
    if (is_member(client.port->client_id)) {
      waiting = true;
      continue;
    }
    finished_.push_back(client.removal);
    std::erase(awake_, &client);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  removals_ = waiting;
}

bool CommandLane::pop_finished(Request*& request) noexcept {
  if (finished_.empty()) return false;
  request = finished_.front();
  finished_.erase(finished_.begin());
  return true;
}

bool CommandLane::pop_fault(std::uint32_t& client_id, AbortReason& why) noexcept {
  for (auto& client : clients_) {
    if (!client->faulty || client->fault_told) continue;
    client->fault_told = true;
    client_id = client->port->client_id;
    why = client->fault;
    return true;
  }
  return false;
}

bool CommandLane::pop_abort(std::uint64_t& group_handle, AbortReason& reason) noexcept {
  for (auto& group : groups_) {
    if (!group->abort_wanted) continue;
    group->abort_wanted = false;
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
  if (awake_.size() == clients_.size()) return false;
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
  const auto place = std::lower_bound(
      awake_.begin(), awake_.end(), client.port->client_id,
      [](const Client* other, std::uint32_t id) noexcept { return other->port->client_id < id; });
  awake_.insert(place, &client);
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

bool CommandLane::is_member(std::uint32_t client_id) const noexcept {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) noexcept {
    return std::any_of(group->members.begin(), group->members.end(),
                       [&](const Client* client) noexcept {
                         return client != nullptr && client->port->client_id == client_id;
                       });
  });
}

}  // namespace gradwire::command
