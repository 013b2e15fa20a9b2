// SPDX-License-Identifier: BSD-3-Clause
#include "transport/pacer.h"

#include <algorithm>
#include <limits>

#include "base/require.h"
#include "transport/time_math.h"

namespace gradwire::transport {
namespace {

constexpr std::uint64_t kUnitsPerByte = 8'000'000'000;  // bits per byte x nanoseconds per second
constexpr std::uint32_t kMinDefaultBurstBytes = 2 * 9216;
constexpr std::uint64_t kDefaultBurstsPerSecond = 1000;
// 146 years; with it the product with any rate stays below 2^127 by more than any bucket holds.
constexpr TimeNs kMaxFillNs = TimeNs{1} << 62;

std::uint32_t burst_for(std::uint64_t rate_bps, std::uint32_t configured_bytes) noexcept {
  if (configured_bytes != 0) return configured_bytes;
  const std::uint64_t bytes = rate_bps / 8 / kDefaultBurstsPerSecond;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      bytes, kMinDefaultBurstBytes, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

Pacer::Pacer(std::uint64_t rate_bps, std::uint32_t burst_bytes) noexcept
    : rate_bps_(rate_bps),
      configured_burst_bytes_(burst_bytes),
      burst_bytes_(burst_for(rate_bps, burst_bytes)),
      units_(static_cast<Units>(burst_bytes_) * kUnitsPerByte) {
  require(burst_bytes_ > 0, "a bucket holds something");
}

Pacer::Units Pacer::units_at(TimeNs now) const noexcept {
  const TimeNs fill_ns = std::min(elapsed(updated_at_, now), kMaxFillNs);
  const Units filled = units_ + static_cast<Units>(rate_bps_) * fill_ns;
  return std::min(filled, static_cast<Units>(burst_bytes_) * kUnitsPerByte);
}

Pacer::Units Pacer::units_needed(std::uint32_t bytes) const noexcept {
  return static_cast<Units>(std::min(bytes, burst_bytes_)) * kUnitsPerByte;
}

TimeNs Pacer::time_for(TimeNs now, std::uint32_t bytes) const noexcept {
  if (rate_bps_ == 0) return now;
  const Units missing = units_needed(bytes) - units_at(now);
  if (missing <= 0) return now;
  const Units wait_ns = (missing + rate_bps_ - 1) / rate_bps_;
  // If the clock went back, no tokens come until it is past its old value.
  const TimeNs from = std::max(now, updated_at_);
  return wait_ns > kMaxFillNs ? kNever : later(from, static_cast<TimeNs>(wait_ns));
}

std::uint64_t Pacer::available_bytes(TimeNs now) const noexcept {
  if (rate_bps_ == 0) return std::numeric_limits<std::uint64_t>::max();
  const Units units = units_at(now);
  return units <= 0 ? 0 : static_cast<std::uint64_t>(units / kUnitsPerByte);
}

void Pacer::take(TimeNs now, std::uint32_t bytes) noexcept {
  units_ = units_at(now) - static_cast<Units>(bytes) * kUnitsPerByte;
  updated_at_ = std::max(updated_at_, now);
}

void Pacer::set_rate(TimeNs now, std::uint64_t rate_bps) noexcept {
  // Before, nothing was paced and nothing counted: it starts with a full bucket.
  const bool was_paced = rate_bps_ != 0;
  const Units saved = units_at(now);
  rate_bps_ = rate_bps;
  burst_bytes_ = burst_for(rate_bps, configured_burst_bytes_);
  const Units full = static_cast<Units>(burst_bytes_) * kUnitsPerByte;
  units_ = was_paced ? std::clamp(saved, -full, full) : full;
  updated_at_ = std::max(updated_at_, now);
}

}  // namespace gradwire::transport
