// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The interface between a sender and its congestion controller. One lane owns a controller; no
/// call allocates; time is a parameter.
#pragma once

#include <cstdint>
#include <memory>

#include "base/types.h"

namespace gradwire::transport {

class CongestionController {
 public:
  virtual ~CongestionController() = default;
  /// Bytes that may be in flight.
  [[nodiscard]] virtual std::uint64_t window_bytes() const noexcept = 0;
  virtual void on_packet_sent(TimeNs now, std::uint32_t bytes) noexcept = 0;
  /// `ce_packets`: newly reported with CE by this acknowledgement.
  virtual void on_ack(TimeNs now, std::uint64_t acked_bytes, std::uint32_t ce_packets,
                      TimeNs latest_rtt_ns) noexcept = 0;
  virtual void on_loss(TimeNs now, std::uint64_t lost_bytes) noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

/// `static`: a fixed window; the rate is the pacer's. For links whose capacity is known.
[[nodiscard]] std::unique_ptr<CongestionController> make_static_controller(
    std::uint64_t window_bytes);

}  // namespace gradwire::transport
