// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How far the daemon has come in stopping: it runs, drains (nothing new is accepted, and members
/// have time to leave), and closes (groups abort, clients are disconnected). The manager alone
/// changes it; all parts read it. The control thread owns it; time is a parameter.
#pragma once

#include <cstdint>

#include "base/require.h"
#include "base/types.h"

namespace gradwire::control {

class Stopping {
 public:
  [[nodiscard]] bool running() const noexcept { return state_ == State::kRunning; }
  [[nodiscard]] bool draining() const noexcept { return state_ == State::kDraining; }
  [[nodiscard]] bool closing() const noexcept { return state_ == State::kClosing; }
  /// Whether the time of the present state is over.
  [[nodiscard]] bool is_over(TimeNs now) const noexcept { return now >= deadline_; }
  /// As the status says.
  [[nodiscard]] const char* name() const noexcept {
    return running() ? "running" : draining() ? "stopping" : "closing";
  }

  void begin_drain(TimeNs until) noexcept {
    require(running(), "a daemon begins to stop once");
    state_ = State::kDraining;
    deadline_ = until;
  }
  void begin_close(TimeNs until) noexcept {
    require(draining(), "a daemon that stops drains before it closes");
    state_ = State::kClosing;
    deadline_ = until;
  }

 private:
  enum class State : std::uint8_t { kRunning, kDraining, kClosing };

  State state_ = State::kRunning;
  TimeNs deadline_ = kNever;
};

}  // namespace gradwire::control
