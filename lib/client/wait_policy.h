// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How long a wait for an op spins before it sleeps. Spinning saves a wake-up if the daemon's lane
/// has another core. On the lane's own core it keeps the lane from running, so that a wait that
/// sleeps at once takes a fraction of the time (doc/performance.md, When to isolate cores). But
/// beside a program that computes on that core, whoever sleeps may wait for the other's time slice,
/// and then makes all other ranks late. So a wait tries it now and then; waits sleep at once after
/// several wake-ups in time, and spin again after a late one, for longer each time. The client's
/// lock guards it; it neither allocates nor reads a clock.
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
  /// Waits from one try to the next: first, and at most after late wake-ups.
  static constexpr std::uint32_t kTryEachMin = 8;
  static constexpr std::uint32_t kTryEachMax = 1024;
  /// So many tries must be in time until all waits sleep at once.
  static constexpr std::uint32_t kTries = 8;
  /// So many wake-ups in time, after that, make up for one that was late.
  static constexpr std::uint32_t kForgives = 64;

  /// @param spin  for how long a wait spins if nothing speaks against it.
  explicit WaitPolicy(Duration spin) noexcept : spin_(spin) {}

  /// For how long the wait that begins now spins.
  /// @param on_lane_core  whether this thread is on the core that the daemon's lane slept on last.
  [[nodiscard]] Duration begin(bool on_lane_core) noexcept {
    tries_ = on_lane_core && (sleeps_ || ++waits_ % try_each_ == 0);
    return tries_ ? Duration::zero() : spin_;
  }

  /// After a sleep that the daemon's ring ended.
  /// @param slept  when it began
  /// @param rung   when the daemon rang last. Before `slept`, or after `now`, it says nothing: the
  ///               ring was for an earlier sleep, or the daemon's clock is another
  /// @param now    when this thread ran again
  void woke(Duration slept, Duration rung, Duration now) noexcept {
    if (!tries_ || rung < slept || rung > now) return;
    if (now - rung >= kLate) {
      sleeps_ = false;
      in_time_ = 0;
      waits_ = 0;
      try_each_ = std::min(2 * try_each_, kTryEachMax);
    } else if (++in_time_ >= (sleeps_ ? kForgives : kTries)) {
      if (sleeps_) try_each_ = std::max(try_each_ / 2, kTryEachMin);
      sleeps_ = true;
      in_time_ = 0;
    }
  }

 private:
  Duration spin_;
  bool sleeps_ = false;        ///< waits on the lane's core sleep at once
  bool tries_ = false;         ///< the last wait that began does
  std::uint32_t waits_ = 0;    ///< on the lane's core, since the last late wake-up
  std::uint32_t in_time_ = 0;  ///< wake-ups one after the other
  std::uint32_t try_each_ = kTryEachMin;
};

}  // namespace gradwire::client
