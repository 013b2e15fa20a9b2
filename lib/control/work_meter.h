// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How much work the control plane has done, for whom, and whether a round left some for the next.
/// Work is counted in steps: a step is about a microsecond's, such as an entry of a table, an
/// address looked at, a group or a lane's part of one. The control thread owns it; it does not
/// allocate.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace gradwire::control {

/// For a message to a client's socket.
inline constexpr std::uint64_t kSendSteps = 2;

class WorkMeter {
 public:
  /// @param charge  ManagerOptions::charge
  explicit WorkMeter(std::function<void(uid_t, std::uint64_t)> charge)
      : charge_(std::move(charge)) {}

  void add(std::uint64_t steps) noexcept { steps_ += steps; }
  /// So far.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Tells of steps that a round takes for a user, who asked for them before.
  void charge(uid_t uid, std::uint64_t steps) const {
    if (charge_) charge_(uid, steps);
  }

  void begin_round() noexcept { has_more_ = false; }
  void leave_some() noexcept { has_more_ = true; }
  /// Whether the next round has something to do, whatever comes in between.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }

 private:
  std::function<void(uid_t, std::uint64_t)> charge_;
  std::uint64_t steps_ = 0;
  bool has_more_ = false;
};

}  // namespace gradwire::control
