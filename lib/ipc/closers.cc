// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/closers.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

#include "ipc/quiet_thread.h"

namespace gradwire::ipc {
namespace {

/// A thread that has nothing to do for so long ends.
constexpr std::chrono::seconds kIdle(10);

}  // namespace

/// Shared by the control thread and the user's, which may outlive Closers.
struct Closers::User {
  std::shared_ptr<const std::function<void()>> wake;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> queue;
  std::deque<Done> done;
  std::size_t waiting = 0;  ///< queued, and the one that runs
  bool runs = false;        ///< there is a thread
  bool stopped = false;     ///< Closers is no more
};

Closers::Closers(std::function<void()> wake)
    : wake_(std::make_shared<const std::function<void()>>(std::move(wake))) {}

Closers::~Closers() {
  for (const auto& [uid, user] : users_) {
    const std::lock_guard lock(user->mutex);
    user->stopped = true;
    user->changed.notify_one();
  }
}

void Closers::submit(uid_t uid, Work work, Done done) {
  std::shared_ptr<User>& user = users_[uid];
  if (user == nullptr) {
    user = std::make_shared<User>();
    user->wake = wake_;
  }
  const std::lock_guard lock(user->mutex);
  if (!user->runs) {
    try {
      start_quiet_thread("gw-closer", [user] { run(user); }).detach();
      user->runs = true;
    } catch (const std::system_error&) {
      // No thread can be made: whatever it takes, it is done here.
    }
  }
  if (!user->runs) {
    work();
    if (done) user->done.push_back(std::move(done));
    (*wake_)();
    return;
  }
  user->queue.push_back({std::move(work), std::move(done)});
  ++user->waiting;
  user->changed.notify_one();
}

void Closers::close(uid_t uid, UniqueFd fd) {
  if (!fd) return;
  // A function can be copied, so what it holds is shared.
  submit(uid, [held = std::make_shared<UniqueFd>(std::move(fd))] { *held = {}; }, {});
}

void Closers::run(const std::shared_ptr<User>& user) {
  std::unique_lock lock(user->mutex);
  while (true) {
    const bool some =
        user->changed.wait_for(lock, kIdle, [&] { return user->stopped || !user->queue.empty(); });
    if (!some || user->stopped) break;
    {
      Job job = std::move(user->queue.front());
      user->queue.pop_front();
      lock.unlock();
      job.work();
      job.work = {};  // and what it holds
      lock.lock();
      if (job.done) user->done.push_back(std::move(job.done));
    }
    --user->waiting;
    // With the lock: once `stopped` is set nobody is woken.
    if (!user->stopped && !user->done.empty()) (*user->wake)();
  }
  user->runs = false;
}

void Closers::finish() {
  for (auto at = users_.begin(); at != users_.end();) {
    const std::shared_ptr<User> user = at->second;
    std::deque<Done> done;
    bool idle = false;
    {
      const std::lock_guard lock(user->mutex);
      done.swap(user->done);
      idle = !user->runs && user->waiting == 0 && done.empty();
    }
    at = idle ? users_.erase(at) : std::next(at);
    for (const Done& one : done) one();
  }
}

bool Closers::behind(uid_t uid) const {
  const auto found = users_.find(uid);
  if (found == users_.end()) return false;
  const std::lock_guard lock(found->second->mutex);
  return found->second->waiting > kWaiting;
}

std::size_t Closers::waiting() const {
  std::size_t out = 0;
  for (const auto& [uid, user] : users_) {
    const std::lock_guard lock(user->mutex);
    out += user->waiting;
  }
  return out;
}

}  // namespace gradwire::ipc
