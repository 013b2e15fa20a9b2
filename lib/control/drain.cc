// SPDX-License-Identifier: BSD-3-Clause
#include "control/drain.h"

#include <spdlog/spdlog.h>

namespace gradwire::control {

void Drain::on_request(const PendingReply& to, std::span<const std::byte> body) {
  const auto request = ipc::body_as<ipc::DrainRequest>(body);
  if (!request || request->resume > 1) {
    return replies_.error(
        to, {ErrorCode::kInvalidArgument, "the drain request has a wrong size or an unknown kind"});
  }
  command::Request message;
  if (request->resume == 1) {
    spdlog::info("resumed: groups and ops are accepted again");
    state_ = State::kNone;
    for (const PendingReply& waiting : waiting_) {
      replies_.error(waiting,
                     {ErrorCode::kAborted, "the daemon was resumed before it was drained"});
    }
    waiting_.clear();
    message.type = command::RequestType::kResume;
    requests_.send(LaneRequests::kCommandLane, message);
    return replies_.json(to, {{"state", "running"}});
  }
  waiting_.push_back(to);
  replies_.keep(to.connection);
  if (state_ == State::kNone) {
    spdlog::info("draining: new groups and ops are refused");
    state_ = State::kDraining;
  }
  message.type = command::RequestType::kDrain;
  requests_.send(LaneRequests::kCommandLane, message);
}

void Drain::on_drained() {
  if (state_ == State::kNone) return;  // resumed meanwhile
  if (state_ == State::kDraining) spdlog::info("drained: no op is in progress");
  state_ = State::kDrained;
  for (const PendingReply& to : waiting_) {
    replies_.json(to,
                  {{"state", "drained"}, {"groups", groups_.size()}, {"clients", clients_.size()}});
  }
  waiting_.clear();
}

}  // namespace gradwire::control
