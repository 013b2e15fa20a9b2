// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How long a wait for an op spins before it sleeps. Spinning saves a wake-up if the daemon's lane
/// has another core. On the lane's own core it keeps the lane from running, so there a wait sleeps
/// at once: 64 bytes through a daemon take a seventh of the time (doc/performance.md, When to
/// isolate cores). But beside a program that computes on that core, whoever sleeps may wait for the
/// other's time slice. So wake-ups are watched: after one that came late, waits spin again for some
/// time. The client's lock guards it; it neither allocates nor reads a clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gradwire::client {

class WaitPolicy {
 public:
  using Duration = std::chrono::nanoseconds;

  /// A wake-up takes up to 50 us in a virtual machine, a time slice 700 us and more.
  static constexpr Duration kLate = std::chrono::microseconds(300);
  /// So many waits spin after the first late wake-up, and twice as many after each that follows.
  static constexpr std::uint32_t kFirstHold = 16;
  static constexpr std::uint32_t kLastHold = 1024;

  /// @param spin  for how long a wait spins if nothing speaks against it.
  explicit WaitPolicy(Duration spin) noexcept : spin_(spin) {}

  /// For how long the wait that begins now spins.
  /// @param on_lane_core  whether this thread is on the core that the daemon's lane last slept on.
  [[nodiscard]] Duration begin(bool on_lane_core) noexcept {
    if (!on_lane_core) return spin_;
    if (spins_left_ == 0) return Duration::zero();
    --spins_left_;
    return spin_;
  }

  /// After a sleep that a completion ended.
  /// @param delay  from when the daemon rang until this thread ran again.
  void woke(Duration delay) noexcept {
    if (spins_left_ > 0) return;
    if (delay < kLate) {
      hold_ = kFirstHold;
      return;
    }
    spins_left_ = hold_;
    hold_ = std::min(2 * hold_, kLastHold);
  }

 private:
  Duration spin_;
  std::uint32_t spins_left_ = 0;
  std::uint32_t hold_ = kFirstHold;
};

}  // namespace gradwire::client
