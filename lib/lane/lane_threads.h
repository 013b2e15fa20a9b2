// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Runs lanes on worker lcores until told to stop. The main thread owns it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "lane/datapath.h"

namespace gradwire::lane {

class LaneThreads {
 public:
  /// The EAL's worker lcores in the EAL's order. The first lane that is started gets element 0.
  [[nodiscard]] static std::vector<unsigned> worker_lcores();

  /// `datapath` outlives the object.
  /// @param first_lane the caller drives the lanes before it.
  explicit LaneThreads(Datapath& datapath, std::uint8_t first_lane = 0);
  ~LaneThreads();
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  /// Sets the nice value of every lane's thread (setpriority(2)); call it before start(). It does
  /// not change the threads of the caller that drive lanes.
  /// @return 0, or the errno of the first thread that failed; later threads keep their value.
  [[nodiscard]] int set_nice(int nice) noexcept;
  [[nodiscard]] Result<void> start();
  /// @return whether every lane stopped within `bound_ns`. A second call does nothing.
  bool stop(TimeNs bound_ns) noexcept;

  [[nodiscard]] unsigned lcore(std::uint8_t lane) const {
    return threads_.at(lane - first_lane_).lcore;
  }
  /// The thread's present nice value according to the kernel; nothing before the thread is known.
  [[nodiscard]] std::optional<int> nice(std::uint8_t lane) const noexcept;
  /// The kernel's id of the lane's thread; 0 until it runs.
  [[nodiscard]] int thread_id(std::uint8_t lane) const {
    return threads_.at(lane - first_lane_).thread_id.load(std::memory_order_relaxed);
  }

 private:
  struct Thread {
    Lane* lane = nullptr;
    const std::atomic<bool>* stop = nullptr;
    unsigned lcore = 0;
    std::atomic<int> thread_id{0};
    int nice = 0;        ///< wanted
    int nice_error = 0;  ///< errno of set_nice()
  };
  static int run(void* thread);

  Datapath& datapath_;
  std::uint8_t first_lane_;
  std::atomic<bool> stop_{false};
  std::deque<Thread> threads_;  // a deque, because the threads point to their elements
  std::size_t started_ = 0;
};

}  // namespace gradwire::lane
