// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How many chunks a lane of a group may have pulled that have not come, whatever they are of: the
/// window of the group's congestion controller, which sits at the receiver here, where senders
/// meet. OffRing has one, and lends it to all that pull. One lane owns it; it allocates at
/// construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/require.h"
#include "collective/shard_config.h"
#include "transport/congestion.h"

namespace gradwire::collective {

class PullWindow {
 public:
  explicit PullWindow(const ShardConfig& config)
      : packet_bytes_(full_packet_wire_bytes(config)),
        controller_(transport::make_controller({.kind = config.congestion,
                                                .max_window_bytes = window_bytes(config),
                                                .packet_bytes = packet_bytes_,
                                                .swift_target_ns = config.swift_target_ns})) {}

  /// Chunks that may be pulled now; with none on their way one at least.
  [[nodiscard]] std::uint64_t room() const noexcept {
    const std::uint64_t most =
        std::max<std::uint64_t>(controller_->window_bytes() / packet_bytes_, 1);
    return most > chunks_ ? most - chunks_ : 0;
  }
  void pulled(TimeNs now, std::uint64_t chunks) noexcept {
    chunks_ += chunks;
    controller_->on_packet_sent(now, static_cast<std::uint32_t>(chunks) * packet_bytes_);
  }
  /// @param delay_ns  from its pull to its arrival; 0: not known.
  void came(TimeNs now, bool ecn_ce, TimeNs delay_ns) noexcept {
    forget(1);
    controller_->on_ack(now, packet_bytes_, ecn_ce ? 1 : 0, delay_ns);
  }
  /// They are pulled again.
  void lost(TimeNs now, std::uint64_t chunks) noexcept {
    controller_->on_loss(now, chunks * packet_bytes_);
  }
  /// Nobody waits for them any more.
  void forget(std::uint64_t chunks) noexcept {
    require(chunks_ >= chunks, "chunks that come were pulled");
    chunks_ -= chunks;
  }

 private:
  std::uint32_t packet_bytes_;
  std::unique_ptr<transport::CongestionController> controller_;
  std::uint64_t chunks_ = 0;
};

}  // namespace gradwire::collective
