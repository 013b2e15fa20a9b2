// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Rounds, and whether a window is used: what dctcp and swift share (doc/congestion.md). Private to
/// lib/transport; one lane owns it; plain state.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradwire::transport {

class Round {
 public:
  void on_sent(std::uint64_t bytes) noexcept {
    sent_ += bytes;
    most_in_flight_ = std::max(most_in_flight_, in_flight());
  }
  void on_gone(std::uint64_t bytes) noexcept { gone_ = std::min(gone_ + bytes, sent_); }
  [[nodiscard]] std::uint64_t in_flight() const noexcept { return sent_ - gone_; }
  /// @return whether half of `window_bytes` was in flight in this round or the one before.
  [[nodiscard]] bool uses(std::uint64_t window_bytes) const noexcept {
    return std::max(most_in_flight_, most_in_flight_before_) * 2 >= window_bytes;
  }
  /// @return whether everything sent before the round began is acknowledged or lost; then the next
  /// begins.
  bool ended() noexcept {
    if (gone_ < end_) return false;
    end_ = sent_;
    most_in_flight_before_ = most_in_flight_;
    most_in_flight_ = in_flight();
    return true;
  }

 private:
  std::uint64_t sent_ = 0;            ///< bytes, ever
  std::uint64_t gone_ = 0;            ///< of these, acknowledged or lost
  std::uint64_t end_ = 0;             ///< sent_ when the round began
  std::uint64_t most_in_flight_ = 0;  ///< in this round
  std::uint64_t most_in_flight_before_ = 0;
};

}  // namespace gradwire::transport
