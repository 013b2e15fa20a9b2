// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Clients, from 'open' until they have gone. When one dies, its groups abort with kClientDied
/// (with kPeerLeft if it closed the client by itself); its memory is unmapped, and the client
/// forgotten, when the command lane has said that nothing refers to them. Other groups go on.
///
/// The control thread owns it; time is a parameter. It allocates, and makes system calls to make a
/// client's queue and descriptors.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/abort_reason.h"
#include "base/result.h"
#include "control/clients/client_table.h"
#include "control/groups/group_ends.h"
#include "control/lanes/lane_requests.h"
#include "control/memory/memories.h"
#include "control/options.h"
#include "control/replies.h"
#include "control/stopping.h"
#include "control/work_meter.h"

namespace gradwire::control {

class Clients {
 public:
  /// All of them outlive it.
  /// @param lanes  how many there are.
  Clients(const ManagerOptions& options, std::uint8_t lanes, ClientTable& table,
          const GroupTable& groups, GroupEnds& ends, Memories& memories, LaneRequests& requests,
          Replies& replies, WorkMeter& work, const Stopping& stopping);

  void open(const PendingReply& to, const ipc::PeerCredentials& peer,
            std::span<const std::byte> body, TimeNs now);
  /// The command lane has it.
  void on_added(Client& client);
  /// The command lane says that it broke the rules.
  void on_fault(const command::Notice& notice, TimeNs now);
  /// Ends everything of a client: its groups, its memory, and finally the client itself.
  /// @param why  continues the sentence "the client ...".
  void retire(Client& client, const std::string& why, TimeNs now,
              AbortCode code = AbortCode::kClientDied);
  /// Disconnects the client: tells it why, retires it and closes its connection.
  void cut_off(Client& client, const std::string& why, TimeNs now);

 private:
  [[nodiscard]] Result<void> room_for(uid_t uid) const;
  [[nodiscard]] Result<std::unique_ptr<Client>> make(const ipc::PeerCredentials& peer);
  /// Ids start again from 1 after ManagerOptions::last_id.
  [[nodiscard]] std::uint32_t unused_id();

  const ManagerOptions& options_;
  const std::uint8_t lanes_;
  ClientTable& table_;
  const GroupTable& groups_;
  GroupEnds& ends_;
  Memories& memories_;
  LaneRequests& requests_;
  Replies& replies_;
  WorkMeter& work_;
  const Stopping& stopping_;
  std::uint32_t last_id_ = 0;
};

}  // namespace gradwire::control
