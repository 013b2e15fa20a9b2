// SPDX-License-Identifier: BSD-3-Clause
// What the control thread asks of a lane, and what the lane tells it: groups that come and go,
// clients and their memory, faults.
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <algorithm>
#include <cstdio>

#include "lane/lane.h"

namespace gradwire::lane {

namespace {

// Every lane may pass the check for room at the same moment and then enqueue one notice.
constexpr unsigned kNoticeReserve = 2 * kMaxLanes;

}  // namespace

bool Lane::take_requests(TimeNs now) noexcept {
  bool worked = false;
  for (int i = 0; i < kRequestsPerRound && notices_have_room(); ++i) {
    void* request = nullptr;
    if (rte_ring_sc_dequeue(config_.rings.requests, &request) != 0) break;
    handle(*static_cast<command::Request*>(request), now);
    worked = true;
  }
  return worked;
}

void Lane::handle(command::Request& request, TimeNs now) noexcept {
  switch (request.type) {
    case command::RequestType::kAddClient:
      if (commands_ != nullptr) {
        commands_->add_client(request.client);
        if (request.client->doorbell_fd >= 0) sleeper_.add(request.client->doorbell_fd);
      }
      break;
    case command::RequestType::kRemoveClient:
      if (commands_ == nullptr) break;
      if (const command::ClientPort* client = commands_->remove_client(&request);
          client != nullptr && client->doorbell_fd >= 0) {
        sleeper_.remove(client->doorbell_fd);
      }
      return;
    case command::RequestType::kAddMemory:
      if (commands_ != nullptr) commands_->add_memory(request.region);
      break;
    case command::RequestType::kRemoveMemory:
      if (commands_ == nullptr) break;
      commands_->remove_memory(&request);
      return;
    case command::RequestType::kAddEvent:
      if (commands_ != nullptr) {
        commands_->add_event(request.client_id, request.event_handle, request.event);
      }
      break;
    case command::RequestType::kAddGroup:
      if (!add_group(request, now)) {
        command::Notice notice;
        notice.type = command::NoticeType::kGroupAborted;
        notice.group_handle = request.plan->group_handle;
        notice.reason.code = AbortCode::kFormation;
        std::snprintf(notice.reason.detail, sizeof notice.reason.detail,
                      "lane %u has %zu of %u groups, or was given no shard", config_.lane,
                      in_use_.size(), config_.max_groups);
        notify(notice);
      }
      break;
    case command::RequestType::kDrain:
      if (commands_ == nullptr) break;
      commands_->drain(&request);
      return;
    case command::RequestType::kResume:
      if (commands_ != nullptr) commands_->resume();
      break;
    case command::RequestType::kAbortGroup: {
      GroupSlot* slot = find_group(request.group_handle);
      if (slot != nullptr && !slot->closed) {
        wake(*slot);
        slot->shard->abort(request.reason, now);
      }
      break;
    }
    case command::RequestType::kLeaveGroup:
      leave_group(request, now);
      return;
    case command::RequestType::kSetFaults:
      if (request.port < ports_.size()) {
        LanePort& port = ports_[request.port];
        port.stage->configure(request.faults);
        port.faults = port.stage.get();
      }
      break;
  }
  request_done(request);
}

bool Lane::add_group(command::Request& request, TimeNs now) noexcept {
  command::GroupPlan& plan = *request.plan;
  if (config_.lane >= plan.shards.size() || plan.shards[config_.lane].shard == nullptr) {
    return false;
  }
  const auto free = std::find_if(slots_.begin(), slots_.end(),
                                 [](const GroupSlot& slot) { return slot.shard == nullptr; });
  if (free == slots_.end()) return false;
  const command::ShardPlacement& placement = plan.shards[config_.lane];
  if (placement.down_port >= ports_.size() || placement.up_port >= ports_.size()) return false;

  const auto index = static_cast<std::uint16_t>(free - slots_.begin());
  *free = GroupSlot{};
  free->shard = placement.shard.get();
  free->handle = plan.group_handle;
  free->down_port = placement.down_port;
  free->up_port = placement.up_port;
  free->full_frame_bytes =
      static_cast<std::uint32_t>(placement.shard->config().to_downstream.bytes() +
                                 wire::kHeaderBytes + placement.shard->config().payload_bytes);
  in_use_.push_back(index);
  awake_.push_back(index);
  group_index_[plan.group_handle] = index;
  const collective::ShardConfig& config = free->shard->config();
  connections_->insert(config.sender_connection_id, index);
  connections_->insert(config.receiver_connection_id, index);
  groups_.add(config, index);
  if (commands_ != nullptr) {
    commands_->add_group(plan.group_handle, plan.member_clients, config.rank,
                         command::OpLimits{.nranks = config.nranks,
                                           .lanes = config.lanes,
                                           .payload_bytes = config.payload_bytes,
                                           .max_chunks = config.max_chunks});
  }
  free->shard->start(now);
  next_publication_ = now;
  return true;
}

void Lane::leave_group(command::Request& request, TimeNs now) noexcept {
  GroupSlot* slot = find_group(request.group_handle);
  // The command lane answers the request itself, when every lane has closed and every command of
  // the group is answered.
  if (commands_ != nullptr) commands_->leave_group(&request);
  if (slot == nullptr || slot->leave != nullptr) {
    if (commands_ == nullptr) request_done(request);
    return;
  }
  slot->leave = &request;
  if (slot->closed) {
    release(*slot);
  } else {
    wake(*slot);
    slot->shard->leave(now);
  }
}

void Lane::release(GroupSlot& slot) noexcept {
  const auto index = static_cast<std::uint16_t>(&slot - slots_.data());
  if (commands_ == nullptr) request_done(*slot.leave);
  for (LanePort& port : ports_) port.share.forget(index);
  group_index_.erase(slot.handle);
  forget_awake(index);
  slot = GroupSlot{};
  statuses_[index].write({});
  in_use_.erase(std::find(in_use_.begin(), in_use_.end(), index));
}

bool Lane::notices_have_room() const noexcept {
  return rte_ring_free_count(config_.shared.notices) > kNoticeReserve;
}

void Lane::notify(const command::Notice& notice) noexcept { notify(notice, config_.lane); }

void Lane::notify(const command::Notice& notice, std::uint8_t lane) noexcept {
  command::Notice sent = notice;
  sent.lane = lane;
  // There is room: whoever makes a notice asked notices_have_room() first.
  rte_ring_mp_enqueue_elem(config_.shared.notices, &sent, sizeof sent);
  config_.shared.control_bell->ring();
}

void Lane::request_done(command::Request& request) noexcept {
  command::Notice notice;
  notice.type = command::NoticeType::kRequestDone;
  notice.group_handle = request.group_handle;
  notice.client_id = request.client_id;
  notice.request = &request;
  notify(notice);
}

Lane::GroupSlot* Lane::find_group(std::uint64_t handle) noexcept {
  const auto found = group_index_.find(handle);
  return found == group_index_.end() ? nullptr : &slots_[found->second];
}

}  // namespace gradwire::lane
