// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Divides a port whose rate is set among the groups of a lane: one token bucket for the port's
/// share of this lane, and deficit round robin over the groups (M. Shreedhar and G. Varghese,
/// "Efficient fair queueing using deficit round robin", SIGCOMM 1995), so that each gets equally
/// many bytes whatever the sizes of their packets. What must be sent at once (acknowledgements,
/// aborts) is not delayed but counted, and data is delayed accordingly.
///
/// One lane owns it; plain state, time is a parameter; nothing allocates after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "transport/pacer.h"

namespace gradwire::lane {

class PortShare {
 public:
  /// `rate_bps` is 0 if the port is not paced: every group may send at any time. `slots`: the
  /// largest number of groups.
  PortShare(std::uint64_t rate_bps, std::size_t slots);

  [[nodiscard]] bool paced() const noexcept { return pacer_.rate_bps() != 0; }
  [[nodiscard]] std::uint64_t rate_bps() const noexcept { return pacer_.rate_bps(); }
  /// The largest burst that exceeds the rate.
  [[nodiscard]] std::uint32_t burst_bytes() const noexcept { return pacer_.burst_bytes(); }

  /// The slot whose turn it is: a round calls it first, then those after it.
  [[nodiscard]] std::size_t turn() const noexcept { return turn_; }
  /// How many packets of `packet_bytes` (on the wire) `slot` may send in this round.
  [[nodiscard]] std::size_t packets_allowed(std::size_t slot, TimeNs now,
                                            std::uint32_t packet_bytes) noexcept;
  /// Call it after the slot's turn: it was allowed `allowed` packets and sent `sent`, of `bytes` in
  /// all.
  void on_asked(std::size_t slot, TimeNs now, std::size_t allowed, std::size_t sent,
                std::uint64_t bytes) noexcept;
  /// Counts frames that were sent without asking packets_allowed().
  void on_sent(TimeNs now, std::uint64_t bytes) noexcept;
  /// The group was removed.
  void forget(std::size_t slot) noexcept;
  /// When a group that was refused may send; kNever if none was.
  [[nodiscard]] TimeNs next() const noexcept { return next_; }

 private:
  /// What a group may send in one turn: at least one packet of any size.
  static constexpr std::uint32_t kQuantumBytes = 9'728;

  transport::Pacer pacer_;
  std::vector<std::uint64_t> deficits_;  ///< [slots] bytes that are left of its turn
  std::size_t turn_ = 0;
  /// The slot whose turn it is has got its quantum, and may have used only a part of it.
  bool turn_taken_ = false;
  std::uint32_t packet_bytes_ = 0;  ///< of the slot that asked last
  TimeNs next_ = kNever;
};

}  // namespace gradwire::lane
