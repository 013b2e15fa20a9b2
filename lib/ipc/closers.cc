// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/closers.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <mutex>
#include <system_error>
#include <tuple>

#include "ipc/quiet_thread.h"

#ifndef sigev_notify_thread_id  // glibc before 2.36 has it by another name
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace gradwire::ipc {
namespace {

/// A thread that has nothing to do for so long ends.
constexpr std::chrono::seconds kIdle(10);

/// Interrupts what the calling thread waits for in the kernel, again and again while it is on: one
/// signal may come just before the thread begins to wait. A lingering socket is closed then as if
/// its time were over. Without a timer (RLIMIT_SIGPENDING) the thread waits.
class Interrupts {
 public:
  Interrupts() {
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, SIGURG);
    ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGURG;
    event.sigev_notify_thread_id = static_cast<pid_t>(::syscall(SYS_gettid));
    made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~Interrupts() {
    if (made_) ::timer_delete(timer_);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void on() { set(std::chrono::nanoseconds(Closers::kPatience).count()); }
  void off() { set(0); }

 private:
  void set(std::int64_t ns) {
    if (!made_) return;
    itimerspec every = {};
    every.it_interval.tv_nsec = every.it_value.tv_nsec = ns;
    ::timer_settime(timer_, 0, &every, nullptr);
  }
  timer_t timer_ = {};
  bool made_ = false;
};

/// A signal without a handler interrupts nothing. SIGURG, since nobody is hurt by one that comes
/// where it should not: it is ignored elsewhere.
void take_signal() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGURG, &action, nullptr);
}

}  // namespace

/// Shared by the control thread and all users' threads, which may outlive Closers.
struct Closers::All {
  std::function<void()> wake;
  std::atomic<std::size_t> connections = 0;  ///< that wait, and those that are being closed
};

/// Shared by the control thread and a thread of the user.
struct Closers::User {
  User(std::shared_ptr<All> of_all, Kind of_kind) : all(std::move(of_all)), kind(of_kind) {}

  std::shared_ptr<All> all;
  Kind kind;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> queue;
  std::deque<Done> done;
  std::size_t waiting = 0;  ///< queued, and the one that runs
  bool runs = false;        ///< there is a thread
  bool stopped = false;     ///< Closers is no more
};

Closers::Closers(std::function<void()> wake) : all_(std::make_shared<All>()) {
  all_->wake = std::move(wake);
  take_signal();
}

Closers::~Closers() {
  for (const auto& [key, user] : users_) {
    const std::lock_guard lock(user->mutex);
    user->stopped = true;
    user->changed.notify_one();
  }
}

void Closers::submit(uid_t uid, Work work, Done done, Kind kind) {
  std::shared_ptr<User>& user = users_[{uid, kind}];
  if (user == nullptr) user = std::make_shared<User>(all_, kind);
  const std::lock_guard lock(user->mutex);
  user->queue.push_back({std::move(work), std::move(done)});
  ++user->waiting;
  if (kind == Kind::kConnection) ++all_->connections;
  start(user);
  user->changed.notify_one();
}

void Closers::start(const std::shared_ptr<User>& user) {
  if (user->runs || user->queue.empty()) return;
  try {
    start_quiet_thread("gw-closer", [user] { run(user); }).detach();
    user->runs = true;
  } catch (const std::system_error&) {
    // No thread can be made. In this one it would keep all users waiting.
  }
}

void Closers::close(uid_t uid, UniqueFd fd, Kind kind) {
  if (!fd) return;
  // A function can be copied, so what it holds is shared.
  submit(
      uid, [held = std::make_shared<UniqueFd>(std::move(fd))] { *held = {}; }, {}, kind);
}

void Closers::run(const std::shared_ptr<User>& user) {
  std::unique_ptr<Interrupts> interrupts;
  if (user->kind == Kind::kConnection) interrupts = std::make_unique<Interrupts>();
  std::unique_lock lock(user->mutex);
  while (true) {
    const bool some =
        user->changed.wait_for(lock, kIdle, [&] { return user->stopped || !user->queue.empty(); });
    if (!some || user->stopped) break;
    {
      Job job = std::move(user->queue.front());
      user->queue.pop_front();
      lock.unlock();
      if (interrupts != nullptr) interrupts->on();
      job.work();
      job.work = {};  // and what it holds
      if (interrupts != nullptr) interrupts->off();
      lock.lock();
      if (job.done) user->done.push_back(std::move(job.done));
    }
    --user->waiting;
    const bool room =
        user->kind == Kind::kConnection && user->all->connections.fetch_sub(1) == kConnections;
    // With the lock: once `stopped` is set nobody is woken.
    if (!user->stopped && (room || !user->done.empty())) user->all->wake();
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
      start(user);
      idle = !user->runs && user->waiting == 0 && done.empty();
    }
    at = idle ? users_.erase(at) : std::next(at);
    for (const Done& one : done) one();
  }
}

bool Closers::behind(uid_t uid) const {
  const auto found = users_.find({uid, Kind::kWork});
  if (found == users_.end()) return false;
  const std::lock_guard lock(found->second->mutex);
  return found->second->waiting > kWaiting;
}

bool Closers::full() const { return all_->connections >= kConnections; }

uid_t Closers::slowest() const {
  uid_t out = 0;
  std::size_t most = 0;
  for (const auto& [key, user] : users_) {
    if (key.second != Kind::kConnection) continue;
    const std::lock_guard lock(user->mutex);
    if (user->waiting > most) std::tie(out, most) = std::tuple(key.first, user->waiting);
  }
  return out;
}

std::size_t Closers::waiting() const {
  std::size_t out = 0;
  for (const auto& [key, user] : users_) {
    const std::lock_guard lock(user->mutex);
    out += user->waiting;
  }
  return out;
}

}  // namespace gradwire::ipc
