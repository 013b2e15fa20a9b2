// SPDX-License-Identifier: BSD-3-Clause
#include "lane/client_commands.h"

#include <rte_ring.h>
#include <rte_ring_elem.h>

namespace gradwire::lane {

bool ClientCommands::take(command::Request& request) noexcept {
  switch (request.type) {
    case command::RequestType::kAddClient:
      commands_.add_client(request.client);
      if (request.client->doorbell_fd >= 0) sleeper_.add(request.client->doorbell_fd);
      return false;
    case command::RequestType::kRemoveClient:
      if (const command::ClientPort* client = commands_.remove_client(&request);
          client != nullptr && client->doorbell_fd >= 0) {
        sleeper_.remove(client->doorbell_fd);
      }
      return true;
    case command::RequestType::kAddMemory:
      commands_.add_memory(request.region);
      return false;
    case command::RequestType::kRemoveMemory:
      commands_.remove_memory(&request);
      return true;
    case command::RequestType::kAddEvent:
      commands_.add_event(request.client_id, request.event_handle, request.event);
      return false;
    case command::RequestType::kMemberLeft:
      commands_.member_left(request.group_handle, request.client_id);
      return false;
    case command::RequestType::kDrain:
      commands_.drain(&request);
      return true;
    case command::RequestType::kResume:
      commands_.resume();
      return false;
    case command::RequestType::kLeaveGroup:
      // The request is returned when every lane has closed the group and every command of it is
      // answered.
      commands_.leave_group(&request);
      return true;
    case command::RequestType::kAddGroup:
    case command::RequestType::kAbortGroup:
    case command::RequestType::kMoveLink:
    case command::RequestType::kSupplyKey:
    case command::RequestType::kSetFaults:
      break;  // the lane handles it
  }
  return false;
}

void ClientCommands::add_group(const command::GroupPlan& plan,
                               const collective::ShardConfig& config) noexcept {
  commands_.add_group(plan.group_handle, plan.member_clients, config.rank,
                      command::OpLimits{.shape = config.shape_group(),
                                        .folds_only = config.folds_only(),
                                        .lanes = config.lanes,
                                        .max_chunks = config.max_chunks,
                                        .streams = config.transfers.streams,
                                        .transfers_alone = config.transfers.alone},
                      plan.why_no_transfers, plan.why_no_formats);
}

bool ClientCommands::poll(TimeNs now) noexcept {
  bool worked = take_reports();
  worked |= commands_.poll();
  for (int i = 0; i < kNewsPerRound && commands_.has_news() && notices_.have_room(); ++i) {
    tell_news(now);
    worked = true;
  }
  command::Request* request = nullptr;
  for (int i = 0; i < kAnswersPerRound && notices_.have_room() && commands_.pop_finished(request);
       ++i) {
    notices_.send_done(*request);
    worked = true;
    ++steps_;
  }
  steps_ += commands_.steps() - counted_steps_;
  counted_steps_ = commands_.steps();
  return worked;
}

bool ClientCommands::take_reports() noexcept {
  bool any = false;
  command::LaneReport report;
  const std::uint64_t until = commands_.steps() + kReportSteps;
  while (commands_.steps() < until && notices_.have_room() &&
         rte_ring_sc_dequeue_elem(reports_, &report, sizeof report) == 0) {
    commands_.on_report(report);
    any = true;
    if (report.type != collective::EventType::kFormed) continue;
    // The command lane sends it, not the lane itself: a client that learns of it may post at once,
    // and by then the command lane must know that it may take the group's commands.
    command::Notice notice;
    notice.type = command::NoticeType::kGroupFormed;
    notice.group_handle = report.group_handle;
    notices_.send(notice, report.lane);
  }
  return any;
}

void ClientCommands::tell_news(TimeNs now) noexcept {
  command::Notice fault;
  fault.type = command::NoticeType::kClientFault;
  std::uint64_t handle = 0;
  AbortReason reason;
  if (commands_.pop_fault(fault.client_id, fault.reason)) {
    notices_.send(fault);
  } else if (commands_.pop_abort(handle, reason)) {
    abort_(handle, reason, now);
  } else {
    commands_.clear_news();
  }
}

}  // namespace gradwire::lane
