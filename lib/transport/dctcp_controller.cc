// SPDX-License-Identifier: BSD-3-Clause
// RFC 8257; doc/congestion.md says in words what is done here.
#include <algorithm>

#include "base/require.h"
#include "transport/congestion.h"
#include "transport/round.h"

namespace gradwire::transport {
namespace {

constexpr double kGain = 1.0 / 16;  // RFC 8257 section 4.2: g
constexpr std::uint64_t kInitialPackets = 10;
constexpr std::uint64_t kMinPackets = 2;
constexpr double kNoThreshold = 1e18;

class DctcpController final : public CongestionController {
 public:
  explicit DctcpController(const CongestionConfig& config)
      : packet_(config.packet_bytes),
        max_(std::max<std::uint64_t>(config.max_window_bytes, kMinPackets * packet_)),
        window_(initial()) {
    require(config.packet_bytes > 0, "a window is counted in packets");
  }

  [[nodiscard]] std::uint64_t window_bytes() const noexcept override {
    return static_cast<std::uint64_t>(window_);
  }
  [[nodiscard]] const char* name() const noexcept override {
    return name_of(CongestionKind::kDctcp);
  }

  void on_packet_sent(TimeNs, std::uint32_t bytes) noexcept override { round_.on_sent(bytes); }

  void on_ack(TimeNs, std::uint64_t acked_bytes, std::uint32_t ce_packets,
              TimeNs) noexcept override {
    round_.on_gone(acked_bytes);
    acked_ += acked_bytes;
    marked_ = std::min(marked_ + ce_packets * packet_, std::max(acked_, packet_));
    if (ce_packets > 0 && window_ < threshold_) threshold_ = window_;
    const std::uint64_t unmarked = acked_bytes - std::min(acked_bytes, ce_packets * packet_);
    if (round_.uses(window_bytes())) grow(static_cast<double>(unmarked));
    if (round_.ended()) end_round();
  }

  void on_loss(TimeNs, std::uint64_t lost_bytes) noexcept override {
    round_.on_gone(lost_bytes);
    if (!reduced_) reduce(0.5);
    reduced_ = true;
  }

  void restart() noexcept override {
    window_ = initial();
    threshold_ = kNoThreshold;
    alpha_ = 1;
    acked_ = marked_ = 0;
    reduced_ = false;
  }

 private:
  [[nodiscard]] double initial() const noexcept {
    return static_cast<double>(std::min<std::uint64_t>(kInitialPackets * packet_, max_));
  }

  void grow(double bytes) noexcept {
    window_ += window_ < threshold_ ? bytes : static_cast<double>(packet_) * bytes / window_;
    window_ = std::min(window_, static_cast<double>(max_));
  }

  void reduce(double factor) noexcept {
    require(factor > 0 && factor <= 1, "a window is reduced by a part of it");
    window_ = std::max(window_ * factor, static_cast<double>(kMinPackets * packet_));
    threshold_ = window_;
  }

  void end_round() noexcept {
    if (acked_ > 0) {
      const double share =
          std::min(1.0, static_cast<double>(marked_) / static_cast<double>(acked_));
      alpha_ = (1 - kGain) * alpha_ + kGain * share;
    }
    if (marked_ > 0 && !reduced_) reduce(1 - alpha_ / 2);
    acked_ = marked_ = 0;
    reduced_ = false;
  }

  std::uint64_t packet_;
  std::uint64_t max_;
  double window_;
  double threshold_ = kNoThreshold;  ///< below it, slow start
  double alpha_ = 1;                 ///< RFC 8257 section 4.2: the first mark halves
  Round round_;
  std::uint64_t acked_ = 0;   ///< bytes, in this round
  std::uint64_t marked_ = 0;  ///< of these
  bool reduced_ = false;      ///< by a loss in this round
};

}  // namespace

std::unique_ptr<CongestionController> make_dctcp_controller(const CongestionConfig& config) {
  return std::make_unique<DctcpController>(config);
}

}  // namespace gradwire::transport
