// SPDX-License-Identifier: BSD-3-Clause
#include "lane/lane_threads.h"

#include <fmt/format.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace gradwire::lane {
namespace {

/// sched_setattr(2)'s argument, which glibc 2.36 does not declare.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

/// From Linux 6.12 on `runtime` is the slice that a thread asks for (0.1 to 100 ms), and a thread
/// that wakes preempts one with a longer slice at once. With equal slices it waits, whatever its
/// nice value, until the other has used its slice. Older kernels preempt by nice value and ignore
/// the slice.
constexpr std::uint64_t kSliceNs = 100'000;

/// For the calling thread. @return 0 or errno.
int set_own_nice(int nice) noexcept {
  SchedulingAttributes attributes;
  attributes.nice = nice;
  attributes.runtime = nice < 0 ? kSliceNs : 0;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0u) == 0) return 0;
  const int error = errno;
  // A seccomp filter may allow only the older call.
  return setpriority(PRIO_PROCESS, 0, nice) == 0 ? 0 : error;
}

}  // namespace

std::vector<unsigned> LaneThreads::worker_lcores() {
  std::vector<unsigned> lcores;
  unsigned lcore = 0;
  RTE_LCORE_FOREACH_WORKER(lcore) { lcores.push_back(lcore); }
  return lcores;
}

LaneThreads::LaneThreads(Datapath& datapath, std::uint8_t first_lane)
    : datapath_(datapath), first_lane_(first_lane) {
  const std::vector<unsigned> lcores = worker_lcores();
  for (std::uint8_t i = first_lane; i < datapath.lanes(); ++i) {
    Thread& thread = threads_.emplace_back();
    thread.lane = &datapath.lane(i);
    thread.stop = &stop_;
    thread.lcore = lcores.at(i - first_lane);
  }
}

LaneThreads::~LaneThreads() {
  // A destructor cannot report an error; the daemon has stopped the lanes and checked the result
  // before.
  constexpr TimeNs kLastBound = 10'000'000'000;
  stop(kLastBound);
}

int LaneThreads::run(void* thread) {
  auto& self = *static_cast<Thread*>(thread);
  self.thread_id.store(static_cast<int>(gettid()), std::memory_order_relaxed);
  self.lane->run(*self.stop);
  return 0;
}

int LaneThreads::set_nice(int nice) noexcept {
  for (Thread& thread : threads_) {
    thread.nice = nice;
    // Each thread reads its own value, because the kernel needs the thread's id.
    const auto ask = [](void* argument) {
      auto& self = *static_cast<Thread*>(argument);
      self.thread_id.store(static_cast<int>(gettid()), std::memory_order_relaxed);
      self.nice_error = set_own_nice(self.nice);
      return 0;
    };
    const int error = rte_eal_remote_launch(ask, &thread, thread.lcore);
    if (error != 0) return -error;
    rte_eal_wait_lcore(thread.lcore);
    if (thread.nice_error != 0) return thread.nice_error;
  }
  return 0;
}

std::optional<int> LaneThreads::nice(std::uint8_t lane) const noexcept {
  const int id = thread_id(lane);
  if (id == 0) return std::nullopt;
  errno = 0;  // -1 is a nice value too
  const int value = getpriority(PRIO_PROCESS, static_cast<id_t>(id));
  if (value == -1 && errno != 0) return std::nullopt;
  return value;
}

Result<void> LaneThreads::start() {
  for (Thread& thread : threads_) {
    const int error = rte_eal_remote_launch(&LaneThreads::run, &thread, thread.lcore);
    if (error != 0) {
      return fail(ErrorCode::kSystem, fmt::format("starting a lane on lcore {} failed: {}",
                                                  thread.lcore, std::strerror(-error)));
    }
    ++started_;
  }
  return {};
}

bool LaneThreads::stop(TimeNs bound_ns) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(bound_ns);
  stop_.store(true, std::memory_order_release);
  while (started_ > 0) {
    datapath_.wake(static_cast<std::uint8_t>(first_lane_ + started_ - 1));
    const unsigned lcore = threads_[started_ - 1].lcore;
    if (rte_eal_get_lcore_state(lcore) == WAIT) {
      rte_eal_wait_lcore(lcore);
      --started_;
      continue;
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace gradwire::lane
