// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A client of the daemon, as gradwire.h has it. Any thread; one mutex guards everything of a
/// client. It has no thread of its own: those that wait take in what comes.
///
/// It puts the parts together, which its lock guards: Connection (requests, ends of ops, waiting,
/// death), DaemonMemory (memory that both see), Works (ops until they are reported), HeldCommands
/// (ops that wait for a GPU's stream). A caller's request becomes an op in op_request.h.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "client/connection.h"
#include "client/counters.h"
#include "client/daemon_memory.h"
#include "client/group_config.h"
#include "client/handles.h"
#include "client/held_commands.h"
#include "client/job_wants.h"
#include "client/op_request.h"
#include "client/works.h"
#include "ipc/control_messages.h"
#include "ipc/message_socket.h"

namespace gradwire::client {

struct OpenOptions {
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds request_timeout{10000};
  std::chrono::microseconds spin{20};
  std::uint64_t staging_cache_bytes = 256u << 20;
};

class Client final : public std::enable_shared_from_this<Client>, private ConnectionUser {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Client>> open(const std::string& path,
                                                            const OpenOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// This process is a fork's child, and the connection its parent's.
  [[nodiscard]] bool is_forked() const noexcept { return forked_.load(std::memory_order_relaxed); }
  /// In the child of a fork: lets go of the connection. Async-signal-safe.
  void abandon_after_fork() noexcept;

  void close();
  [[nodiscard]] const ipc::OpenReply& open_reply() const noexcept { return open_reply_; }
  [[nodiscard]] Counters counters(std::uint64_t* staging_bytes);
  [[nodiscard]] Result<int> completion_fd();
  [[nodiscard]] Result<ipc::RankInfo> describe(const JobWants& wants);

  [[nodiscard]] Result<std::unique_ptr<gw_memory>> allocate(std::uint64_t bytes);
  /// On success the memory is unmapped and the caller deletes the handle.
  [[nodiscard]] Result<void> free(gw_memory& memory);

  [[nodiscard]] Result<std::shared_ptr<gw_group>> join(const GroupConfig& config,
                                                       const JobWants& wants);
  [[nodiscard]] Result<void> leave(gw_group& group);
  [[nodiscard]] Result<void> abort(gw_group& group, const std::string& reason);
  [[nodiscard]] Result<void> group_error(gw_group& group);
  void release(gw_group& group);

  [[nodiscard]] Result<std::shared_ptr<gw_work>> post(const std::shared_ptr<gw_group>& group,
                                                      const PostArguments& arguments);
  /// Wakes the lane for commands of which others were to follow.
  void flush() noexcept;
  /// Takes in what made completion_fd() readable.
  void take_in();
  /// Whether the op is done; its own error once it is.
  [[nodiscard]] Result<bool> test(gw_work& work);
  /// @param stream  has the result when it comes to what it is given next, and nobody waits for the
  ///                copy of the result; without one it has been copied on success
  [[nodiscard]] Result<void> wait(gw_work& work, std::chrono::milliseconds timeout,
                                  std::optional<void*> stream = std::nullopt);
  [[nodiscard]] bool is_reported(const gw_work& work);
  [[nodiscard]] std::uint64_t op_seq(const gw_work& work);
  /// Of an op that was reported.
  [[nodiscard]] std::uint64_t moved_bytes(const gw_work& work);
  void release(gw_work& work);

 private:
  explicit Client(const std::string& path, const OpenOptions& options)
      : options_(options),
        connection_(path, options.spin, *this, counters_),
        memory_(connection_, options.request_timeout, options.staging_cache_bytes),
        works_(connection_, memory_, groups_, counters_),
        held_(connection_, works_, groups_) {}

  [[nodiscard]] Result<void> finish_open(ipc::Message reply);
  /// Asks the daemon's status, for a moment. Empty if it cannot tell.
  [[nodiscard]] std::string who_is_waited_for(Lock& lock, const gw_group& group);

  bool on_completion(const ipc::CompletionEntry& entry) override;
  void on_group_aborted(const ipc::GroupAbortedEvent& event) override;
  void on_death(ErrorCode code, const std::string& text) override;
  void advance_streams() override;
  [[nodiscard]] bool waits_for_streams() const noexcept override { return held_.any(); }

  const OpenOptions options_;
  std::atomic<bool> forked_{false};
  std::mutex mutex_;
  ipc::OpenReply open_reply_;
  Counters counters_;
  Groups groups_;  ///< joined, and not left
  Connection connection_;
  DaemonMemory memory_;
  Works works_;
  HeldCommands held_;
};

/// Keeps the list of open clients that a fork's child has to let go of.
void register_for_fork(Client* client);
void unregister_for_fork(Client* client) noexcept;

}  // namespace gradwire::client
