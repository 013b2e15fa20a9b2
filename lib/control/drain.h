// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Draining: new groups and ops are refused until an operator resumes. The daemon is drained when
/// the command lane has no op in progress; who asked is answered then. The control thread owns it;
/// it allocates.
#pragma once

#include <span>
#include <vector>

#include "control/clients/client_table.h"
#include "control/groups/group_table.h"
#include "control/lanes/lane_requests.h"
#include "control/replies.h"

namespace gradwire::control {

class Drain {
 public:
  /// All of them outlive it.
  Drain(const ClientTable& clients, const GroupTable& groups, LaneRequests& requests,
        Replies& replies)
      : clients_(clients), groups_(groups), requests_(requests), replies_(replies) {}

  /// Drains or resumes. @param to  of a peer that may operate the daemon.
  void on_request(const PendingReply& to, std::span<const std::byte> body);
  /// The command lane has no op in progress.
  void on_drained();

  /// Whether no new group is formed.
  [[nodiscard]] bool active() const noexcept { return state_ != State::kNone; }
  /// As the status says.
  [[nodiscard]] const char* name() const noexcept {
    return !active() ? "running" : state_ == State::kDraining ? "draining" : "drained";
  }

 private:
  enum class State : std::uint8_t { kNone, kDraining, kDrained };

  const ClientTable& clients_;
  const GroupTable& groups_;
  LaneRequests& requests_;
  Replies& replies_;
  State state_ = State::kNone;
  std::vector<PendingReply> waiting_;
};

}  // namespace gradwire::control
