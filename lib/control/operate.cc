// SPDX-License-Identifier: BSD-3-Clause
// What an operator can request besides the status: the trace of the last ops, and to drain the
// daemon.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <ctime>

#include "control/manager.h"
#include "control/shard_status.h"

namespace gradwire::control {

using nlohmann::json;

namespace {

/// How many groups the trace can name after they have ended.
constexpr std::size_t kNamesKept = 256;

std::int64_t unix_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void Manager::remember_name(const Group& group) {
  names_[group.handle] = {group.key, group.uid, group.rank, group.all_ranks()};
  // Removes the oldest names, but never that of an existing group.
  for (auto name = names_.begin(); names_.size() > kNamesKept && name != names_.end();) {
    name = groups_.contains(name->first) ? std::next(name) : names_.erase(name);
  }
}

std::function<json()> Manager::prepare_trace(TimeNs now, uid_t viewer) const {
  std::vector<lane::TraceEvent> events;
  for (std::uint8_t lane = 0; lane < lanes_.lanes(); ++lane) {
    const std::vector<lane::TraceEvent> of_lane = reports_.trace(lane);
    events.insert(events.end(), of_lane.begin(), of_lane.end());
  }
  json about = {{"pid", ::getpid()},
                {"incarnation", fmt::format("{:016x}", options_.daemon.incarnation)},
                {"lanes", lanes_.lanes()},
                {"now_ns", now},
                {"unix_now_ns", unix_now_ns()}};
  return [events = std::move(events), names = names_, about = std::move(about), viewer] {
    json out = about;
    json& all = out["events"] = json::array();
    for (const lane::TraceEvent& event : events) {
      const auto name = names.find(event.group_handle);
      all.push_back(event_json(event, name == names.end() ? nullptr : &name->second));
      if (name != names.end() && !may_see(viewer, name->second.uid)) {
        all.back()["group_id"] = status::hidden_name(event.group_handle);
      }
    }
    return out;
  };
}

json Manager::event_json(const lane::TraceEvent& event, const GroupName* name) {
  json entry = {{"at_ns", event.at},
                {"lane", event.lane},
                {"event", lane::name_of(event.type)},
                {"op_seq", event.op_seq},
                {"value", event.value}};
  if (event.type != lane::TraceType::kAborted) entry["collective"] = name_of(event.collective);
  if (name != nullptr) {
    entry["group_id"] = fmt::format("{:016x}", name->key.group_id);
    entry["epoch"] = name->key.epoch;
    entry["rank"] = name->rank;
    entry["nranks"] = name->nranks;
  }
  if (event.type == lane::TraceType::kAborted) {
    AbortReason reason;
    reason.code = static_cast<AbortCode>(event.value);
    reason.culprit_rank = event.culprit_rank;
    reason.reporter_rank = event.reporter_rank;
    reason.op_seq = event.op_seq;
    entry["reason"] = describe(reason);
  }
  return entry;
}

bool Manager::may_operate(const PendingReply& to, const ipc::PeerCredentials& peer) {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  reply_error(
      to,
      {ErrorCode::kPermission,
       fmt::format("only root and the daemon's own user (uid {1}) may use '{0}'; this is uid {2}",
                   ipc::name_of(to.type), ::geteuid(), peer.uid)});
  return false;
}

void Manager::drain(const PendingReply& to, const ipc::PeerCredentials& peer,
                    std::span<const std::byte> body) {
  if (!may_operate(to, peer)) return;
  const auto request = ipc::body_as<ipc::DrainRequest>(body);
  if (!request || request->resume > 1) {
    return reply_error(
        to, {ErrorCode::kInvalidArgument, "the drain request has a wrong size or an unknown kind"});
  }
  command::Request message;
  if (request->resume == 1) {
    spdlog::info("resumed: groups and ops are accepted again");
    drain_ = DrainState::kNone;
    for (const PendingReply& waiting : drain_replies_) {
      reply_error(waiting, {ErrorCode::kAborted, "the daemon was resumed before it was drained"});
    }
    drain_replies_.clear();
    message.type = command::RequestType::kResume;
    this->request(kCommandLane, message);
    return reply_json(to, {{"state", "running"}});
  }
  drain_replies_.push_back(to);
  sink_.keep(to.connection);
  if (drain_ == DrainState::kNone) {
    spdlog::info("draining: new groups and ops are refused");
    drain_ = DrainState::kDraining;
  }
  message.type = command::RequestType::kDrain;
  this->request(kCommandLane, message);
}

void Manager::on_drained() {
  if (drain_ == DrainState::kNone) return;  // resumed meanwhile
  if (drain_ == DrainState::kDraining) spdlog::info("drained: no op is in progress");
  drain_ = DrainState::kDrained;
  for (const PendingReply& to : drain_replies_) {
    reply_json(to,
               {{"state", "drained"}, {"groups", groups_.size()}, {"clients", clients_.size()}});
  }
  drain_replies_.clear();
}

}  // namespace gradwire::control
