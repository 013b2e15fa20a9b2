// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How many answers strangers get: a burst, and on from there so many a second, whoever asks. A
/// host that answers every ping and every ARP request is a mirror: whoever sends under another's
/// address sends to that one through it. One thread owns it; time is a parameter; nothing
/// allocates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"

namespace gradwire::lane {

class ReplyLimit {
 public:
  /// More than an operator's `ping -i 0.01`, or a network's worth of hosts that look for an
  /// address.
  static constexpr std::uint32_t kBurst = 64;
  static constexpr TimeNs kIntervalNs = 1'000'000;

  /// @return whether one more may be sent now; if so, it counts.
  [[nodiscard]] bool allow(TimeNs now) noexcept {
    if (next_ > now + (kBurst - 1) * kIntervalNs) return false;
    next_ = std::max(next_, now) + kIntervalNs;
    return true;
  }

 private:
  TimeNs next_ = 0;  ///< when the next would be due if there were no bursts
};

}  // namespace gradwire::lane
