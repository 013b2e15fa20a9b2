// SPDX-License-Identifier: BSD-3-Clause
#include "lane/polling.h"

#include <algorithm>

#include "base/require.h"

namespace gradwire::lane {

std::optional<PollingMode> parse_polling_mode(std::string_view name) noexcept {
  if (name == "busy") return PollingMode::kBusy;
  if (name == "adaptive") return PollingMode::kAdaptive;
  return std::nullopt;
}

IdleStep Polling::after_round(TimeNs now, bool worked, bool flowed, bool expecting, bool interrupts,
                              bool folding) noexcept {
  if (flowed) idle_since_ = kNever;
  if (worked) return {};
  if (config_.mode == PollingMode::kBusy) return {.action = IdleAction::kPause};
  if (idle_since_ == kNever) idle_since_ = now;
  const TimeNs idle = idle_ns(now);
  if (expecting && idle < (folding ? config_.folding_spin_ns : config_.spin_ns))
    return {.action = IdleAction::kPause};
  TimeNs sleep_ns = config_.max_sleep_ns;
  if (expecting && (folding || !interrupts)) {
    sleep_ns =
        std::clamp(idle / config_.expecting_divisor, config_.first_sleep_ns, config_.max_sleep_ns);
  }
  return {.action = IdleAction::kSleep, .sleep_ns = sleep_ns};
}

TimeNs Polling::bound(TimeNs sleep_ns, TimeNs now, TimeNs deadline) const noexcept {
  require(sleep_ns >= config_.first_sleep_ns, "a sleep is no shorter than the first");
  if (deadline <= now) return config_.first_sleep_ns;
  return std::clamp(deadline - now, config_.first_sleep_ns, sleep_ns);
}

}  // namespace gradwire::lane
