// SPDX-License-Identifier: BSD-3-Clause
#include "transport/rtt.h"

#include <algorithm>

#include "base/require.h"

namespace gradwire::transport {
namespace {

// A longer sample is a clock that jumped, not a network. The bound also keeps sums from
// overflowing.
constexpr TimeNs kMaxRttNs = 3'600'000'000'000;

}  // namespace

// RFC 9002 section 5.3: before the first sample the variance is half the initial RTT.
RttEstimator::RttEstimator(TimeNs initial_rtt_ns) noexcept
    : smoothed_ns_(std::clamp<TimeNs>(initial_rtt_ns, 1, kMaxRttNs)),
      variance_ns_(smoothed_ns_ / 2) {}

void RttEstimator::sample(TimeNs latest_rtt_ns, TimeNs ack_delay_ns) noexcept {
  latest_ns_ = std::clamp<TimeNs>(latest_rtt_ns, 0, kMaxRttNs);
  ack_delay_ns = std::clamp<TimeNs>(ack_delay_ns, 0, kMaxRttNs);
  if (!has_sample_) {
    has_sample_ = true;
    min_ns_ = latest_ns_;
    smoothed_ns_ = latest_ns_;
    variance_ns_ = latest_ns_ / 2;
    return;
  }
  min_ns_ = std::min(min_ns_, latest_ns_);
  // The peer's delay is subtracted only if the rest is not below the smallest RTT.
  TimeNs adjusted_ns = latest_ns_;
  if (latest_ns_ >= min_ns_ + ack_delay_ns) adjusted_ns -= ack_delay_ns;
  const TimeNs deviation_ns =
      std::max(smoothed_ns_, adjusted_ns) - std::min(smoothed_ns_, adjusted_ns);
  variance_ns_ = (3 * variance_ns_ + deviation_ns) / 4;
  smoothed_ns_ = (7 * smoothed_ns_ + adjusted_ns) / 8;
  require(smoothed_ns_ >= 0 && variance_ns_ >= 0, "times between two hosts are not negative");
}

}  // namespace gradwire::transport
