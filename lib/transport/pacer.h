// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A token bucket in bytes with a bounded burst: holds a rate exactly in the long run (no rounding
/// is lost) and never lets more than the burst go at once. One lane owns it; plain state; time is a
/// parameter.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace gradwire::transport {

class Pacer {
 public:
  /// `rate_bps` in bits per second, 0 = not paced; `burst_bytes` 0 = 1/1000 s of the rate, at least
  /// two packets of 9,216 bytes.
  Pacer(std::uint64_t rate_bps, std::uint32_t burst_bytes) noexcept;
  [[nodiscard]] bool may_send(TimeNs now, std::uint32_t bytes) const noexcept;
  /// Earliest time at which `bytes` may go; `now` if they may already.
  [[nodiscard]] TimeNs time_for(TimeNs now, std::uint32_t bytes) const noexcept;
  void on_sent(TimeNs now, std::uint32_t bytes) noexcept;
  void set_rate(TimeNs now, std::uint64_t rate_bps) noexcept;
  [[nodiscard]] std::uint64_t rate_bps() const noexcept { return rate_bps_; }

 private:
  // The implementer completes this part.
  std::uint64_t rate_bps_;
};

}  // namespace gradwire::transport
