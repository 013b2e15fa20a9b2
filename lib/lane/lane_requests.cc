// SPDX-License-Identifier: BSD-3-Clause
// Requests of the control thread to a lane, and the answers: groups that are added and removed,
// faults. Requests about clients go to the command port.
#include <rte_ring.h>

#include <algorithm>
#include <cstdio>

#include "base/require.h"
#include "lane/lane.h"

namespace gradwire::lane {

bool Lane::take_requests(TimeNs now) noexcept {
  bool worked = false;
  for (int i = 0; i < kRequestsPerRound && notices_.have_room(); ++i) {
    void* request = nullptr;
    if (rte_ring_sc_dequeue(config_.rings.requests, &request) != 0) break;
    const bool adds_group =
        static_cast<command::Request*>(request)->type == command::RequestType::kAddGroup;
    handle(*static_cast<command::Request*>(request), now);
    worked = true;
    ++steps_;
    // It allocates, and begins to greet all ranks: one in a round is enough.
    if (adds_group) break;
  }
  return worked;
}

void Lane::handle(command::Request& request, TimeNs now) noexcept {
  switch (request.type) {
    case command::RequestType::kAddGroup:
      if (!add_group(request, now)) {
        command::Notice notice;
        notice.type = command::NoticeType::kGroupAborted;
        notice.group_handle = request.plan->group_handle;
        notice.reason.code = AbortCode::kFormation;
        std::snprintf(notice.reason.detail, sizeof notice.reason.detail,
                      "lane %u has %zu of %u groups, or was given no shard", config_.lane,
                      slots_.in_use().size(), config_.max_groups);
        notices_.send(notice);
      }
      break;
    case command::RequestType::kAbortGroup:
      abort_group(request.group_handle, request.reason, now);
      break;
    case command::RequestType::kLeaveGroup:
      leave_group(request, now);
      return;
    case command::RequestType::kMoveLink:
      if (GroupSlot* slot = slots_.find(request.group_handle); slot != nullptr && !slot->closed) {
        rests_.wake(*slot);
        slot->shard->lead_to(request.rank, request.path_ip, request.frame);
        request.taken = true;
      }
      break;
    case command::RequestType::kSupplyKey:
      // Afterwards the request has the key of the generation that is over.
      if (GroupSlot* slot = slots_.find(request.group_handle); slot != nullptr && !slot->closed) {
        rests_.wake(*slot);
        *request.key = slot->shard->supply_key(request.wish, std::move(*request.key));
        request.taken = true;
      }
      break;
    case command::RequestType::kSetFaults:
      if (request.port < ports_.size()) {
        LanePort& port = ports_[request.port];
        port.stage->configure(request.faults);
        port.faults = port.stage.get();
      }
      break;
    case command::RequestType::kAddClient:
    case command::RequestType::kRemoveClient:
    case command::RequestType::kAddMemory:
    case command::RequestType::kRemoveMemory:
    case command::RequestType::kAddEvent:
    case command::RequestType::kMemberLeft:
    case command::RequestType::kDrain:
    case command::RequestType::kResume:
      if (commands_->take(request)) return;
      break;
  }
  notices_.send_done(request);
}

bool Lane::add_group(command::Request& request, TimeNs now) noexcept {
  command::GroupPlan& plan = *request.plan;
  if (config_.lane >= plan.shards.size() || plan.shards[config_.lane].shard == nullptr) {
    return false;
  }
  if (slots_.full()) return false;
  const command::ShardPlacement& placement = plan.shards[config_.lane];
  if (placement.down_port >= ports_.size() || placement.up_port >= ports_.size()) return false;
  constexpr std::size_t kPortsMax = 32;  // bits of any_ports
  std::uint32_t any_ports = 0;
  const auto may_use = [&](std::uint16_t port) {
    if (port >= std::min(ports_.size(), kPortsMax)) return false;
    any_ports |= 1u << port;
    return true;
  };
  const auto may_use_all = [&](const std::vector<collective::LinkPath>& paths) {
    return std::all_of(paths.begin(), paths.end(),
                       [&](const collective::LinkPath& path) { return may_use(path.port); });
  };
  const collective::ShardConfig& wanted = placement.shard->config();
  for (const collective::PeerAddress& peer : wanted.peers) {
    if (peer.frame.bytes() == 0) continue;
    if (!may_use(peer.port) || !may_use_all(peer.others)) return false;
  }
  if (placement.shard->has_rails() &&
      (!may_use(placement.down_port) || !may_use(placement.up_port) ||
       !may_use_all(wanted.downstream.others) || !may_use_all(wanted.upstream.others))) {
    return false;
  }

  GroupSlot& slot = slots_.add(*placement.shard, plan.group_handle);
  slot.down_port = placement.down_port;
  slot.up_port = placement.up_port;
  slot.any_ports = any_ports;
  slot.full_frame_bytes = static_cast<std::uint32_t>(wanted.downstream.frame.bytes() +
                                                     wire::kHeaderBytes + wanted.payload_bytes);
  rests_.add(slot);
  receiver_.add_group(slot);
  commands_->add_group(plan, wanted);
  slot.shard->start(now);
  statuses_.hasten(now);
  return true;
}

void Lane::abort_group(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept {
  GroupSlot* slot = slots_.find(handle);
  if (slot == nullptr || slot->closed) return;
  rests_.wake(*slot);
  slot->shard->abort(reason, now);
}

void Lane::leave_group(command::Request& request, TimeNs now) noexcept {
  GroupSlot* slot = slots_.find(request.group_handle);
  const bool port_gives_back = commands_->take(request);
  if (slot == nullptr || slot->leaving) {
    if (!port_gives_back) notices_.send_done(request);
    return;
  }
  slot->leaving = true;
  if (!port_gives_back) slot->leave = &request;
  if (slot->closed) {
    release(*slot);
  } else {
    rests_.wake(*slot);
    slot->shard->leave(now);
  }
}

void Lane::release(GroupSlot& slot) noexcept {
  require(slot.closed && slot.leaving, "a group ends when it is left and has closed");
  const std::uint16_t index = slots_.index_of(slot);
  if (slot.leave != nullptr) notices_.send_done(*slot.leave);
  for (LanePort& port : ports_) port.share.forget(index);
  rests_.remove(slot);
  slots_.remove(slot);
  statuses_.clear(index);
}

}  // namespace gradwire::lane
