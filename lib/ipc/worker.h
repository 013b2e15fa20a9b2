// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Takes off the control thread what would keep it from everybody else: faulting in gradient
/// memory, long texts. Work comes in pieces, so that what is long does not hold up what is short.
/// The control thread calls submit() and finish(); the work itself must touch nothing that the
/// control thread does. It locks and allocates.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace gradwire::ipc {

class Worker {
 public:
  /// What is first comes in the order in which it was submitted, before what is in turn; but after
  /// each of it one piece of what is in turn is done, if there is any. So a short text waits for at
  /// most one piece beside what was submitted first before it, and of n pieces that are in turn,
  /// each waits for at most n - 1 others and n texts, however many are asked for.
  enum class Order { kFirst, kInTurn };
  /// @return whether all is done; else it is called again when the others in turn had theirs.
  using Work = std::function<bool()>;
  using Done = std::function<void()>;

  virtual ~Worker() = default;
  /// `done` is called by the control thread: in a finish(), or in here.
  virtual void submit(Order order, Work work, Done done) = 0;
  virtual void finish() {}
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
  /// Waits for the piece that is being done; what is queued is dropped, its `done` never called.
  ~ThreadWorker() override;
  ThreadWorker(const ThreadWorker&) = delete;
  ThreadWorker& operator=(const ThreadWorker&) = delete;

  void submit(Order order, Work work, Done done) override;
  void finish() override;

 private:
  struct Job {
    Work work;
    Done done;
    Order order;
  };
  void run();
  /// With the lock; something is queued.
  [[nodiscard]] Job take_next();

  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> first_;
  std::deque<Job> in_turn_;
  bool turn_is_due_ = false;  ///< what was done last was first
  std::deque<Job> finished_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gradwire::ipc
