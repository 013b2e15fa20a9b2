// SPDX-License-Identifier: BSD-3-Clause
#include "lane/lane_threads.h"

#include <fmt/format.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace gradwire::lane {

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
  // A destructor has nobody to tell; the daemon has stopped them by then and looked.
  constexpr TimeNs kLastBound = 10'000'000'000;
  stop(kLastBound);
}

int LaneThreads::run(void* thread) {
  auto& self = *static_cast<Thread*>(thread);
  self.thread_id.store(static_cast<int>(gettid()), std::memory_order_relaxed);
  self.lane->run(*self.stop);
  return 0;
}

Result<void> LaneThreads::start() {
  for (Thread& thread : threads_) {
    const int error = rte_eal_remote_launch(&LaneThreads::run, &thread, thread.lcore);
    if (error != 0) {
      return fail(ErrorCode::kSystem, fmt::format("lcore {} does not start a lane: {}",
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
