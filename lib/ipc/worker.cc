// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/worker.h"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace gradwire::ipc {

ThreadWorker::ThreadWorker(std::function<void()> wake) : wake_(std::move(wake)) {
  // Signals are the main thread's.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Except those of a fault: SIGBUS must reach its handler.
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "gw-worker");
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
