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
  /// two packets of 9,216 bytes. The bucket starts full.
  Pacer(std::uint64_t rate_bps, std::uint32_t burst_bytes) noexcept;
  /// A packet larger than the burst may go when the bucket is full, and leaves a debt.
  [[nodiscard]] bool may_send(TimeNs now, std::uint32_t bytes) const noexcept {
    return rate_bps_ == 0 || units_at(now) >= units_needed(bytes);
  }
  /// Earliest time at which `bytes` may go; `now` if they may already.
  [[nodiscard]] TimeNs time_for(TimeNs now, std::uint32_t bytes) const noexcept;
  /// How many bytes may go now, in any packets; the largest number if nothing is paced.
  [[nodiscard]] std::uint64_t available_bytes(TimeNs now) const noexcept;
  /// Also for packets that may_send() refused (probes): they leave a debt that later ones pay.
  void on_sent(TimeNs now, std::uint32_t bytes) noexcept {
    if (rate_bps_ != 0) take(now, bytes);
  }
  /// Time up to `now` counts at the old rate. What was saved is cut to the new burst, and so is a
  /// debt, so that a low rate need not pay for long what a high one borrowed.
  void set_rate(TimeNs now, std::uint64_t rate_bps) noexcept;
  [[nodiscard]] std::uint64_t rate_bps() const noexcept { return rate_bps_; }
  [[nodiscard]] std::uint32_t burst_bytes() const noexcept { return burst_bytes_; }

 private:
  /// Tokens count in units of 1/8e9 byte: a nanosecond at 1 bit/s is one unit, so that filling is
  /// an integer product and nothing is ever rounded. 128 bits hold the largest rate times the
  /// largest time.
  __extension__ using Units = __int128;

  void take(TimeNs now, std::uint32_t bytes) noexcept;
  [[nodiscard]] Units units_at(TimeNs now) const noexcept;
  [[nodiscard]] Units units_needed(std::uint32_t bytes) const noexcept;

  std::uint64_t rate_bps_;
  std::uint32_t configured_burst_bytes_;
  std::uint32_t burst_bytes_;
  TimeNs updated_at_ = 0;
  Units units_;  ///< at updated_at_; negative = debt
};

}  // namespace gradwire::transport
