// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The control plane of a daemon: its clients, their memory, and its part in groups. It takes
/// clients' messages and lanes' notices, and sends replies (MessageSink) and requests
/// (LaneControl). One object, on the control thread (the main lcore); time is a parameter; it
/// allocates, and makes system calls only to make shared memory and to learn when a process ends.
///
/// How things end:
/// - A group ends when all its members have left. Once one has left, the others have
/// Limits::leave_grace_ns to leave too; then the group aborts with kPeerLeft.
/// - When a shard aborts, or a member asks for it, every lane aborts, every member gets a
/// kGroupAborted event, and the group stays on the lanes until a member leaves, so that commands
/// that members still post are answered with the reason.
/// - When a client dies, its groups abort with kClientDied (with kPeerLeft if it closed the client
/// by itself) and leave the lanes at once; a closed group is kept until its living members leave.
/// Its memory is unmapped, and the client forgotten, when the command lane has said that nothing
/// refers to them. Other groups go on.
/// - Formation that fails leaves nothing behind: members get an error and no handle.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/abort_reason.h"
#include "base/rate_meter.h"
#include "base/result.h"
#include "control/formation/epochs.h"
#include "control/lanes/lane_control.h"
#include "control/lanes/lane_reports.h"
#include "control/lent_texts.h"
#include "control/memory/client_memory.h"
#include "control/options.h"
#include "control/state.h"
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

  /// The whole status. For groups of other users it hides from `viewer` what identifies them on the
  /// wire; root and the daemon's own user see everything.
  [[nodiscard]] status::DaemonStatus status(TimeNs now, uid_t viewer = 0) const;
  /// The last events of ops, as in a kTrace reply; `viewer` as above.
  [[nodiscard]] nlohmann::json trace(TimeNs now, uid_t viewer = 0) const {
    return prepare_trace(now, viewer)();
  }

  /// What all calls together have done so far. A step is about a microsecond's work: an entry of a
  /// table, an address looked at, a group or a lane's part of one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Whether the next poll() has something to do, whatever comes in between.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }

  /// How the manager's own duties go on, for the watchdog.
  struct Progress {
    std::uint64_t notices = 0;        ///< of lanes, taken so far
    bool notices_wait = false;        ///< the last poll() left some
    std::uint64_t requests_sent = 0;  ///< to lanes
    bool requests_wait = false;
  };
  [[nodiscard]] Progress progress() const noexcept;

  [[nodiscard]] std::size_t client_count() const noexcept { return clients_.size(); }
  [[nodiscard]] std::size_t group_count() const noexcept { return groups_.size(); }

 private:
  /// What each lane published last, by group handle, read once for all parts of a status.
  using Published = std::vector<std::unordered_map<std::uint64_t, command::PublishedStatus>>;
  /// Only lane 0 reads the clients' queues and checks their memory.
  static constexpr std::uint8_t kCommandLane = 0;
  enum class StopState : std::uint8_t { kRunning, kDraining, kClosing };
  struct GroupName {
    GroupKey key;
    uid_t uid = 0;
    std::uint16_t rank = 0;
    std::uint16_t nranks = 0;
  };
  struct Outstanding {
    std::unique_ptr<command::Request> request;
    std::uint8_t lane = 0;
  };

  // manager.cc: messages in, replies and requests out, notices
  void dispatch(const PendingReply& reply, const ipc::PeerCredentials& peer,
                const ipc::Message& message, TimeNs now);
  void reply(const PendingReply& to, std::span<const std::byte> body,
             std::vector<ipc::UniqueFd> fds = {});
  void reply_error(const PendingReply& to, const Error& error);
  void request(std::uint8_t lane, command::Request request);
  void flush_requests();
  void on_notice(const command::Notice& notice, TimeNs now);
  void on_request_done(const command::Notice& notice, TimeNs now);

  // clients.cc: clients open and retire
  /// This daemon's entry in a table, with this user's secret.
  [[nodiscard]] ipc::RankInfo info_for(uid_t uid) const;
  void open(const PendingReply& reply, const ipc::PeerCredentials& peer,
            std::span<const std::byte> body, TimeNs now);
  [[nodiscard]] Result<void> room_for_client(uid_t uid) const;
  [[nodiscard]] Result<std::unique_ptr<Client>> make_client(const ipc::PeerCredentials& peer);
  void client_added(Client& client);
  /// An unused id: ids start again from 1 after ManagerOptions::last_id.
  [[nodiscard]] std::uint32_t unused_client_id();
  template <class IsUsed>
  [[nodiscard]] std::uint32_t next_unused(std::uint32_t& last, IsUsed&& is_used) const {
    do {
      last = last == options_.last_id ? 1 : last + 1;
    } while (is_used(last));
    return last;
  }
  void on_client_fault(const command::Notice& notice, TimeNs now);
  /// Ends everything of a client: its groups, its memory, and finally the client itself. `why`
  /// continues the sentence "the client ...".
  void retire(Client& client, const std::string& why, TimeNs now,
              AbortCode code = AbortCode::kClientDied);
  /// Disconnects the client: tells it why, retires it and closes its connection.
  void cut_off(Client& client, const std::string& why, TimeNs now);
  void forget_client(std::uint32_t client_id);
  /// Whether no process has the client's end of `completion` any more, so that nobody uses its
  /// memory but who means harm. Until then it is the client's, and counts, though it hung up or was
  /// cut off. It asks the kernel.
  [[nodiscard]] static bool is_gone(const Client& client);
  void forget_if_gone(std::uint32_t client_id);
  [[nodiscard]] Client* client_of(ipc::ConnectionId connection) noexcept;
  [[nodiscard]] Client* client_by_id(std::uint32_t client_id) noexcept;

  // memories.cc: clients' memory, and events
  [[nodiscard]] std::uint32_t unused_memory_handle(const Client& client);
  void allocate(const PendingReply& reply, Client& client, std::span<const std::byte> body);
  /// In hugepages, registered with the lanes, or on their GPU.
  [[nodiscard]] Result<Memory> make_memory_on_gpu(std::uint64_t bytes);
  /// Starts to make the client's next memory unless the worker has one of it, so that answers come
  /// in order.
  void make_next_memory(Client& client);
  [[nodiscard]] Result<ipc::SharedMemory> reserve_memory(const Client& client,
                                                         std::uint64_t bytes) const;
  /// Whether the user of the client may have so much more, and others' queues still find pages.
  [[nodiscard]] Result<void> room_for_memory(const Client& client, std::uint64_t bytes) const;
  [[nodiscard]] Result<void> check_quota(std::uint64_t used, std::uint64_t bytes) const;
  void memory_made(std::uint32_t client_id, std::uint32_t handle, Making& making);
  void add_memory(Client& client, std::uint32_t handle);
  void memory_failed(Client& client, std::uint32_t handle, const Error& error);
  /// Makes one piece of it, in the worker. @return whether all of it is done.
  [[nodiscard]] static bool make_piece(Making& making, ClientMemory& memory);
  /// Unmaps it, and takes it back from whoever else has it. That takes as long as they have mapped
  /// it, so the user's own thread does it, or the worker if it is registered. Then calls `done`.
  void discard(uid_t uid, ipc::SharedMemory memory, bool registered, std::function<void()> done);
  void memory_added(Client& client, std::uint32_t handle);
  void free_memory(const PendingReply& reply, Client& client, std::span<const std::byte> body);
  void remove_memory(Client& client, std::uint32_t handle);
  void make_event(const PendingReply& reply, Client& client);
  void event_added(Client& client, std::uint32_t handle);
  void memory_removed(Client& client, std::uint32_t handle);
  /// Whether memory that no lane uses is still the client's.
  [[nodiscard]] bool is_kept(const Client& client, const Memory& memory, bool gone) const;
  /// CUDA requires that an importer closes memory before its exporter frees it.
  void watch_process(Client& client, TimeNs now);
  void release_lingering(TimeNs now);

  // formation.cc: from the first join to the join replies
  void join(const PendingReply& reply, Client& client, const ipc::Message& message, TimeNs now);
  [[nodiscard]] Result<Group*> group_to_join(const ipc::JoinBody& join, const Client& client,
                                             TimeNs now);
  [[nodiscard]] Result<void> room_for_group(uid_t uid) const;
  [[nodiscard]] Result<void> check_member(const Group& group, const ipc::JoinBody& join,
                                          const Client& client) const;
  [[nodiscard]] Result<TimeNs> formation_bound(const ipc::JoinRequest& request) const;
  void count_idle_networks(Group& group) const;
  /// If a small op's packets, which come from all ranks at about the same time, may not all find a
  /// place in the receive ring of a port: which, and what to set. Else empty.
  [[nodiscard]] std::string short_receive_ring(const Group& group) const;
  void charge(uid_t uid, std::uint64_t steps) const {
    if (options_.charge) options_.charge(uid, steps);
  }
  // formation_paths.cc
  void begin_resolving(Group& group, TimeNs now);
  /// Of all groups that resolve: what is known by now, questions in turn, and which may start.
  void resolve_in_turn(TimeNs now);
  void ask_in_turn(const std::map<uid_t, std::vector<std::uint64_t>>& users, TimeNs now);
  void start_in_turn(const std::map<uid_t, std::vector<std::uint64_t>>& users, TimeNs now);
  /// @param looks  so many of the paths that wait to be asked are looked at.
  void look(Group& group, std::size_t looks, TimeNs now);
  /// @return whether the group had one to ask and there was room for it.
  [[nodiscard]] bool ask_one(Group& group, std::size_t share, TimeNs now);
  /// Whether all paths that the group needs are known.
  [[nodiscard]] bool is_resolved(Group& group, TimeNs now);
  /// Takes paths that nobody answers out of the plan, if another leads to each rank.
  [[nodiscard]] bool leave_silent_rails(Group& group);
  /// @return kPending if it was asked for and may still answer, kFailed if nobody asks for it now,
  /// or an error if it can never work.
  [[nodiscard]] Result<ResolveState> resolve_path(Group& group, NeighborPath& path, Asking asking,
                                                  TimeNs now);
  void unreachable(Group& group, const Error& error, TimeNs now);
  void start_lanes(Group& group, TimeNs now);
  void on_lane_formed(Group& group, std::uint8_t lane, TimeNs now);
  /// @param published  read if it is needed, once for all groups of a round.
  void check_formation_deadline(Group& group, TimeNs now, std::optional<Published>& published);
  /// The rank that formation waits for: a neighbor that has not been heard, or else this one.
  [[nodiscard]] std::uint16_t late_rank(const Group& group, const Published& published) const;
  [[nodiscard]] std::string what_is_missing(const Group& group, const Published& published) const;
  /// Answers all members with the error, and closes the group on the lanes.
  void fail_formation(Group& group, const Error& error, const AbortReason& reason, TimeNs now);

  // lifecycle.cc: abort, leave, close, stop
  void leave(const PendingReply& reply, Client& client, std::span<const std::byte> body,
             TimeNs now);
  void abort(const PendingReply& reply, Client& client, std::span<const std::byte> body,
             TimeNs now);
  [[nodiscard]] Result<Group*> group_of(Client& client, std::uint64_t handle);
  /// `from_lane` is the lane that knows already; -1 = none does.
  void abort_group(Group& group, const AbortReason& reason, int from_lane, TimeNs now);
  void ask_to_leave(Group& group);
  void begin_close(Group& group, TimeNs now);
  void on_lane_closed(Group& group, std::uint8_t lane, TimeNs now);
  void check_leave_deadline(Group& group, TimeNs now);
  void client_gone(Group& group, Member& member, AbortCode code, const std::string& why,
                   TimeNs now);
  void forget_if_left(std::uint64_t handle);
  void forget_group(std::uint64_t handle);
  void poll_stop(TimeNs now);
  void set_state(Group& group, GroupState state, TimeNs now) const;
  [[nodiscard]] Group* group_by_handle(std::uint64_t handle) noexcept;
  [[nodiscard]] std::vector<std::uint64_t> group_handles() const;
  [[nodiscard]] AbortReason reason_here(const Group& group, AbortCode code,
                                        const std::string& detail) const;

  // faults.cc
  void inject(const PendingReply& reply, const ipc::PeerCredentials& peer,
              std::span<const std::byte> body);
  void set_faults(std::uint16_t port, const FaultSettings& faults);
  [[nodiscard]] std::vector<status::Faults> faults_status() const;

  // operate.cc: the trace, and draining
  [[nodiscard]] static nlohmann::json event_json(const lane::TraceEvent& event,
                                                 const GroupName* name);
  /// @return a function that makes the trace from copies; any thread may call it.
  [[nodiscard]] std::function<nlohmann::json()> prepare_trace(TimeNs now, uid_t viewer) const;
  enum class DrainState : std::uint8_t { kNone, kDraining, kDrained };
  void drain(const PendingReply& reply, const ipc::PeerCredentials& peer,
             std::span<const std::byte> body);
  void on_drained();
  /// Whether the peer is root or the daemon's own user. If not, replies with the error.
  [[nodiscard]] bool may_operate(const PendingReply& reply, const ipc::PeerCredentials& peer);
  void remember_name(const Group& group);

  // texts.cc
  void reply_json(const PendingReply& reply, const nlohmann::json& value);
  /// JSON for a client: in a message, or in a file if it is too long for one.
  struct Text {
    Text() = default;
    explicit Text(const nlohmann::json& value);
    std::string text;
    bool is_long = false;
    ipc::UniqueFd file;
  };
  void reply_text(const PendingReply& reply, const Text& text);
  /// Texts are made one at a time: for all connections of one user that asked, one answer each, and
  /// then for the next user. So a user who asks all the time does not keep others waiting.
  struct Asker {
    uid_t uid = 0;
    uid_t viewer = 0;  ///< whose view of the groups it sees
    std::deque<PendingReply> replies;
  };
  struct Asks {
    std::map<ipc::ConnectionId, Asker> waiting;
    uid_t last_viewer = 0;
    bool making = false;
  };
  void ask(Asks& asks, const PendingReply& reply, uid_t viewer);
  /// @param prepare called in this thread with the user's id; the function that it returns is
  /// called in the worker
  void serve(Asks& asks, const std::function<std::function<nlohmann::json()>(uid_t)>& prepare);
  void serve_texts(TimeNs now);

  // status.cc
  [[nodiscard]] Published read_lanes() const;
  [[nodiscard]] static const command::PublishedStatus& published_of(const Published& published,
                                                                    const Group& group,
                                                                    std::uint8_t lane);
  [[nodiscard]] status::Lane lane_status(std::uint8_t lane, const Published& published) const;
  [[nodiscard]] std::vector<status::Op> ops_status(const Group& group, const Published& published,
                                                   TimeNs now) const;
  [[nodiscard]] status::Daemon daemon_status(std::span<const status::Port> ports, TimeNs now) const;
  [[nodiscard]] status::Group group_status(const Group& group, const Published& published,
                                           TimeNs now) const;
  [[nodiscard]] std::vector<std::string> waits_of(const Group& group, const Published& published,
                                                  TimeNs now) const;
  [[nodiscard]] status::Client client_status(const Client& client, TimeNs now) const;

  ManagerOptions options_;
  LaneControl& lanes_;
  ClientMemory& memory_;
  const LaneReports& reports_;
  ipc::MessageSink& sink_;
  TimeNs started_;
  Epochs epochs_;
  ipc::RankInfo own_info_;  ///< without a secret

  std::map<std::uint32_t, std::unique_ptr<Client>> clients_;         ///< by client id
  std::unordered_map<ipc::ConnectionId, std::uint32_t> client_ids_;  ///< of those not retired
  std::map<std::uint64_t, std::unique_ptr<Group>> groups_;           ///< by handle
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> handles_;  ///< by id and epoch
  std::map<uid_t, std::uint32_t> groups_of_user_;
  std::map<uid_t, std::uint32_t> clients_of_user_;
  std::map<uid_t, std::uint64_t> letting_go_;  ///< bytes of memory that is nobody's and still there
  std::map<uid_t, std::uint64_t> asked_of_user_;  ///< as Questions::turn, of users that resolve
  std::map<uid_t, RateMeter> looks_of_user_;      ///< likewise
  std::uint64_t questions_ = 0;
  uid_t last_started_ = 0;  ///< the user whose group was started last
  std::uint64_t steps_ = 0;
  std::uint64_t ended_steps_ = 0;  ///< of groups that did not form, in this round
  bool has_more_ = false;
  Progress progress_;
  std::uint32_t warned_ranks_ = 0;  ///< of the largest group that has a short receive ring
  std::uint32_t last_client_id_ = 0;
  std::uint32_t last_memory_ = 0;
  std::uint64_t next_group_handle_ = 1;  ///< 64 bits never run out

  std::unordered_map<command::Request*, Outstanding> outstanding_;
  std::vector<std::deque<command::Request*>> unsent_;  ///< by lane, in order

  ipc::InlineWorker inline_worker_;
  ipc::Worker& worker_;
  ipc::Closers* closers_;  ///< nullptr: what is let go of is let go of at once
  Asks status_asks_;
  Asks trace_asks_;
  LentTexts lent_;
  TimeNs polled_at_ = 0;

  std::vector<PortFaults> port_faults_;

  DrainState drain_ = DrainState::kNone;
  std::vector<PendingReply> drain_replies_;
  std::map<std::uint64_t, GroupName> names_;  ///< by handle; also of groups that have ended

  StopState stop_ = StopState::kRunning;
  TimeNs stop_deadline_ = kNever;
  TimeNs next_linger_check_ = 0;
};

}  // namespace gradwire::control
