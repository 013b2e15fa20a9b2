// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The longest round of a loop in the last minute, by time and by steps. Time depends on the
/// machine and on what else runs there; steps are counted, so tests can hold them against a bound.
/// One thread; time is a parameter; nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace gradwire {

class LongestRounds {
 public:
  struct Round {
    TimeNs ns = 0;
    std::uint64_t steps = 0;
  };

  void record(TimeNs now, TimeNs ns, std::uint64_t steps) noexcept {
    Slot& slot = slots_[static_cast<std::size_t>(now / kSlotNs) % kSlots];
    if (slot.at != now / kSlotNs) slot = {now / kSlotNs, {}};
    slot.longest.ns = std::max(slot.longest.ns, ns);
    slot.longest.steps = std::max(slot.longest.steps, steps);
  }
  /// Of each the largest, not necessarily of one round; of the last 60 to 62 seconds.
  [[nodiscard]] Round longest(TimeNs now) const noexcept {
    Round out;
    for (const Slot& slot : slots_) {
      if (slot.at < 0 || now / kSlotNs - slot.at >= static_cast<TimeNs>(kSlots)) continue;
      out.ns = std::max(out.ns, slot.longest.ns);
      out.steps = std::max(out.steps, slot.longest.steps);
    }
    return out;
  }

 private:
  static constexpr TimeNs kSlotNs = 2'000'000'000;
  static constexpr std::size_t kSlots = 31;
  struct Slot {
    TimeNs at = -1;
    Round longest;
  };
  std::array<Slot, kSlots> slots_{};
};

}  // namespace gradwire
