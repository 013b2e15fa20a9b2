// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a lane does between rounds in which there was nothing to do. `busy` never gives its core
/// away. `adaptive` is for cores that others use too: while packets flow it spins for some
/// microseconds, then it sleeps, first as shortly as a timer can, then longer the longer nothing
/// came. A doorbell, the lane's bell and, if the driver has one, a receive interrupt end a sleep at
/// once.
///
/// It never yields: on a core where somebody computes, sched_yield() gives away that one's whole
/// time slice, milliseconds, while a thread that slept gets its core back when its timer ends.
/// It spins only while an op is under way and packets came a moment ago. What only a client or a
/// rank that is late can end is slept through: the core is theirs.
///
/// A sleep is a share of how long nothing came, so a packet waits for at most that share of the
/// pause before it, and a lane that waits for long hardly wakes.
///
/// A state machine over the caller's time: it neither sleeps nor reads a clock. One lane owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/defaults.h"
#include "base/types.h"

namespace gradwire::lane {

enum class PollingMode : std::uint8_t { kBusy, kAdaptive };
[[nodiscard]] std::optional<PollingMode> parse_polling_mode(std::string_view name) noexcept;

struct PollingConfig {
  PollingMode mode = parse_polling_mode(defaults::kPolling).value();
  /// After the last work, while an op is under way: about what a sleep and its wake-up cost, so
  /// that no wait costs more than twice the least it could.
  TimeNs spin_ns = 20'000;
  TimeNs first_sleep_ns = 1'000;        ///< the least that is slept
  TimeNs first_idle_sleep_ns = 20'000;  ///< the same while no op is under way
  TimeNs max_sleep_ns = 2'000'000;      ///< the longest sleep
  /// While an op is under way a sleep is this part of the time since the last work: an eighth.
  TimeNs expecting_divisor = 8;
  /// The same while none is: half. Only acknowledgements and early packets can come.
  TimeNs idle_divisor = 2;
  friend bool operator==(const PollingConfig&, const PollingConfig&) = default;
};

enum class IdleAction : std::uint8_t { kNone, kPause, kSleep };

struct IdleStep {
  IdleAction action = IdleAction::kNone;
  TimeNs sleep_ns = 0;
};

class Polling {
 public:
  explicit Polling(const PollingConfig& config) noexcept : config_(config) {}

  /// After each round. `worked`: it found something to do. `flowed`: that was data, an op or a
  /// request; pings and what answers them leave a lane that waits for long as sleepy as it is.
  /// `expecting`: an op is unfinished, or
  /// frames wait for a port. `interrupts`: a packet ends a sleep, so that a long one costs nothing.
  [[nodiscard]] IdleStep after_round(TimeNs now, bool worked, bool flowed, bool expecting,
                                     bool interrupts) noexcept;
  /// @return `sleep_ns` cut to end at `deadline`, but never less than the shortest sleep: the round
  /// at `now` has done what was due, so a deadline that has passed waits for somebody else.
  [[nodiscard]] TimeNs bound(TimeNs sleep_ns, TimeNs now, TimeNs deadline) const noexcept;

 private:
  PollingConfig config_;
  /// The first round since something flowed; kNever: it did in the last one. A round may take
  /// longer than is spun, so the time counts from its end.
  TimeNs idle_since_ = kNever;
};

}  // namespace gradwire::lane
