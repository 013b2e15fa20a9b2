// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The daemon's control socket: one listening SOCK_SEQPACKET socket at a path, and its connections.
/// Non-blocking; the control thread calls poll() in its loop and gets callbacks from it. Nothing
/// here knows what messages mean. It allocates; connections and their out-queues are bounded.
///
/// Nobody can lock out the others: each user has a share of the connections, some are reserved for
/// root and the daemon's own user, and a silent connection is closed unless keep() was called for
/// it. Messages are taken in turn, first of the users and then of a user's connections, until a
/// user or the round has had its steps; what is left waits in the sockets for the next round, and
/// users who had no turn come first there. A user who took more than UserSteps gives is not
/// received from until there is more.
///
/// Descriptors that users make it hold have a bound: besides the connections those that it has
/// taken out of messages and those of connections that ended or were refused while descriptors were
/// in them. Closers has both bounds. At the second nobody is accepted, until some are closed.
#pragma once

#include <poll.h>
#include <sys/stat.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rate_meter.h"
#include "base/result.h"
#include "base/sections.h"
#include "ipc/closers.h"
#include "ipc/message_sink.h"
#include "ipc/message_socket.h"
#include "ipc/user_steps.h"

namespace gradwire::ipc {

struct ControlServerOptions {
  ControlServerOptions()
      : ControlServerOptions(DaemonSection{}, LimitsSection{}, TimeoutsSection{}) {}
  explicit ControlServerOptions(const DaemonSection& daemon, const LimitsSection& limits,
                                const TimeoutsSection& timeouts)
      : mode(static_cast<mode_t>(daemon.socket_mode)),
        max_connections(limits.clients),
        max_of_user(limits.clients_of_user()),
        silence(timeouts.open_ms) {}

  std::string path;                      ///< its directory must exist
  mode_t mode = 0;                       ///< of the socket: who may write to it may connect
  std::optional<uid_t> owner;            ///< default: the process's
  std::optional<gid_t> group;            ///< default: the process's
  std::size_t max_connections = 0;       ///< limits.clients
  std::size_t max_of_user = 0;           ///< limits.user_clients
  std::size_t reserved_for_root = 0;     ///< above both, for root and the process's own user
  std::chrono::milliseconds silence{};   ///< timeouts.open_ms; 0: no bound
  std::size_t max_queued_messages = 64;  ///< per connection, not yet taken by its reader
  /// Of one round; the last message may exceed them. A step is about a microsecond's work.
  std::uint64_t steps_of_user = 4'096;
  std::uint64_t steps_of_round = 16'384;
  /// How long to wait after accept() failed because the process or the system had no descriptor
  /// left.
  std::chrono::milliseconds accept_pause{1'000};
  /// The time, for tests to set.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

struct ControlCallbacks {
  /// Descriptors that it leaves in the message are closed elsewhere.
  std::function<void(ConnectionId, const PeerCredentials&, Message&)> on_message;
  /// Once per connection, however it ended; also after hang_up(). Never from inside send().
  std::function<void(ConnectionId)> on_hangup;
  /// A problem that the operator should fix, as text. At most one a minute of each kind.
  std::function<void(const std::string&)> on_trouble = {};
  /// How many steps on_message has taken so far, in all. What it adds counts as the message's, with
  /// ControlServer::kMessageSteps; without it a message has these alone.
  std::function<std::uint64_t()> steps = {};
};

class ControlServer final : public MessageSink {
 public:
  /// Of receiving a message and answering it.
  static constexpr std::uint64_t kMessageSteps = 8;
  /// Of a round of the control thread, whatever it does. The user pays that has the first turn in
  /// it: else one message each round would be cheap.
  static constexpr std::uint64_t kRoundSteps = 16;
  /// Of answers that nobody takes, of a connection.
  static constexpr std::size_t kQueuedBytes = 1u << 20;
  /// Connections whose end is told in one round, since a client may have had much.
  static constexpr std::size_t kEndsPerRound = 16;
  /// Connections accepted at once, and then by the second, of all users together: the listener
  /// does not say whose is next.
  static constexpr std::int64_t kAcceptsSaved = 256;
  static constexpr std::int64_t kAcceptsPerSecond = 2'000;
  static constexpr std::chrono::seconds kBetweenComplaints{60};

  /// Takes the lock file `path`.lock, removes a socket that a dead instance left, and listens.
  /// @return kBusy if another instance has the path (the text names its pid if it is known);
  /// kInvalidArgument if the path is something else than a socket.
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> create(
      const ControlServerOptions& options);
  /// Closes every connection without callbacks, or has it closed, and removes the socket.
  ~ControlServer() override;
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Who closes what users sent, and their connections. Without them this thread does.
  void set_closers(Closers* closers) noexcept { closers_ = closers; }
  void set_callbacks(ControlCallbacks callbacks) { callbacks_ = std::move(callbacks); }
  /// Waits at most `timeout_ms` for something to do, and does it: wait() and serve().
  void poll(int timeout_ms) {
    wait(timeout_ms);
    serve();
  }
  void wait(int timeout_ms);
  /// Does what the last wait() found.
  void serve();
  /// poll() also returns when `fd` is readable, and leaves reading it to the caller; -1 = none.
  void set_wake_fd(int fd) noexcept { wake_fd_ = fd; }

  void send(ConnectionId connection, const MessageHeader& header, std::span<const std::byte> body,
            std::vector<UniqueFd> fds) override;
  void hang_up(ConnectionId connection) override;
  void keep(ConnectionId connection) override;

  /// Steps that were taken for a user outside of the callbacks; steps() does not have them.
  void charge(uid_t uid, std::uint64_t steps);
  [[nodiscard]] const UserSteps& user_steps() const noexcept { return user_steps_; }

  [[nodiscard]] std::size_t connections() const noexcept { return connections_.size(); }
  /// Connections refused because all were in use, closed because they were silent for too long, or
  /// dropped for breaking the protocol.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }
  [[nodiscard]] std::uint64_t faults() const noexcept { return faults_; }
  /// Messages taken, and ends told, so far.
  [[nodiscard]] std::uint64_t served() const noexcept { return served_; }
  /// Whether the last serve() left something to do that was there before it.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }
  /// All steps so far, of messages and of the ends of connections.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  /// Connections of one user that have something to be received.
  struct Turn {
    uid_t uid = 0;
    std::vector<ConnectionId> connections;  ///< in turn
    std::uint64_t steps = 0;
  };
  struct Queued {
    MessageHeader header;
    std::vector<std::byte> body;
    std::vector<UniqueFd> fds;
  };
  using Clock = std::chrono::steady_clock;
  struct Connection {
    UniqueFd socket;
    PeerCredentials peer;
    /// Accepted, or when something was there to receive, or an answer was sent.
    Clock::time_point heard;
    std::uint32_t owed = 0;  ///< answers to what it asked: until then it may be silent
    bool kept = false;       ///< may always be
    std::deque<Queued> queue;
    std::size_t queued_bytes = 0;  ///< bodies in `queue`
    bool closing = false;  ///< nothing more is read; closed in the next round, after a try to send
    bool broken = false;   ///< nothing can be sent any more
  };

  explicit ControlServer(const ControlServerOptions& options) : options_(options) {}
  Result<void> listen();
  void accept_all();
  /// Closes it, now if that cannot take its time.
  void end(Connection& connection);
  /// Connections wait until one that is here closes, or for options_.accept_pause.
  void pause_accepting(int error);
  void tell_if_full();
  [[nodiscard]] TimeNs now_ns() const {
    return std::chrono::nanoseconds(options_.now().time_since_epoch()).count();
  }
  /// @return `timeout_ms`, or less if `until` comes before.
  [[nodiscard]] int sooner(int timeout_ms, TimeNs until) const;
  /// Steps of a callback, or besides.
  void count(uid_t uid, std::uint64_t steps);
  void tell_of_wait(uid_t uid);
  /// Whether nothing is to be received of that user now.
  [[nodiscard]] bool must_wait(uid_t uid, TimeNs now) {
    return user_steps_.must_wait(uid, now) || (closers_ != nullptr && closers_->behind(uid));
  }
  void close_elsewhere(uid_t uid, UniqueFd fd) {
    if (closers_ != nullptr) closers_->close(uid, std::move(fd));
  }
  /// @return why there is no room for one more of that user; empty if there is.
  [[nodiscard]] std::string no_room_for(uid_t uid) const;
  void close_silent();
  void receive_in_turn(const std::vector<ConnectionId>& readable);
  /// Until the user's steps are used up, or the round's, or nothing is left.
  void serve_user(Turn& turn, std::uint64_t round_end);
  /// @return whether there may be more to receive from it.
  bool receive_one(ConnectionId id);
  void refuse(ConnectionId id, const MessageHeader& received, const Error& error);
  static void flush(Connection& connection);
  void close_finished();

  ControlServerOptions options_;
  ControlCallbacks callbacks_;
  Closers* closers_ = nullptr;
  UniqueFd lock_;
  UniqueFd listener_;
  int wake_fd_ = -1;
  bool bound_ = false;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId next_id_ = 1;
  struct Polled {
    std::vector<pollfd> fds;  ///< the listener, then those of `ids`, then the wake fd
    std::vector<ConnectionId> ids;
    bool any = false;
  };
  Polled polled_;                          ///< by wait(), for serve()
  uid_t last_user_ = 0;                    ///< the one that had the last turn of the last round
  std::map<uid_t, ConnectionId> last_of_;  ///< of users that did not get through: who was last
  std::uint64_t served_ = 0;
  std::uint64_t steps_ = 0;
  bool has_more_ = false;
  std::uint64_t refused_ = 0;
  std::uint64_t faults_ = 0;
  Clock::time_point accept_again_;  ///< the listener is not watched before
  RateMeter accepts_{1'000'000'000 / kAcceptsPerSecond, kAcceptsSaved};
  std::optional<Clock::time_point> full_since_;  ///< Closers was full at each look since then
  UserSteps user_steps_;
  Clock::time_point next_full_complaint_;                 ///< that Closers is full
  Clock::time_point next_complaint_;                      ///< of connections
  std::map<uid_t, Clock::time_point> next_complaint_of_;  ///< of users that had to wait
};

}  // namespace gradwire::ipc
