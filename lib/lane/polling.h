// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a lane does between rounds in which there was nothing to do. `busy` never gives its core
/// away. `adaptive` is for cores that others use too: while packets flow it spins for some
/// microseconds, then it sleeps: first as briefly as a timer allows, then longer and longer while
/// nothing comes. A doorbell, the lane's bell and, if the driver has one, a receive interrupt end a
/// sleep at once; a packet from another daemon of this host does so while sends and receives alone
/// are under way.
///
/// It never yields. If another process computes on the core, sched_yield() lets it run for its
/// whole time slice of milliseconds, while a thread that sleeps gets the core back when its timer
/// ends. It spins only while an op is under way and packets came a moment ago. If it waits for a
/// client or a late rank, it sleeps, so that they can use the core.
///
/// While an op is under way, a sleep is a share of how long nothing came, so a packet waits for at
/// most that share of the pause before it, and in a long wait a lane rarely wakes. Without an op
/// the lane sleeps long at once: only acknowledgements and packets of later ops can come, and they
/// wait for the client's op anyway, which rings. In a virtual machine a short timer costs more
/// than all else that a small op does, since each one is set by the hypervisor.
///
/// It is a state machine that gets the time from its caller: it neither sleeps nor reads a clock.
/// One lane owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/sections.h"
#include "base/types.h"

namespace gradwire::lane {

enum class PollingMode : std::uint8_t { kBusy, kAdaptive };
[[nodiscard]] std::optional<PollingMode> parse_polling_mode(std::string_view name) noexcept;

struct PollingConfig {
  PollingMode mode = parse_polling_mode(LanesSection{}.polling).value();
  /// How long it spins after the last work while an op is under way: about the cost of a sleep and
  /// its wake-up, so that no wait costs more than twice the possible minimum.
  TimeNs spin_ns = 20'000;
  /// As spin_ns, while a GPU has folds: nothing but a round finds out that they are done.
  TimeNs folding_spin_ns = 1'000'000;
  TimeNs first_sleep_ns = 1'000;  ///< the shortest sleep
  TimeNs max_sleep_ns =
      2'000'000;  ///< the longest sleep, and the only one while no op is under way
  /// While an op is under way, a sleep takes the time since the last work divided by this.
  TimeNs expecting_divisor = 8;
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

  /// Call it after each round. `worked`: the round found something to do. `flowed`: that was data,
  /// an op or a request, not just pings and their answers, which do not shorten a lane's sleep.
  /// `expecting`: an op is unfinished, or frames wait for a port. `interrupts`: a packet ends a
  /// sleep, so a long one does no harm. `folding`: a GPU has folds of an unfinished op.
  [[nodiscard]] IdleStep after_round(TimeNs now, bool worked, bool flowed, bool expecting,
                                     bool interrupts, bool folding = false) noexcept;
  /// For how long no data, op or request came, as of the last round; 0 if that had some.
  [[nodiscard]] TimeNs idle_ns(TimeNs now) const noexcept {
    return idle_since_ == kNever ? 0 : now - idle_since_;
  }
  /// @return `sleep_ns` cut to end at `deadline`, but never less than the shortest sleep: the round
  /// at `now` has done what was due, so if a deadline has passed, someone else has to act first.
  [[nodiscard]] TimeNs bound(TimeNs sleep_ns, TimeNs now, TimeNs deadline) const noexcept;

 private:
  PollingConfig config_;
  /// When the first round without data, ops or requests ended; kNever if the last round had some.
  /// It counts from the round's end, because a round may take longer than spin_ns.
  TimeNs idle_since_ = kNever;
};

}  // namespace gradwire::lane
