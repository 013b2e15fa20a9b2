// SPDX-License-Identifier: BSD-3-Clause
#include "lane/port_share.h"

#include <algorithm>
#include <limits>

#include "base/require.h"

namespace gradwire::lane {

PortShare::PortShare(std::uint64_t rate_bps, std::size_t slots)
    : pacer_(rate_bps, 0), deficits_(slots, 0) {}

std::size_t PortShare::packets_allowed(std::size_t slot, TimeNs now,
                                       std::uint32_t packet_bytes) noexcept {
  if (!paced()) return std::numeric_limits<std::size_t>::max();
  require(slot < deficits_.size() && packet_bytes > 0, "a group that asks has a slot, and packets");
  // A slot that the port's rate stopped in the middle of its turn goes on first.
  if (turn_taken_ && turn_ != slot) return 0;
  if (!turn_taken_) {
    turn_taken_ = true;
    turn_ = slot;
    deficits_[slot] += std::max(kQuantumBytes, packet_bytes);
  }
  packet_bytes_ = packet_bytes;
  const std::uint64_t by_turn = deficits_[slot] / packet_bytes;
  const std::uint64_t by_rate = pacer_.available_bytes(now) / packet_bytes;
  next_ = by_rate == 0 ? pacer_.time_for(now, packet_bytes) : kNever;
  return static_cast<std::size_t>(std::min(by_turn, by_rate));
}

void PortShare::on_asked(std::size_t slot, TimeNs now, std::size_t allowed, std::size_t sent,
                         std::uint64_t bytes) noexcept {
  if (!paced()) return;
  require(sent <= allowed, "a group sends no more packets than it was allowed");
  on_sent(now, bytes);
  if (!turn_taken_ || turn_ != slot) return;
  deficits_[slot] -= std::min(deficits_[slot], bytes);
  if (sent < allowed) {
    // It has no more to send, and loses the rest of its turn.
    deficits_[slot] = 0;
    turn_taken_ = false;
  } else if (deficits_[slot] < packet_bytes_) {
    // Its turn is used up; what is left is less than a packet, and is kept for the next turn.
    turn_taken_ = false;
  }
}

void PortShare::on_sent(TimeNs now, std::uint64_t bytes) noexcept {
  if (!paced() || bytes == 0) return;
  pacer_.on_sent(now, static_cast<std::uint32_t>(bytes));
}

void PortShare::forget(std::size_t slot) noexcept {
  if (slot >= deficits_.size()) return;
  deficits_[slot] = 0;
  if (turn_ == slot) turn_taken_ = false;
  next_ = kNever;
}

}  // namespace gradwire::lane
