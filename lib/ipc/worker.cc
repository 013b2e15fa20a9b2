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

void ThreadWorker::submit_first(Work work, Done done) {
  submit({std::move(work), std::move(done), std::nullopt});
}

void ThreadWorker::submit_in_turn(uid_t user, Work work, Done done) {
  submit({std::move(work), std::move(done), user});
}

void ThreadWorker::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    queue(std::move(job));
  }
  changed_.notify_one();
}

void ThreadWorker::queue(Job job) {
  std::deque<Job>& queue = job.user ? in_turn_[*job.user] : first_;
  queue.push_back(std::move(job));
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
  turn_is_due_ = takes_first;
  auto turn = in_turn_.end();
  if (!takes_first) {
    turn = in_turn_.upper_bound(last_user_);
    if (turn == in_turn_.end()) turn = in_turn_.begin();
    last_user_ = turn->first;
  }
  std::deque<Job>& queue = takes_first ? first_ : turn->second;
  Job job = std::move(queue.front());
  queue.pop_front();
  if (!takes_first && queue.empty()) in_turn_.erase(turn);
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
      queue(std::move(job));
      continue;
    }
    finished_.push_back(std::move(job));
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace gradwire::ipc
