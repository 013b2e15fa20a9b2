// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A rate with a reserve (the generic cell rate algorithm): so many units at once, then one each
/// interval. One thread owns a meter; time is a parameter; nothing allocates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"

namespace gradwire {

class RateMeter {
 public:
  /// @param burst  units that are there at the start, and after a long rest; at least 1.
  constexpr RateMeter(TimeNs interval_ns, std::int64_t burst) noexcept
      : interval_ns_(interval_ns), burst_(burst) {}

  /// When `units`, at most the burst, are there if none is taken before.
  [[nodiscard]] TimeNs when(std::int64_t units) const noexcept {
    return full_at_ - (burst_ - units) * interval_ns_;
  }
  [[nodiscard]] bool has(std::int64_t units, TimeNs now) const noexcept {
    return when(units) <= now;
  }
  /// Takes them, also if they are not there: then the next wait for so long.
  void take(std::int64_t units, TimeNs now) noexcept {
    full_at_ = std::max(full_at_, now) + units * interval_ns_;
  }
  /// Takes them; what is not there then is waited for, but no longer than `debt` units take.
  void take_with_debt(std::int64_t units, std::int64_t debt, TimeNs now) noexcept {
    take(units, now);
    full_at_ = std::min(full_at_, now + (burst_ + debt) * interval_ns_);
  }
  /// @return whether one was there; it is taken.
  [[nodiscard]] bool allow(TimeNs now) noexcept {
    if (!has(1, now)) return false;
    take(1, now);
    return true;
  }

 private:
  TimeNs interval_ns_;
  std::int64_t burst_;
  TimeNs full_at_ = 0;
};

}  // namespace gradwire
