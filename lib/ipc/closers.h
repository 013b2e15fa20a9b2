// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Lets go of what users gave or may still have, in threads of each user's own: closing the last
/// descriptor of a TCP socket takes as long as its SO_LINGER says, and cutting memory as long as it
/// has mappings. Neither may keep the control thread, or another user, waiting.
///
/// What a user makes wait has a bound. Works: nothing is received of a user of whom more than
/// kWaiting wait. Connections: nobody is accepted while kConnections wait, of all users together,
/// since the listener does not say whose connection is next. So these must not wait for long. They
/// have a thread beside that of works, where no user's FUSE file is flushed and no mapping is cut,
/// and a signal ends each wait of a lingering socket there after kPatience.
///
/// The control thread makes all calls. A user's thread starts with the first work and ends when
/// there was none for a while. It locks, allocates, and takes SIGURG for itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "ipc/unique_fd.h"

namespace gradwire::ipc {

class Closers {
 public:
  using Work = std::function<void()>;
  using Done = std::function<void()>;
  enum class Kind : bool {
    kWork,
    kConnection,  ///< the close of one in which there may be messages with descriptors
  };
  /// A user of whom more waits is not received from.
  static constexpr std::size_t kWaiting = 256;
  /// Connections of all users that wait; while there are so many, nobody is accepted.
  static constexpr std::size_t kConnections = 256;
  /// How long a lingering socket in a connection may take. 4,000 a second are twice as many as
  /// ControlServer accepts.
  static constexpr std::chrono::microseconds kPatience{250};

  /// @param wake  called by a user's thread when there is something for finish().
  explicit Closers(std::function<void()> wake);
  /// Waits for nobody: works that run go on, others are dropped. The process is about to end.
  ~Closers();
  Closers(const Closers&) = delete;
  Closers& operator=(const Closers&) = delete;

  /// @param work  must touch nothing that ends with the daemon's objects. If no thread can be
  /// started it waits until finish() can start one.
  /// @param done  called by finish(); may be empty.
  void submit(uid_t uid, Work work, Done done, Kind kind = Kind::kWork);
  void close(uid_t uid, UniqueFd fd, Kind kind = Kind::kWork);
  /// Calls what is done.
  void finish();
  [[nodiscard]] bool behind(uid_t uid) const;
  /// Whether kConnections wait. `wake` is called when they do not any more.
  [[nodiscard]] bool full() const;
  /// Who has most of the connections that wait.
  [[nodiscard]] uid_t slowest() const;
  /// Works of all users that are not done.
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Job {
    Work work;
    Done done;
  };
  struct All;
  struct User;
  static void start(const std::shared_ptr<User>& user);
  static void run(const std::shared_ptr<User>& user);

  std::shared_ptr<All> all_;
  std::map<std::pair<uid_t, Kind>, std::shared_ptr<User>> users_;
};

}  // namespace gradwire::ipc
