// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How a lane spends the rounds in which there is nothing to do. `busy` never gives its core away.
/// `adaptive` is for cores that are shared with training processes: it pauses for a moment, then
/// yields to whoever wants to run, then sleeps, first shortly, then longer. While an op or a
/// formation is under way packets are expected, and sleeps stay short; they also never pass the
/// next deadline of a shard. A doorbell ends a sleep at once.
///
/// Whoever yields on a core where somebody computes gets it back after a time slice of that one,
/// milliseconds later; a timer's wake-up gets it at once. So a yield that took long is the last one
/// for a while: sleeps as short as a timer can take its place.
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
  TimeNs pause_ns = 3'000;              ///< since the last work: spin
  TimeNs yield_ns = 60'000;             ///< then give the core to whoever wants it
  TimeNs expecting_yield_ns = 500'000;  ///< the same while packets are expected
  TimeNs first_sleep_ns = 50'000;       ///< each further one is twice as long
  TimeNs expecting_sleep_ns = 50'000;   ///< the longest while packets are expected
  TimeNs max_sleep_ns = 1'000'000;      ///< the longest
  TimeNs long_yield_ns = 100'000;       ///< a yield that took so long: somebody computes here
  TimeNs no_yield_ns = 20'000'000;      ///< for so long after that nothing is yielded
  TimeNs contended_sleep_ns = 20'000;   ///< the first sleep in that time
  friend bool operator==(const PollingConfig&, const PollingConfig&) = default;
};

enum class IdleAction : std::uint8_t { kNone, kPause, kYield, kSleep };

struct IdleStep {
  IdleAction action = IdleAction::kNone;
  TimeNs sleep_ns = 0;
};

class Polling {
 public:
  explicit Polling(const PollingConfig& config) noexcept : config_(config) {}

  /// After each round. `worked`: it found something to do. `expecting`: packets are expected.
  /// `interrupts`: a packet ends a sleep, so that a long one costs nothing.
  [[nodiscard]] IdleStep after_round(TimeNs now, bool worked, bool expecting,
                                     bool interrupts) noexcept;
  /// How long a yield took that after_round() asked for.
  void yielded(TimeNs now, TimeNs took_ns) noexcept {
    if (took_ns >= config_.long_yield_ns) no_yield_until_ = now + config_.no_yield_ns;
  }
  /// @return `sleep_ns` cut to end at `deadline`; 0 = do not sleep.
  [[nodiscard]] static TimeNs bound(TimeNs sleep_ns, TimeNs now, TimeNs deadline) noexcept;

 private:
  PollingConfig config_;
  TimeNs last_work_ns_ = -kNever;
  TimeNs next_sleep_ns_ = 0;
  TimeNs no_yield_until_ = -kNever;
};

}  // namespace gradwire::lane
