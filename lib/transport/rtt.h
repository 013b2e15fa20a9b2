// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// RTT estimation as RFC 9002 section 5. One lane owns it; plain state.
#pragma once

#include "base/types.h"

namespace gradwire::transport {

class RttEstimator {
 public:
  explicit RttEstimator(TimeNs initial_rtt_ns = 10'000'000) noexcept;
  /// `ack_delay_ns` is capped by the caller to the peer's max_ack_delay.
  void sample(TimeNs latest_rtt_ns, TimeNs ack_delay_ns) noexcept;
  [[nodiscard]] bool has_sample() const noexcept { return has_sample_; }
  [[nodiscard]] TimeNs latest_ns() const noexcept { return latest_ns_; }
  [[nodiscard]] TimeNs smoothed_ns() const noexcept { return smoothed_ns_; }
  [[nodiscard]] TimeNs variance_ns() const noexcept { return variance_ns_; }
  [[nodiscard]] TimeNs min_ns() const noexcept { return min_ns_; }

 private:
  bool has_sample_ = false;
  TimeNs latest_ns_ = 0;
  TimeNs smoothed_ns_;
  TimeNs variance_ns_;
  TimeNs min_ns_ = 0;
};

}  // namespace gradwire::transport
