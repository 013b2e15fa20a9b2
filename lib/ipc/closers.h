// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Lets go of what users gave or may still have, in a thread of each user's own: closing the last
/// descriptor of a TCP socket takes as long as its SO_LINGER says, and cutting memory as long as it
/// has mappings. Neither may keep the control thread, or another user, waiting.
///
/// The control thread makes all calls. A user's thread starts with the first work and ends when
/// there was none for a while. It locks and allocates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "ipc/unique_fd.h"

namespace gradwire::ipc {

class Closers {
 public:
  using Work = std::function<void()>;
  using Done = std::function<void()>;
  /// A user of whom more waits is not received from.
  static constexpr std::size_t kWaiting = 256;

  /// @param wake  called by a user's thread when there is something for finish().
  explicit Closers(std::function<void()> wake);
  /// Waits for nobody: works that run go on, others are dropped. The process is about to end.
  ~Closers();
  Closers(const Closers&) = delete;
  Closers& operator=(const Closers&) = delete;

  /// @param work  must touch nothing that ends with the daemon's objects. If no thread can be
  /// started it is done in here.
  /// @param done  called by finish(), or in here; may be empty.
  void submit(uid_t uid, Work work, Done done);
  void close(uid_t uid, UniqueFd fd);
  /// Calls what is done.
  void finish();
  [[nodiscard]] bool behind(uid_t uid) const;
  /// Works of all users that are not done.
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Job {
    Work work;
    Done done;
  };
  struct User;
  static void run(const std::shared_ptr<User>& user);

  std::shared_ptr<const std::function<void()>> wake_;
  std::map<uid_t, std::shared_ptr<User>> users_;
};

}  // namespace gradwire::ipc
