// SPDX-License-Identifier: BSD-3-Clause
#include "lane/polling.h"

#include <algorithm>

namespace gradwire::lane {

std::optional<PollingMode> parse_polling_mode(std::string_view name) noexcept {
  if (name == "busy") return PollingMode::kBusy;
  if (name == "adaptive") return PollingMode::kAdaptive;
  return std::nullopt;
}

IdleStep Polling::after_round(TimeNs now, bool worked, bool expecting, bool interrupts) noexcept {
  if (worked || last_work_ns_ == -kNever) {
    last_work_ns_ = now;
    const bool contended = now < no_yield_until_;
    next_sleep_ns_ = contended ? config_.contended_sleep_ns : config_.first_sleep_ns;
    return {};
  }
  if (config_.mode == PollingMode::kBusy) return {.action = IdleAction::kPause};
  const TimeNs idle_ns = now - last_work_ns_;
  if (idle_ns < config_.pause_ns) return {.action = IdleAction::kPause};
  const TimeNs yield_ns = expecting ? config_.expecting_yield_ns : config_.yield_ns;
  if (idle_ns < yield_ns && now >= no_yield_until_) return {.action = IdleAction::kYield};

  if (interrupts) return {.action = IdleAction::kSleep, .sleep_ns = config_.max_sleep_ns};
  const TimeNs longest = expecting ? config_.expecting_sleep_ns : config_.max_sleep_ns;
  const TimeNs sleep_ns = std::min(next_sleep_ns_, longest);
  next_sleep_ns_ = std::min(next_sleep_ns_ * 2, config_.max_sleep_ns);
  return {.action = IdleAction::kSleep, .sleep_ns = sleep_ns};
}

TimeNs Polling::bound(TimeNs sleep_ns, TimeNs now, TimeNs deadline) noexcept {
  if (deadline <= now) return 0;
  return std::min(sleep_ns, deadline - now);
}

}  // namespace gradwire::lane
