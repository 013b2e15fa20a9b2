// SPDX-License-Identifier: BSD-3-Clause
// Messages in, notices, and rounds. manager_stop.cc says how the daemon stops.
#include "control/manager.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace gradwire::control {
namespace {

/// For a key that is made while a group runs: some 10 microseconds.
constexpr std::uint64_t kKeySteps = 10;
/// Notices taken in one round, so that a flood of them does not keep the control socket waiting.
constexpr std::uint64_t kNoticesPerRound = 1024;
/// What they may cause: each may answer 64 members. The last one may exceed it.
constexpr std::uint64_t kNoticeStepsPerRound = 4'096;
/// Groups of which a round looks whether their members have left in time; they take turns.
constexpr std::size_t kLeaveLooksPerRound = 64;

// Steps, besides those that are counted where the work is done.
/// Makes a hugepage and three descriptors.
constexpr std::uint64_t kOpenSteps = 256;
constexpr std::uint64_t kAllocateSteps = 64;
/// For copying a lane's last events.
constexpr std::uint64_t kTraceSteps = 64;
/// For a group that is not formed, of which the status says who is missing.
constexpr std::size_t kRanksPerStep = 16;

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
      work_(options.charge),
      replies_(sink),
      requests_(lanes),
      worker_(worker != nullptr ? *worker : inline_worker_),
      closers_(closers),
      memories_(options_, memory, client_table_, requests_, replies_, work_, stopping_, worker_,
                closers),
      ends_(options_.limits, lanes, groups_, client_table_, requests_, replies_, work_),
      drain_(client_table_, groups_, requests_, replies_),
      keys_(
          options_.keys, options.daemon.incarnation,
          [this](uid_t uid) { return client_table_.of_user(uid) > 0; },
          {options.limits.key_bytes, options.limits.key_bytes_per_user}, &worker_),
      entries_(options_, lanes, keys_, replies_, work_),
      formation_(options_, lanes, reports, groups_, ends_, requests_, replies_, work_, stopping_,
                 drain_, entries_, keys_, worker_),
      clients_(options_, lanes.lanes(), client_table_, groups_, ends_, memories_, requests_,
               replies_, work_, stopping_),
      faults_(options_, lanes.lanes(), reports, requests_, replies_),
      late_watch_(reports, groups_, work_),
      status_({options_, lanes, reports, client_table_, groups_, requests_, faults_, drain_,
               stopping_, keys_},
              now),
      texts_(replies_, work_, worker_) {
  spdlog::info("security: {}", keys_.text());
}

Manager::~Manager() = default;

void Manager::on_message(ipc::ConnectionId connection, const ipc::PeerCredentials& peer,
                         const ipc::Message& message, TimeNs now) {
  dispatch({connection, message.type(), message.header.request_id}, peer, message, now);
}

void Manager::dispatch(const PendingReply& to, const ipc::PeerCredentials& peer,
                       const ipc::Message& message, TimeNs now) {
  using ipc::MessageType;
  work_.add(steps_of(to.type));
  switch (to.type) {
    case MessageType::kOpen:
      return clients_.open(to, peer, message.body, now);
    case MessageType::kDescribe:
      return entries_.describe(to, peer.uid, client_table_.of(to.connection), message.body);
    case MessageType::kStatus:
      return texts_.ask_for_status(to, peer.uid);
    case MessageType::kTrace:
      return texts_.ask_for_trace(to, peer.uid);
    case MessageType::kDrain:
      if (may_operate(to, peer)) drain_.on_request(to, message.body);
      return;
    case MessageType::kLoadKeys:
      if (may_operate(to, peer)) load_keys(to);
      return;
    case MessageType::kInject:
      // Users of the daemon must not be able to break it for others.
      if (may_operate(to, peer)) faults_.inject(to, message.body);
      return;
    default:
      break;
  }
  Client* client = client_table_.of(to.connection);
  if (client == nullptr || client->open_reply) {
    return replies_.error(to,
                          {ErrorCode::kInvalidArgument,
                           fmt::format("'{}' came before 'open' was answered on this connection",
                                       ipc::name_of(to.type))});
  }
  dispatch(to, *client, message, now);
}

void Manager::dispatch(const PendingReply& to, Client& client, const ipc::Message& message,
                       TimeNs now) {
  using ipc::MessageType;
  switch (to.type) {
    case MessageType::kClose:
      clients_.retire(client, "closed its client", now, AbortCode::kPeerLeft);
      return replies_.hang_up(to.connection);
    case MessageType::kAllocate:
      return memories_.allocate(to, client, message.body);
    case MessageType::kFree:
      return memories_.free(to, client, message.body);
    case MessageType::kMakeEvent:
      return memories_.make_event(to, client);
    case MessageType::kJoin:
      return formation_.join(to, client, message, now);
    case MessageType::kLeave:
      return ends_.leave(to, client, message.body, now);
    case MessageType::kAbort:
      return ends_.abort(to, client, message.body, now);
    default:
      return replies_.error(to,
                            {ErrorCode::kUnsupported,
                             fmt::format("this daemon does not know control messages of type {}",
                                         static_cast<unsigned>(to.type))});
  }
}

bool Manager::may_operate(const PendingReply& to, const ipc::PeerCredentials& peer) {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  replies_.error(
      to,
      {ErrorCode::kPermission,
       fmt::format("only root and the daemon's own user (uid {1}) may use '{0}'; this is uid {2}",
                   ipc::name_of(to.type), ::geteuid(), peer.uid)});
  return false;
}

void Manager::load_keys(const PendingReply& to) {
  if (auto loaded = keys_.load(); !loaded) {
    spdlog::warn("the key files were read again, and the keys stay as they were: {}",
                 loaded.error().message);
    return replies_.error(to, loaded.error());
  }
  spdlog::info("the key files were read again: {}", keys_.text());
  replies_.json(to, {{"mode", security::name_of(keys_.mode())},
                     {"minimum", security::name_of(keys_.minimum())},
                     {"keys", keys_.ids()}});
}

void Manager::on_hangup(ipc::ConnectionId connection, TimeNs now) {
  texts_.on_hangup(connection);
  Client* client = client_table_.of(connection);
  if (client != nullptr) clients_.retire(*client, "hung up", now);
}

void Manager::poll(TimeNs now) {
  texts_.begin_round(now);
  worker_.finish();
  if (closers_ != nullptr) closers_->finish();
  take_notices(now);
  formation_.run(now);
  check_deadlines(now);
  memories_.release_lingering(now);
  late_watch_.run(now);
  poll_stop(now);
  serve_texts(now);
  requests_.flush();
}

void Manager::take_notices(TimeNs now) {
  work_.begin_round();
  ends_.begin_round();
  command::Notice notice;
  const std::uint64_t until = work_.steps() + kNoticeStepsPerRound;
  std::uint64_t taken = 0;
  for (; taken < kNoticesPerRound && work_.steps() < until && lanes_.next_notice(notice); ++taken) {
    work_.add(1);
    ++progress_.notices;
    on_notice(notice, now);
  }
  progress_.notices_wait = taken == kNoticesPerRound || work_.steps() >= until;
  if (progress_.notices_wait) work_.leave_some();
}

void Manager::check_deadlines(TimeNs now) {
  formation_.begin_deadlines();
  std::optional<Published> published;
  // By handle, since each of these steps may end the group.
  const std::set<std::uint64_t>& forming = groups_.forming();
  for (const std::uint64_t handle : std::vector(forming.begin(), forming.end())) {
    work_.add(1);
    if (Group* group = groups_.by_handle(handle)) formation_.check_deadline(*group, now, published);
  }
  for (const std::uint64_t handle : groups_.handles_after(looked_at_, kLeaveLooksPerRound)) {
    work_.add(1);
    looked_at_ = handle;
    if (Group* group = groups_.by_handle(handle)) ends_.check_leave_deadline(*group, now);
  }
}

Manager::Progress Manager::progress() const noexcept {
  Progress out = progress_;
  out.requests_sent = requests_.sent();
  out.requests_wait = requests_.waits();
  return out;
}

void Manager::serve_texts(TimeNs now) {
  using nlohmann::json;
  const auto status_text = [&](uid_t viewer) -> std::function<json()> {
    work_.add(groups_.size() * lanes_.lanes() + client_table_.size());
    for (const auto& [handle, group] : groups_.all()) {
      if (group->state < GroupState::kFormed) work_.add(group->table.size() / kRanksPerStep);
    }
    // What changes all the time has to be looked at here. 256 groups on 16 lanes take this thread
    // 20 ms; their text of 6 MB takes the worker 0.4 s.
    return [value = std::make_shared<status::DaemonStatus>(status(now, viewer))] {
      return json(*value);
    };
  };
  const auto trace_text = [&](uid_t viewer) {
    work_.add(kTraceSteps * lanes_.lanes());
    return status_.prepare_trace(now, viewer);
  };
  texts_.serve(status_text, trace_text);
}

void Manager::on_notice(const command::Notice& notice, TimeNs now) {
  switch (notice.type) {
    case command::NoticeType::kRequestDone:
      return on_request_done(notice, now);
    case command::NoticeType::kGroupFormed:
      if (Group* group = groups_.by_handle(notice.group_handle)) {
        formation_.on_lane_formed(*group, notice.lane, now);
      }
      return;
    case command::NoticeType::kGroupAborted:
      if (Group* group = groups_.by_handle(notice.group_handle)) on_aborted(*group, notice, now);
      return;
    case command::NoticeType::kClientFault:
      return clients_.on_fault(notice, now);
    case command::NoticeType::kKeyWanted:
      if (Group* group = groups_.by_handle(notice.group_handle)) supply_key(*group, notice);
      return;
  }
}

/// The key of another generation, by which a lane's packets to a rank or from it go on.
void Manager::supply_key(Group& group, const command::Notice& notice) {
  GroupKeys* const keys = group.wanted.keys.get();
  auto request = keys == nullptr ? std::optional<command::Request>()
                                 : keys->supply(group.handle, notice.lane, notice.wish);
  if (!request) {
    spdlog::error("{}: lane {} wants a key of rank {} that does not come next", key_text(group.key),
                  notice.lane, notice.wish.rank);
    return;
  }
  requests_.send(notice.lane, std::move(*request));
  work_.add(kKeySteps);
  work_.charge(group.uid, kKeySteps);
}

void Manager::on_aborted(Group& group, const command::Notice& notice, TimeNs now) {
  if (group.state == GroupState::kForming) {
    return ends_.fail_formation(group, {ErrorCode::kAborted, describe(notice.reason)},
                                notice.reason, now);
  }
  ends_.abort(group, notice.reason, notice.lane, now);
}

void Manager::on_request_done(const command::Notice& notice, TimeNs now) {
  const LaneRequests::Request done = requests_.take_done(notice.request);
  if (done.request == nullptr) {
    spdlog::error("lane {} answered a request that the control thread did not send", notice.lane);
    return;
  }
  const command::Request& request = *done.request;
  Client* client = client_table_.by_id(request.client_id);
  switch (request.type) {
    case command::RequestType::kAddClient:
      if (client != nullptr) clients_.on_added(*client);
      return;
    case command::RequestType::kRemoveClient:
      if (client != nullptr) client->removed = true;
      return memories_.forget_if_gone(request.client_id);
    case command::RequestType::kAddMemory:
      if (client != nullptr) memories_.on_added(*client, request.memory);
      return;
    case command::RequestType::kAddEvent:
      if (client != nullptr) memories_.on_event_added(*client, request.event_handle);
      return;
    case command::RequestType::kRemoveMemory:
      if (client != nullptr) memories_.on_removed(*client, request.memory);
      return memories_.forget_if_gone(request.client_id);
    case command::RequestType::kDrain:
      return drain_.on_drained();
    case command::RequestType::kResume:
    case command::RequestType::kAddGroup:
    case command::RequestType::kMemberLeft:
    case command::RequestType::kAbortGroup:
    case command::RequestType::kMoveLink:   // LinkWatch handles it
    case command::RequestType::kSupplyKey:  // the key that it brought back goes with it
    case command::RequestType::kSetFaults:
      return;  // their results come as other notices, or there are none
    case command::RequestType::kLeaveGroup:
      if (Group* group = groups_.by_handle(request.group_handle)) {
        ends_.on_lane_closed(*group, done.lane, now);
      }
      return;
  }
}

}  // namespace gradwire::control
