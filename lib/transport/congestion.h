// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The interface between a sender and its congestion controller, and the controllers that there
/// are; doc/congestion.md is their specification. One lane owns a controller; no call allocates
/// but the making; time is a parameter.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/types.h"

namespace gradwire::transport {

class CongestionController {
 public:
  virtual ~CongestionController() = default;
  /// Bytes that may be in flight.
  [[nodiscard]] virtual std::uint64_t window_bytes() const noexcept = 0;
  virtual void on_packet_sent(TimeNs now, std::uint32_t bytes) noexcept = 0;
  /// `acked_bytes`: that were in flight. `ce_packets`: newly reported with CE by this
  /// acknowledgement. `delay_ns`: of the exchange, without what the peer waited; 0 where this
  /// acknowledgement tells none.
  virtual void on_ack(TimeNs now, std::uint64_t acked_bytes, std::uint32_t ce_packets,
                      TimeNs delay_ns) noexcept = 0;
  virtual void on_loss(TimeNs now, std::uint64_t lost_bytes) noexcept = 0;
  /// Packets take another path from now on, of which nothing is known.
  virtual void restart() noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

enum class CongestionKind : std::uint8_t { kStatic, kDctcp, kSwift };
inline constexpr std::array kCongestionKinds = {CongestionKind::kStatic, CongestionKind::kDctcp,
                                                CongestionKind::kSwift};

/// The controller's name in the configuration and in the status.
[[nodiscard]] const char* name_of(CongestionKind kind) noexcept;
[[nodiscard]] std::optional<CongestionKind> parse_congestion(std::string_view name) noexcept;

struct CongestionConfig {
  CongestionKind kind = CongestionKind::kStatic;
  std::uint64_t max_window_bytes = 0;  ///< that of `static`; the others stay below
  std::uint32_t packet_bytes = 0;      ///< a full packet on the wire
  TimeNs swift_target_ns = 100'000;
};

[[nodiscard]] std::unique_ptr<CongestionController> make_controller(const CongestionConfig& config);

/// `static`: a fixed window; the rate is the pacer's. For links whose capacity is known.
[[nodiscard]] std::unique_ptr<CongestionController> make_static_controller(
    std::uint64_t window_bytes);
/// `dctcp`: RFC 8257.
[[nodiscard]] std::unique_ptr<CongestionController> make_dctcp_controller(
    const CongestionConfig& config);
/// `swift`: a target for the delay.
[[nodiscard]] std::unique_ptr<CongestionController> make_swift_controller(
    const CongestionConfig& config);

}  // namespace gradwire::transport
