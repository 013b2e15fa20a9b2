// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How this daemon describes itself to its clients: its entry in their tables, for a user and for
/// what the job wants of its packets. The control thread owns it; it allocates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>

#include "base/result.h"
#include "control/keys/daemon_keys.h"
#include "control/lanes/lane_control.h"
#include "control/options.h"
#include "control/replies.h"
#include "control/state.h"
#include "control/work_meter.h"

namespace gradwire::control {

class Entries {
 public:
  /// Jobs' keys that one client brings.
  static constexpr std::size_t kJobKeysMax = 64;

  /// All of them outlive it.
  Entries(const ManagerOptions& options, const LaneControl& lanes, DaemonKeys& keys,
          Replies& replies, WorkMeter& work);

  /// With this user's secret.
  [[nodiscard]] ipc::RankInfo without_keys(uid_t uid) const;
  /// Answers 'describe'.
  /// @param client  nullptr: the connection has opened none.
  void describe(const PendingReply& to, uid_t uid, Client* client, std::span<const std::byte> body);

 private:
  [[nodiscard]] Result<ipc::RankInfo> entry_for(uid_t uid, Client* client,
                                                const ipc::DescribeRequest& wanted);
  /// Keeps the key. @return its id.
  [[nodiscard]] Result<security::KeyId> take_job_key(Client* client,
                                                     const ipc::DescribeRequest& wanted) const;

  const ManagerOptions& options_;
  DaemonKeys& keys_;
  Replies& replies_;
  WorkMeter& work_;
  const ipc::RankInfo own_;  ///< without a secret
};

}  // namespace gradwire::control
