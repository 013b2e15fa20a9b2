// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A client's connection to its daemon: requests and their answers, events, ends of ops, and how
/// the connection dies.
///
/// Threads that wait: one of them, the leader, sleeps in poll() on the daemon's descriptors and
/// takes in what comes for all; the others sleep until it has. Requests are answered in any order;
/// an answer that nobody waits for any more is given to `on_reply` all the same.
///
/// When the connection dies, all requests and ops fail with the reason, once. Ops that had ended
/// before the daemon went away count as ended.
///
/// The client's lock guards it. Functions that take the lock may let it go meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "client/completion_poll.h"
#include "client/control_socket.h"
#include "client/counters.h"
#include "client/daemon_queues.h"
#include "client/handles.h"
#include "client/wait_policy.h"
#include "ipc/command_queue.h"
#include "ipc/control_messages.h"
#include "ipc/message_socket.h"
#include "ipc/unique_fd.h"

namespace gradwire::client {

using Lock = std::unique_lock<std::mutex>;
using RequestPtr = std::shared_ptr<PendingRequest>;

/// Whom a connection tells what came. All with the lock held.
class ConnectionUser {
 public:
  /// @return whether it ends an op that was posted.
  virtual bool on_completion(const ipc::CompletionEntry& entry) = 0;
  virtual void on_group_aborted(const ipc::GroupAbortedEvent& event) = 0;
  /// Everything that is unfinished fails, and there are no groups any more.
  virtual void on_death(ErrorCode code, const std::string& text) = 0;
  /// Looks at streams of GPUs for which commands, or memory, wait.
  virtual void advance_streams() = 0;
  /// Whether commands do: no descriptor tells when a stream has come to a point.
  [[nodiscard]] virtual bool waits_for_streams() const noexcept = 0;

 protected:
  ~ConnectionUser() = default;
};

class Connection {
 public:
  /// The user and the counters outlive it.
  /// @param path  of the daemon's socket.
  /// @param spin  for how long a wait spins if nothing speaks against it.
  Connection(std::string path, std::chrono::microseconds spin, ConnectionUser& user,
             Counters& counters);

  [[nodiscard]] Result<void> connect(Deadline deadline);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] DaemonQueues& queues() noexcept { return queues_; }
  /// The descriptor that a caller may poll, opened at the first call.
  [[nodiscard]] Result<void> open_poll() {
    return poll_.open(queues_.completion_fd(), socket_.get());
  }
  [[nodiscard]] CompletionPoll& poll() noexcept { return poll_; }
  /// In the child of a fork. Async-signal-safe.
  void abandon() noexcept;

  // Life and death.
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  /// Of a dead one.
  [[nodiscard]] const Error& dead_reason() const noexcept { return dead_reason_; }
  [[nodiscard]] Result<void> check_alive() const;
  void die(ErrorCode code, std::string text);

  // What came. Each returns whether something had.
  bool drain_completions();
  bool drain_control();
  /// Now and then, for a client that only posts and tests.
  void drain_control_sometimes();
  /// Both, if somebody polls the descriptor.
  void drain_for_poller();

  // Waiting.
  /// Until `is_done` or the deadline. @return whether it is done.
  template <class Predicate>
  bool wait_until(Lock& lock, Deadline deadline, Predicate is_done);
  /// For how long the wait that begins now spins before it sleeps.
  [[nodiscard]] std::chrono::nanoseconds begin_spin() noexcept;
  /// The leader looks again.
  void wake_leader() noexcept;
  /// Everybody who waits does.
  void wake_all() noexcept;

  // Requests.
  /// Sends one. @param on_reply  as PendingRequest's.
  [[nodiscard]] Result<RequestPtr> begin_request(
      Lock& lock, ipc::MessageType type, std::span<const std::byte> body, Deadline deadline,
      std::function<void(ipc::Message&, bool)> on_reply = {}, std::span<const int> fds = {});
  /// @param abandon  at the deadline nobody waits for it any more.
  [[nodiscard]] Result<void> await_request(Lock& lock, const RequestPtr& request, Deadline deadline,
                                           bool abandon);
  /// Both.
  [[nodiscard]] Result<RequestPtr> request(Lock& lock, ipc::MessageType type,
                                           std::span<const std::byte> body, Deadline deadline);
  /// Sends and does not wait for the answer. What cannot be sent now is lost with the connection.
  void send_and_forget(ipc::MessageType type, std::span<const std::byte> body);

  // Commands.
  /// @return whether it was sent; if not, the connection is dead.
  bool send_command(const ipc::CommandEntry& command, const ipc::CommandExtra& extra, bool more);
  void ring_if_due() noexcept { queues_.ring_if_due(dead_); }

 private:
  void dispatch(ipc::Message message);
  [[nodiscard]] Result<ipc::SocketStatus> send(ipc::MessageType type, std::uint32_t request_id,
                                               std::span<const std::byte> body,
                                               std::span<const int> fds = {});
  [[nodiscard]] std::uint32_t next_request_id() noexcept;
  void sleep_as_leader(Lock& lock, Deadline deadline);

  const std::string path_;
  ConnectionUser& user_;
  ipc::UniqueFd socket_;
  ipc::UniqueFd wake_fd_;  ///< gets the leader out of poll()
  DaemonQueues queues_;
  CompletionPoll poll_;
  std::condition_variable changed_;
  WaitPolicy wait_policy_;
  bool has_leader_ = false;
  bool dead_ = false;
  Error dead_reason_;
  std::string cut_off_reason_;    ///< told by the daemon before it hangs up
  std::optional<Error> refusal_;  ///< the same, of a connection that was not taken
  Clock::time_point last_control_check_;
  std::uint32_t next_request_id_ = 1;
  std::map<std::uint32_t, RequestPtr> pending_;
};

template <class Predicate>
bool Connection::wait_until(Lock& lock, Deadline deadline, Predicate is_done) {
  while (true) {
    drain_completions();
    if (is_done()) return true;
    if (Clock::now() >= deadline) return false;
    if (has_leader_) {
      changed_.wait_until(lock, deadline);
    } else {
      sleep_as_leader(lock, deadline);
    }
  }
}

}  // namespace gradwire::client
