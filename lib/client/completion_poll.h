// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The descriptor of gw_client_get_completion_fd(). It is readable if something came that has not
/// been taken in, and as long as an outcome has not been reported. What nobody can report is kept
/// out of it. The client's lock guards it; it does not wait.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ipc/unique_fd.h"

namespace gradwire::client {

class CompletionPoll {
 public:
  /// Whether somebody asked for it, and may poll it.
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(epoll_fd_); }
  [[nodiscard]] int fd() const noexcept { return epoll_fd_.get(); }
  /// @param completion_fd  where the daemon says that ops ended.
  /// @param socket         where its messages come.
  [[nodiscard]] Result<void> open(int completion_fd, int socket);

  /// An op's outcome, or a group's abort, waits to be reported.
  void add_unreported();
  void remove_unreported();
  /// Which of these wake who polls.
  void choose(bool completions, bool messages) noexcept;
  /// Whether ends of ops do.
  [[nodiscard]] bool sees_completions() const noexcept { return sees_completions_; }

  /// Async-signal-safe.
  void abandon() noexcept;

 private:
  ipc::UniqueFd notify_fd_;  ///< readable while unreported_ is not 0
  ipc::UniqueFd epoll_fd_;
  int completion_fd_ = -1;
  int socket_ = -1;
  std::uint64_t unreported_ = 0;
  bool sees_completions_ = true;
  bool sees_messages_ = true;
};

}  // namespace gradwire::client
