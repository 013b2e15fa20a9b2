// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion.h"

namespace gradwire::transport {
namespace {

class StaticController final : public CongestionController {
 public:
  explicit StaticController(std::uint64_t window_bytes) : window_bytes_(window_bytes) {}

  [[nodiscard]] std::uint64_t window_bytes() const noexcept override { return window_bytes_; }
  // A link whose capacity is known teaches nothing: loss there is an accident, not a signal.
  void on_packet_sent(TimeNs, std::uint32_t) noexcept override {}
  void on_ack(TimeNs, std::uint64_t, std::uint32_t, TimeNs) noexcept override {}
  void on_loss(TimeNs, std::uint64_t) noexcept override {}
  void restart() noexcept override {}
  [[nodiscard]] const char* name() const noexcept override {
    return name_of(CongestionKind::kStatic);
  }

 private:
  std::uint64_t window_bytes_;
};

}  // namespace

std::unique_ptr<CongestionController> make_static_controller(std::uint64_t window_bytes) {
  return std::make_unique<StaticController>(window_bytes);
}

}  // namespace gradwire::transport
