// SPDX-License-Identifier: BSD-3-Clause
// After Swift (SIGCOMM 2020), algorithm 1; doc/congestion.md says in words what is done here.
#include <algorithm>
#include <cmath>

#include "base/require.h"
#include "transport/congestion.h"
#include "transport/round.h"

namespace gradwire::transport {
namespace {

constexpr double kBeta = 0.8;            // multiplicative decrease per share of excess delay
constexpr double kMaxDecrease = 0.5;     // at most this much at once
constexpr double kScalingPackets = 100;  // windows above it get no longer target
constexpr std::uint64_t kInitialWindowPackets = 10;

class SwiftController final : public CongestionController {
 public:
  explicit SwiftController(const CongestionConfig& config)
      : packet_(static_cast<double>(config.packet_bytes)),
        max_(std::max(static_cast<double>(config.max_window_bytes), packet_)),
        base_(static_cast<double>(config.swift_target_ns)),
        window_(initial()) {
    require(config.packet_bytes > 0, "a window is counted in packets");
  }

  [[nodiscard]] std::uint64_t window_bytes() const noexcept override {
    return static_cast<std::uint64_t>(window_);
  }
  [[nodiscard]] const char* name() const noexcept override {
    return name_of(CongestionKind::kSwift);
  }

  void on_packet_sent(TimeNs, std::uint32_t bytes) noexcept override { round_.on_sent(bytes); }

  void on_ack(TimeNs now, std::uint64_t acked_bytes, std::uint32_t,
              TimeNs delay_ns) noexcept override {
    round_.on_gone(acked_bytes);
    (void)round_.ended();
    if (delay_ns > 0) delay_ns_ = delay_ns;
    const auto delay = static_cast<double>(delay_ns_);
    const double target = target_ns();
    if (delay <= target) {
      if (round_.uses(window_bytes())) grow(static_cast<double>(acked_bytes));
      return;
    }
    // An acknowledgement without a sample brings no news of the queue.
    if (delay_ns == 0) return;
    starting_ = false;
    decrease(now, std::max(1 - kBeta * (delay - target) / delay, 1 - kMaxDecrease));
  }

  void on_loss(TimeNs now, std::uint64_t lost_bytes) noexcept override {
    round_.on_gone(lost_bytes);
    starting_ = false;
    decrease(now, 1 - kMaxDecrease);
  }

  void restart() noexcept override {
    window_ = initial();
    delay_ns_ = 0;
    starting_ = true;
  }

 private:
  [[nodiscard]] double initial() const noexcept {
    return std::min(kInitialWindowPackets * packet_, max_);
  }
  [[nodiscard]] double target_ns() const noexcept {
    const double a = base_ / (1 - 1 / std::sqrt(kScalingPackets));
    const double scaling =
        a / std::sqrt(std::max(window_ / packet_, 1.0)) - a / std::sqrt(kScalingPackets);
    return base_ + std::clamp(scaling, 0.0, base_);
  }

  void grow(double bytes) noexcept {
    window_ = std::min(window_ + (starting_ ? bytes : packet_ * bytes / window_), max_);
  }

  void decrease(TimeNs now, double factor) noexcept {
    require(factor > 0 && factor <= 1, "a window is decreased by a part of it");
    if (now < next_decrease_) return;
    next_decrease_ = now + delay_ns_;
    window_ = std::max(window_ * factor, packet_);
  }

  double packet_;
  double max_;
  double base_;
  double window_;
  Round round_;
  TimeNs delay_ns_ = 0;  ///< the newest sample
  TimeNs next_decrease_ = 0;
  bool starting_ = true;
};

}  // namespace

std::unique_ptr<CongestionController> make_swift_controller(const CongestionConfig& config) {
  return std::make_unique<SwiftController>(config);
}

}  // namespace gradwire::transport
