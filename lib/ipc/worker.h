// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs work that would block the control thread for too long: faulting in gradient memory, making
/// long texts. Work is split into pieces, so that long work does not delay short work. The control
/// thread calls submit() and finish(); the work itself must not touch the control thread's data. It
/// locks and allocates.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace gradwire::ipc {

class Worker {
 public:
  /// kFirst work runs in the order of submission, before kInTurn work; but after each kFirst item
  /// the worker runs one piece of kInTurn work, if there is any. So a short text waits for at most
  /// one piece besides the kFirst items submitted before it, and each of n kInTurn pieces waits for
  /// at most n - 1 others and n texts.
  enum class Order { kFirst, kInTurn };
  /// @return whether all is done; if not, it is called again after the other kInTurn work had its
  /// turn.
  using Work = std::function<bool()>;
  using Done = std::function<void()>;

  virtual ~Worker() = default;
  /// `done` is called by the control thread: in a finish(), or in here.
  virtual void submit(Order order, Work work, Done done) = 0;
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
  void submit(Order /*order*/, Work work, Done done) override {
    while (!work()) {
    }
    done();
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

  void submit(Order order, Work work, Done done) override;
  void finish() override;
  [[nodiscard]] Progress progress() const override;

 private:
  /// The longest piece registers memory with a GPU: some GB/s, of up to a terabyte.
  static constexpr std::chrono::seconds kPieceMost{300};

  struct Job {
    Work work;
    Done done;
    Order order;
  };
  void run();
  /// With the lock; something is queued.
  [[nodiscard]] Job take_next();

  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::uint64_t pieces_ = 0;
  std::optional<std::chrono::steady_clock::time_point> piece_began_;
  std::condition_variable changed_;
  std::deque<Job> first_;
  std::deque<Job> in_turn_;
  bool turn_is_due_ = false;  ///< the last work was kFirst
  std::deque<Job> finished_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gradwire::ipc
