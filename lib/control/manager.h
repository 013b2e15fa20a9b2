// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The control plane of a daemon: its clients, their memory, and its part in groups. It takes
/// clients' messages and lanes' notices, and sends replies (MessageSink) and requests
/// (LaneControl). One object, on the control thread (the main lcore); time is a parameter; it
/// allocates, and makes system calls only to make shared memory and to learn when a process ends.
///
/// It puts the parts together, each a class of its own, and hands each message and notice to the
/// one that it concerns: Clients, Memories, Formation, GroupEnds (how things end), FaultControl,
/// Drain, Texts and StatusMaker. ClientTable and GroupTable are what they have in common.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "control/clients/client_table.h"
#include "control/clients/clients.h"
#include "control/drain.h"
#include "control/fault_control.h"
#include "control/formation/entries.h"
#include "control/formation/formation.h"
#include "control/groups/group_ends.h"
#include "control/groups/group_table.h"
#include "control/groups/late_watch.h"
#include "control/keys/daemon_keys.h"
#include "control/lanes/lane_control.h"
#include "control/lanes/lane_reports.h"
#include "control/lanes/lane_requests.h"
#include "control/memory/client_memory.h"
#include "control/memory/memories.h"
#include "control/options.h"
#include "control/replies.h"
#include "control/status_maker.h"
#include "control/stopping.h"
#include "control/texts.h"
#include "control/work_meter.h"
#include "ipc/closers.h"
#include "ipc/message_sink.h"
#include "ipc/message_socket.h"
#include "ipc/worker.h"
#include "status/daemon_status.h"

namespace gradwire::control {

class Manager {
 public:
  /// All arguments but the options must outlive the manager. Without a worker everything is done at
  /// once.
  Manager(const ManagerOptions& options, LaneControl& lanes, ClientMemory& memory,
          const LaneReports& reports, ipc::MessageSink& sink, TimeNs now,
          ipc::Worker* worker = nullptr, ipc::Closers* closers = nullptr);
  /// The lanes must be stopped before. Destroys what they still held.
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  void on_message(ipc::ConnectionId connection, const ipc::PeerCredentials& peer,
                  const ipc::Message& message, TimeNs now);
  void on_hangup(ipc::ConnectionId connection, TimeNs now);
  /// Takes notices, resolves addresses, enforces time limits. Call it every round of the control
  /// loop.
  void poll(TimeNs now);

  /// Begins to stop the daemon: it accepts nothing new; members have Limits::stop_drain_ns to
  /// leave, then every group aborts with kDaemonStopped and every client is disconnected.
  void begin_stop(TimeNs now);
  /// @return whether everything is closed, or the time for it is over.
  [[nodiscard]] bool stopped(TimeNs now) const noexcept;
  /// @return what was not closed in time; empty if everything was.
  [[nodiscard]] std::string leftovers() const;

  /// As StatusMaker's.
  [[nodiscard]] status::DaemonStatus status(TimeNs now, uid_t viewer = 0) const {
    return status_.make(now, viewer);
  }
  /// The last events of ops, as in a kTrace reply; `viewer` as above.
  [[nodiscard]] nlohmann::json trace(TimeNs now, uid_t viewer = 0) const {
    return status_.prepare_trace(now, viewer)();
  }

  /// As WorkMeter's: what all calls together have done so far, and whether the next poll() has
  /// something to do, whatever comes in between.
  [[nodiscard]] std::uint64_t steps() const noexcept { return work_.steps(); }
  [[nodiscard]] bool has_more() const noexcept { return work_.has_more(); }

  /// How the manager's own duties go on, for the watchdog.
  struct Progress {
    std::uint64_t notices = 0;        ///< of lanes, taken so far
    bool notices_wait = false;        ///< the last poll() left some
    std::uint64_t requests_sent = 0;  ///< to lanes
    bool requests_wait = false;
  };
  [[nodiscard]] Progress progress() const noexcept;

  [[nodiscard]] std::size_t client_count() const noexcept { return client_table_.size(); }
  [[nodiscard]] std::size_t group_count() const noexcept { return groups_.size(); }

 private:
  void dispatch(const PendingReply& to, const ipc::PeerCredentials& peer,
                const ipc::Message& message, TimeNs now);
  void dispatch(const PendingReply& to, Client& client, const ipc::Message& message, TimeNs now);
  /// Whether the peer is root or the daemon's own user. If not, replies with the error.
  [[nodiscard]] bool may_operate(const PendingReply& to, const ipc::PeerCredentials& peer);
  void load_keys(const PendingReply& to);
  void on_notice(const command::Notice& notice, TimeNs now);
  void supply_key(Group& group, const command::Notice& notice);
  void on_aborted(Group& group, const command::Notice& notice, TimeNs now);
  void on_request_done(const command::Notice& notice, TimeNs now);
  void take_notices(TimeNs now);
  void check_deadlines(TimeNs now);
  void poll_stop(TimeNs now);
  void serve_texts(TimeNs now);

  const ManagerOptions options_;
  LaneControl& lanes_;
  WorkMeter work_;
  Stopping stopping_;
  Replies replies_;
  LaneRequests requests_;
  ClientTable client_table_;
  GroupTable groups_;
  ipc::InlineWorker inline_worker_;
  ipc::Worker& worker_;
  ipc::Closers* closers_;
  Memories memories_;
  GroupEnds ends_;
  Drain drain_;
  DaemonKeys keys_;
  Entries entries_;
  Formation formation_;
  Clients clients_;
  FaultControl faults_;
  LateWatch late_watch_;
  StatusMaker status_;
  Texts texts_;
  Progress progress_;
  std::uint64_t looked_at_ = 0;  ///< of which it was looked at last whether its members left
};

}  // namespace gradwire::control
