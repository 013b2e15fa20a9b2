// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The queues that a client shares with its daemon: commands go there, completions come back. The
/// client's lock guards it; it does not wait.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client/counters.h"
#include "ipc/command_queue.h"
#include "ipc/message_socket.h"
#include "ipc/unique_fd.h"

namespace gradwire::client {

class DaemonQueues {
 public:
  explicit DaemonQueues(Counters& counters) : counters_(counters) {}
  ~DaemonQueues();
  DaemonQueues(const DaemonQueues&) = delete;
  DaemonQueues& operator=(const DaemonQueues&) = delete;

  [[nodiscard]] bool is_open() const noexcept { return region_ != nullptr; }
  /// @param fds    as the daemon sends them with an OpenReply: queues, doorbell, completion.
  /// @param bytes  of the queues.
  [[nodiscard]] Result<void> open(std::vector<ipc::UniqueFd>& fds, std::uint64_t bytes);
  /// Of queues that are open.
  [[nodiscard]] ipc::ClientQueue& queue() noexcept { return queue_; }
  /// Where the daemon says that it has put completions.
  [[nodiscard]] int completion_fd() const noexcept { return completion_fd_.get(); }
  void empty_completion_fd() noexcept;
  /// The daemon takes the client's memory back when it is closed.
  [[nodiscard]] ipc::UniqueFd take_completion_fd() noexcept { return std::move(completion_fd_); }

  /// @param more  others follow at once: the lane is not woken yet.
  /// @return whether there was room.
  [[nodiscard]] bool push(const ipc::CommandEntry& command, const ipc::CommandExtra& extra,
                          bool more);
  /// Wakes the lane if commands were posted without that, and it sleeps.
  /// @param dead  the daemon is not there.
  void ring_if_due(bool dead) noexcept;

  /// Async-signal-safe.
  void abandon() noexcept;

 private:
  Counters& counters_;
  ipc::QueueRegion* region_ = nullptr;
  std::uint64_t bytes_ = 0;
  ipc::ClientQueue queue_;
  ipc::UniqueFd doorbell_;
  ipc::UniqueFd completion_fd_;
  bool unrung_ = false;  ///< the last command was posted without waking the lane
};

}  // namespace gradwire::client
