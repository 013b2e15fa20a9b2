// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_lane.h"

#include <sched.h>

#include <algorithm>

#include "command/command_lane_state.h"

namespace gradwire::command {

CommandLane::CommandLane(std::span<const LaneRings> lanes, CommandCounters& counters)
    : lanes_(lanes.begin(), lanes.end()),
      counters_(counters),
      clients_(steps_),
      memories_(finished_, steps_),
      answers_(counters, clients_, memories_, steps_) {}

CommandLane::~CommandLane() = default;

void CommandLane::add_client(ClientPort* client) {
  auto added = std::make_unique<Client>();
  added->port = client;
  for (std::uint32_t i = 0; i < kRecords; ++i) {
    added->free[i] = static_cast<std::uint16_t>(kRecords - 1 - i);
  }
  clients_.add(std::move(added));
  dropping_.reserve(clients_.all().size());
}

ClientPort* CommandLane::remove_client(Request* request) {
  Client* client = clients_.find(request->client_id);
  if (client == nullptr || client->removal != nullptr) {
    finished_.push_back(request);
    return nullptr;
  }
  client->removal = request;
  ClientPort* port = client->port;
  release_if_done(*client);
  return port;
}

void CommandLane::add_event(std::uint32_t client_id, std::uint32_t handle,
                            reduce::ReadyEvent* event) {
  if (Client* client = clients_.find(client_id)) client->events[handle] = event;
}

bool CommandLane::waits_for_input() const noexcept {
  return std::any_of(with_ops_.begin(), with_ops_.end(), [](const Group* group) noexcept {
    return group->ready_seq != group->called_seq && !group->aborted;
  });
}

void CommandLane::add_group(std::uint64_t group_handle,
                            std::span<const std::uint32_t> member_clients, std::uint16_t rank,
                            const OpLimits& limits, const std::string& why_no_transfers,
                            const std::string& why_no_formats) {
  auto group = std::make_unique<Group>();
  group->handle = group_handle;
  group->rank = rank;
  group->limits = limits;
  group->why_no_transfers = why_no_transfers;
  group->limits.why_no_transfers =
      why_no_transfers.empty() ? nullptr : group->why_no_transfers.c_str();
  group->why_no_formats = why_no_formats;
  group->limits.why_no_formats = why_no_formats.empty() ? nullptr : group->why_no_formats.c_str();
  group->limits.lanes =
      static_cast<std::uint8_t>(std::min<std::size_t>(limits.lanes, lanes_.size()));
  for (const std::uint32_t client_id : member_clients) {
    Client* const client = clients_.find(client_id);
    group->members.push_back(client);
    if (client != nullptr) client->groups.push_back(group.get());
  }
  group->joined_seq.resize(member_clients.size());
  group->left.resize(member_clients.size());
  group->sent_seq.resize(lanes_.size());
  if (!limits.transfers_alone) {
    group->slots.resize(kOpSlots);
    group->specs.resize(kOpSlots);
    group->factors.resize(kOpSlots * member_clients.size());
    with_ops_.push_back(group.get());
  }
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
  std::erase(with_ops_, &group);
  std::erase_if(groups_, [&](const auto& each) { return each.get() == &group; });
}

void CommandLane::release_if_done(Client& client) noexcept {
  if (client.removal == nullptr || !client.groups.empty()) return;
  finished_.push_back(client.removal);
  std::erase(dropping_, &client);
  clients_.remove(client);
}

bool CommandLane::pop_finished(Request*& request) noexcept {
  if (finished_.empty()) return false;
  request = finished_.front();
  finished_.pop_front();
  return true;
}

bool CommandLane::pop_fault(std::uint32_t& client_id, AbortReason& why) noexcept {
  while (!faults_.empty()) {
    const Client* client = clients_.find(faults_.front());
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
  for (const auto& client : clients_.all()) {
    if (sleeping) client->port->queue.set_lane_core(core);
    client->port->queue.set_daemon_sleeps(sleeping);
  }
}

bool CommandLane::has_command() const noexcept {
  return std::any_of(clients_.all().begin(), clients_.all().end(),
                     [](const auto& client) noexcept { return ClientTurns::may_command(*client); });
}

void CommandLane::cut_off(Client& client, AbortCode code, const char* why) noexcept {
  if (client.faulty) return;
  client.faulty = true;
  client.fault.code = code;
  client.fault.set_detail(why);
  faults_.push_back(client.port->client_id);
  news_ = true;
}

Group* CommandLane::find_group(std::uint64_t handle) const noexcept {
  const auto found = group_index_.find(handle);
  return found == group_index_.end() ? nullptr : found->second;
}

}  // namespace gradwire::command
