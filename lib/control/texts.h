// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Status and trace as texts: asked for, made in the worker, and answered. Texts of a kind are made
/// one at a time: for all connections of one user that asked, one answer each, and then for the
/// next user. So a user who asks all the time does not keep others waiting. The control thread owns
/// it; time is a parameter; it allocates.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "control/lent_texts.h"
#include "control/replies.h"
#include "control/work_meter.h"
#include "ipc/worker.h"

namespace gradwire::control {

class Texts {
 public:
  /// Called in the control thread with the id of the user whose view it is; the worker calls the
  /// function that it returns.
  using Prepare = std::function<std::function<nlohmann::json()>(uid_t viewer)>;

  /// All of them outlive it.
  Texts(Replies& replies, WorkMeter& work, ipc::Worker& worker)
      : replies_(replies), work_(work), worker_(worker) {}

  void ask_for_status(const PendingReply& to, uid_t uid) { ask(status_, to, uid); }
  void ask_for_trace(const PendingReply& to, uid_t uid) { ask(trace_, to, uid); }
  void on_hangup(ipc::ConnectionId connection);

  /// Before texts that were made in the worker are taken from it.
  void begin_round(TimeNs now);
  /// Begins to make what was asked for.
  void serve(const Prepare& status, const Prepare& trace);

 private:
  struct Asker {
    uid_t uid = 0;
    uid_t viewer = 0;  ///< whose view of the groups it sees
    std::deque<PendingReply> replies;
  };
  /// For texts of a kind.
  struct Asks {
    std::map<ipc::ConnectionId, Asker> waiting;
    uid_t last_viewer = 0;
    bool making = false;
  };

  void ask(Asks& asks, const PendingReply& to, uid_t uid);
  void serve(Asks& asks, const Prepare& prepare);

  Replies& replies_;
  WorkMeter& work_;
  ipc::Worker& worker_;
  Asks status_;
  Asks trace_;
  LentTexts lent_;
  TimeNs round_at_ = 0;
};

}  // namespace gradwire::control
