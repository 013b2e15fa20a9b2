// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Arithmetic on times that cannot overflow: a clock may jump (a paused process, a virtual machine
/// that moved), and kNever is a time too. Private to lib/transport.
#pragma once

#include "base/types.h"

namespace gradwire::transport {

/// @return `time` + `duration_ns`, kNever if that is too large. `duration_ns` is not negative.
[[nodiscard]] constexpr TimeNs later(TimeNs time, TimeNs duration_ns) noexcept {
  TimeNs sum = 0;
  return __builtin_add_overflow(time, duration_ns, &sum) ? kNever : sum;
}

/// @return how long after `from` `to` is; 0 if it is before.
[[nodiscard]] constexpr TimeNs elapsed(TimeNs from, TimeNs to) noexcept {
  if (to <= from) return 0;
  TimeNs difference = 0;
  return __builtin_sub_overflow(to, from, &difference) ? kNever : difference;
}

}  // namespace gradwire::transport
