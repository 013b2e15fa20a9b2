// SPDX-License-Identifier: BSD-3-Clause
#include "control/manager.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace gradwire::control {
namespace {

/// Notices taken in one round, so that a flood of them does not keep the control socket waiting.
constexpr int kNoticesPerRound = 1024;

// Steps, besides those that are counted where the work is done.
/// Makes a hugepage and three descriptors.
constexpr std::uint64_t kOpenSteps = 256;
constexpr std::uint64_t kAllocateSteps = 64;

std::uint64_t steps_of(ipc::MessageType type) {
  switch (type) {
    case ipc::MessageType::kOpen:
      return kOpenSteps;
    case ipc::MessageType::kAllocate:
    case ipc::MessageType::kFree:
    case ipc::MessageType::kMakeEvent:
      return kAllocateSteps;
    default:
      return 1;
  }
}

}  // namespace

Manager::Manager(const ManagerOptions& options, LaneControl& lanes, ClientMemory& memory,
                 const LaneReports& reports, ipc::MessageSink& sink, TimeNs now,
                 ipc::Worker* worker, ipc::Closers* closers)
    : options_(options),
      lanes_(lanes),
      memory_(memory),
      reports_(reports),
      sink_(sink),
      started_(now),
      own_info_(make_rank_info(options.daemon, lanes.lanes(), lanes.addresses())),
      unsent_(lanes.lanes()),
      worker_(worker != nullptr ? *worker : inline_worker_),
      closers_(closers),
      port_faults_(reports.port_faults()) {}

Manager::~Manager() {
  for (const auto& [handle, group] : groups_) {
    if (group->plan != nullptr) lanes_.destroy_plan(group->plan);
  }
  for (const auto& [id, client] : clients_) {
    for (const auto& [handle, memory] : client->memories) {
      if (memory.on_gpu()) memory_.free_on_gpu(memory.gpu.address);
      if (memory.registered) memory_.unregister_host(memory.mapping.data());
    }
    // The worker has ended, perhaps before this memory was complete.
    if (client->making != nullptr && client->making->registered) {
      memory_.unregister_host(client->making->memory.data());
    }
  }
}

void Manager::on_message(ipc::ConnectionId connection, const ipc::PeerCredentials& peer,
                         const ipc::Message& message, TimeNs now) {
  dispatch({connection, message.type(), message.header.request_id}, peer, message, now);
}

void Manager::dispatch(const PendingReply& to, const ipc::PeerCredentials& peer,
                       const ipc::Message& message, TimeNs now) {
  using ipc::MessageType;
  steps_ += steps_of(to.type);
  switch (to.type) {
    case MessageType::kOpen:
      return open(to, peer, message.body, now);
    case MessageType::kDescribe:
      return reply(to, ipc::bytes_of(info_for(peer.uid)));
    case MessageType::kStatus:
      return ask(status_asks_, to, peer.uid);
    case MessageType::kTrace:
      return ask(trace_asks_, to, peer.uid);
    case MessageType::kDrain:
      return drain(to, peer, message.body);
    case MessageType::kInject:
      return inject(to, peer, message.body);
    default:
      break;
  }
  Client* client = client_of(to.connection);
  if (client == nullptr || client->open_reply) {
    return reply_error(to, {ErrorCode::kInvalidArgument,
                            fmt::format("'{}' came before 'open' was answered on this connection",
                                        ipc::name_of(to.type))});
  }
  switch (to.type) {
    case MessageType::kClose:
      retire(*client, "closed its client", now, AbortCode::kPeerLeft);
      return sink_.hang_up(to.connection);
    case MessageType::kAllocate:
      return allocate(to, *client, message.body);
    case MessageType::kFree:
      return free_memory(to, *client, message.body);
    case MessageType::kMakeEvent:
      return make_event(to, *client);
    case MessageType::kJoin:
      return join(to, *client, message, now);
    case MessageType::kLeave:
      return leave(to, *client, message.body, now);
    case MessageType::kAbort:
      return abort(to, *client, message.body, now);
    default:
      return reply_error(to, {ErrorCode::kUnsupported,
                              fmt::format("this daemon does not know control messages of type {}",
                                          static_cast<unsigned>(to.type))});
  }
}

void Manager::on_hangup(ipc::ConnectionId connection, TimeNs now) {
  status_asks_.waiting.erase(connection);
  trace_asks_.waiting.erase(connection);
  Client* client = client_of(connection);
  if (client != nullptr) retire(*client, "hung up", now);
}

void Manager::poll(TimeNs now) {
  polled_at_ = now;
  lent_.take_back(now);
  worker_.finish();
  if (closers_ != nullptr) closers_->finish();
  command::Notice notice;
  has_more_ = false;
  int taken = 0;
  for (; taken < kNoticesPerRound && lanes_.next_notice(notice); ++taken) {
    ++steps_;
    ++progress_.notices;
    on_notice(notice, now);
  }
  progress_.notices_wait = taken == kNoticesPerRound;
  has_more_ = progress_.notices_wait;
  resolve_in_turn(now);
  ended_steps_ = 0;
  std::optional<Published> published;
  // By handle, since each of these steps may end the group.
  for (const std::uint64_t handle : group_handles()) {
    ++steps_;
    if (Group* group = group_by_handle(handle)) check_formation_deadline(*group, now, published);
    if (Group* group = group_by_handle(handle)) check_leave_deadline(*group, now);
  }
  release_lingering(now);
  poll_stop(now);
  serve_texts(now);
  flush_requests();
}

void Manager::reply(const PendingReply& to, std::span<const std::byte> body,
                    std::vector<ipc::UniqueFd> fds) {
  if (to.request_id == ipc::kNoReply) return;
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(to.type);
  header.request_id = to.request_id;
  sink_.send(to.connection, header, body, std::move(fds));
}

void Manager::reply_error(const PendingReply& to, const Error& error) {
  if (to.request_id == ipc::kNoReply) return;
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(to.type);
  header.request_id = to.request_id;
  header.error_code = static_cast<std::uint32_t>(error.code);
  const ipc::ErrorBody body = ipc::error_body(error.message);
  sink_.send(to.connection, header, ipc::bytes_of(body), {});
}

void Manager::request(std::uint8_t lane, command::Request request) {
  auto owned = std::make_unique<command::Request>(std::move(request));
  command::Request* pointer = owned.get();
  outstanding_.emplace(pointer, Outstanding{std::move(owned), lane});
  unsent_[lane].push_back(pointer);
  flush_requests();
}

void Manager::flush_requests() {
  for (std::size_t lane = 0; lane < unsent_.size(); ++lane) {
    while (!unsent_[lane].empty() &&
           lanes_.send(static_cast<std::uint8_t>(lane), unsent_[lane].front())) {
      unsent_[lane].pop_front();
      ++progress_.requests_sent;
    }
  }
}

Manager::Progress Manager::progress() const noexcept {
  Progress out = progress_;
  out.requests_wait =
      std::ranges::any_of(unsent_, [](const auto& requests) { return !requests.empty(); });
  return out;
}

void Manager::on_notice(const command::Notice& notice, TimeNs now) {
  switch (notice.type) {
    case command::NoticeType::kRequestDone:
      return on_request_done(notice, now);
    case command::NoticeType::kGroupFormed:
      if (Group* group = group_by_handle(notice.group_handle)) {
        on_lane_formed(*group, notice.lane, now);
      }
      return;
    case command::NoticeType::kGroupAborted:
      if (Group* group = group_by_handle(notice.group_handle)) {
        if (group->state == GroupState::kForming) {
          return fail_formation(*group, {ErrorCode::kAborted, describe(notice.reason)},
                                notice.reason, now);
        }
        abort_group(*group, notice.reason, notice.lane, now);
      }
      return;
    case command::NoticeType::kClientFault:
      return on_client_fault(notice, now);
  }
}

void Manager::on_request_done(const command::Notice& notice, TimeNs now) {
  const auto found = outstanding_.find(notice.request);
  if (found == outstanding_.end()) {
    spdlog::error("lane {} answered a request that the control thread did not send", notice.lane);
    return;
  }
  const Outstanding done = std::move(found->second);
  outstanding_.erase(found);
  const command::Request& request = *done.request;
  Client* client = client_by_id(request.client_id);
  switch (request.type) {
    case command::RequestType::kAddClient:
      if (client != nullptr) client_added(*client);
      return;
    case command::RequestType::kRemoveClient:
      if (client != nullptr) client->removed = true;
      return forget_if_gone(request.client_id);
    case command::RequestType::kAddMemory:
      if (client != nullptr) memory_added(*client, request.memory);
      return;
    case command::RequestType::kAddEvent:
      if (client != nullptr) event_added(*client, request.event_handle);
      return;
    case command::RequestType::kRemoveMemory:
      if (client != nullptr) memory_removed(*client, request.memory);
      return forget_if_gone(request.client_id);
    case command::RequestType::kDrain:
      return on_drained();
    case command::RequestType::kResume:
    case command::RequestType::kAddGroup:
    case command::RequestType::kMemberLeft:
    case command::RequestType::kAbortGroup:
    case command::RequestType::kMoveLink:  // LinkWatch handles it
    case command::RequestType::kSetFaults:
      return;  // their results come as other notices, or there are none
    case command::RequestType::kLeaveGroup:
      if (Group* group = group_by_handle(request.group_handle)) {
        on_lane_closed(*group, done.lane, now);
      }
      return;
  }
}

}  // namespace gradwire::control
