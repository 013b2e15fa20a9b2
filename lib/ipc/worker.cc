// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/worker.h"

#include <utility>

#include "ipc/quiet_thread.h"

namespace gradwire::ipc {

ThreadWorker::ThreadWorker(std::function<void()> wake) : wake_(std::move(wake)) {
  thread_ = start_quiet_thread("gw-worker", [this] { run(); });
}

ThreadWorker::~ThreadWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ThreadWorker::submit(Order order, Work work, Done done) {
  {
    const std::lock_guard lock(mutex_);
    (order == Order::kFirst ? first_ : in_turn_)
        .push_back({std::move(work), std::move(done), order});
  }
  changed_.notify_one();
}

void ThreadWorker::finish() {
  std::deque<Job> finished;
  {
    const std::lock_guard lock(mutex_);
    finished.swap(finished_);
  }
  for (const Job& job : finished) job.done();
}

Worker::Progress ThreadWorker::progress() const {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  return {pieces_, piece_began_ && now - *piece_began_ > kPieceMost};
}

ThreadWorker::Job ThreadWorker::take_next() {
  const bool takes_first = !first_.empty() && (!turn_is_due_ || in_turn_.empty());
  std::deque<Job>& queue = takes_first ? first_ : in_turn_;
  turn_is_due_ = takes_first;
  Job job = std::move(queue.front());
  queue.pop_front();
  return job;
}

void ThreadWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !first_.empty() || !in_turn_.empty(); });
    if (stopping_) return;
    Job job = take_next();
    piece_began_ = std::chrono::steady_clock::now();
    lock.unlock();
    const bool all = job.work();
    // What the work holds is freed with the job, in the control thread.
    lock.lock();
    piece_began_.reset();
    ++pieces_;
    if (!all) {
      (job.order == Order::kFirst ? first_ : in_turn_).push_back(std::move(job));
      continue;
    }
    finished_.push_back(std::move(job));
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace gradwire::ipc
