// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs each lane on a worker lcore until told to stop. The main thread owns it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "lane/datapath.h"

namespace gradwire::gradwired {

class LaneThreads {
 public:
  /// Worker lcores of the EAL's list, in its order: lane i runs on element i.
  [[nodiscard]] static std::vector<unsigned> worker_lcores();

  /// `datapath` outlives the object.
  explicit LaneThreads(lane::Datapath& datapath);
  ~LaneThreads();
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  [[nodiscard]] Result<void> start();
  /// @return whether every lane stopped within `bound_ns`. Again does nothing.
  bool stop(TimeNs bound_ns) noexcept;

  [[nodiscard]] unsigned lcore(std::uint8_t lane) const { return threads_.at(lane).lcore; }
  /// The kernel's id of the lane's thread; 0 until it runs.
  [[nodiscard]] int thread_id(std::uint8_t lane) const {
    return threads_.at(lane).thread_id.load(std::memory_order_relaxed);
  }

 private:
  struct Thread {
    lane::Lane* lane = nullptr;
    const std::atomic<bool>* stop = nullptr;
    unsigned lcore = 0;
    std::atomic<int> thread_id{0};
  };
  static int run(void* thread);

  lane::Datapath& datapath_;
  std::atomic<bool> stop_{false};
  std::deque<Thread> threads_;  // at fixed addresses: the threads point to theirs
  std::size_t started_ = 0;
};

}  // namespace gradwire::gradwired
