// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The one place where the datapath reads a clock: TSC cycles scaled to nanoseconds, the same for
/// all threads of the process. Any thread; nothing allocates.
#pragma once

#include <rte_cycles.h>

#include <cstdint>

#include "base/types.h"

namespace gradwire::lane {

class TscClock {
 public:
  TscClock() noexcept : TscClock(rte_get_tsc_hz()) {}
  explicit TscClock(std::uint64_t hz) noexcept
      : scale_(static_cast<std::uint64_t>((static_cast<Wide>(1'000'000'000) << kShift) / hz)) {}

  [[nodiscard]] TimeNs now() const noexcept { return to_ns(rte_get_tsc_cycles()); }
  [[nodiscard]] TimeNs to_ns(std::uint64_t cycles) const noexcept {
    return static_cast<TimeNs>((static_cast<Wide>(cycles) * scale_) >> kShift);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr int kShift = 32;
  std::uint64_t scale_;  ///< ns per cycle, in 2^-32
};

}  // namespace gradwire::lane
