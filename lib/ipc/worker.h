// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs work that would block the control thread for too long: faulting in gradient memory, making
/// long texts, making and clearing keys. Work is split into pieces, so that long work does not
/// delay short work. The control thread calls all of it; the work itself must not touch the control
/// thread's data. It locks and allocates.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace gradwire::ipc {

class Worker {
 public:
  /// @return whether all is done; if not, it is called again when its turn comes again.
  using Work = std::function<bool()>;
  using Done = std::function<void()>;

  virtual ~Worker() = default;
  // `done` is called by the control thread: in a finish(), or in here.
  /// For what is short: it runs in the order of submission, and before work in turn; but after each
  /// one a piece of work in turn runs, if there is any.
  virtual void submit_first(Work work, Done done) = 0;
  /// For what may be long: piece by piece. Users take turns, and so does the work of one user, so
  /// that a piece waits for one of each other user, and for a first one after each.
  virtual void submit_in_turn(uid_t user, Work work, Done done) = 0;
  virtual void finish() {}

  struct Progress {
    std::uint64_t pieces = 0;  ///< done so far
    bool hangs = false;        ///< one has taken longer than any should
  };
  [[nodiscard]] virtual Progress progress() const { return {}; }
};

/// Does everything in submit(): for tests.
class InlineWorker final : public Worker {
 public:
  void submit_first(Work work, Done done) override {
    while (!work()) {
    }
    done();
  }
  void submit_in_turn(uid_t /*user*/, Work work, Done done) override {
    submit_first(std::move(work), std::move(done));
  }
};

/// Has a thread of its own.
class ThreadWorker final : public Worker {
 public:
  /// @param wake  called by the thread when there is something for finish().
  explicit ThreadWorker(std::function<void()> wake);
  /// Waits for the running piece; drops queued work, whose `done` is never called.
  ~ThreadWorker() override;
  ThreadWorker(const ThreadWorker&) = delete;
  ThreadWorker& operator=(const ThreadWorker&) = delete;

  void submit_first(Work work, Done done) override;
  void submit_in_turn(uid_t user, Work work, Done done) override;
  void finish() override;
  [[nodiscard]] Progress progress() const override;

 private:
  /// The longest piece registers memory with a GPU: some GB/s, of up to a terabyte.
  static constexpr std::chrono::seconds kPieceMost{300};

  struct Job {
    Work work;
    Done done;
    std::optional<uid_t> user;  ///< nobody: it was to come first
  };
  void submit(Job job);
  void run();
  /// With the lock.
  void queue(Job job);
  /// With the lock; something is queued.
  [[nodiscard]] Job take_next();

  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::uint64_t pieces_ = 0;
  std::optional<std::chrono::steady_clock::time_point> piece_began_;
  std::condition_variable changed_;
  std::deque<Job> first_;
  std::map<uid_t, std::deque<Job>> in_turn_;  ///< of those who have some
  uid_t last_user_ = 0;                       ///< whose piece was the last in turn
  bool turn_is_due_ = false;                  ///< the last work was a first one
  std::deque<Job> finished_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gradwire::ipc
