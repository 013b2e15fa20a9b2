// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Received payloads in a GPU's memory, whose CRCs the GPU computes. A received frame is a header
/// in host memory, followed by a payload mbuf. The header is decoded and freed; the payload alone
/// goes on. Nothing is acknowledged, and no chunk claimed, before the GPU has made the payload's
/// CRC: a packet takes the checks of ring_receive.cc twice, before and after. One lane owns it; it
/// allocates at construction only.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <vector>

#include "collective/fixed_queue.h"
#include "collective/ops/fold_queue.h"
#include "collective/ring/early_packets.h"
#include "collective/shapes/place.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// A packet of data on its way through the checks. `mbuf` is the frame's; while its CRC is made by
/// a GPU, and after, the payload's.
struct IncomingPacket : EarlyPacket {
  std::uint32_t bytes = 0;
  std::uint64_t packet_number = 0;
  bool ecn_ce = false;
};

class PayloadChecks {
 public:
  /// @param places  the fold queue's; 0 if the CPU reads payloads.
  explicit PayloadChecks(std::size_t places) : checks_(places), right_(places) {}

  /// Has the GPU compute the CRC of a received payload. Takes the frame unless it returns a drop.
  /// @param received  whose `mbuf` is the frame: a header, and behind it the payload's mbuf.
  /// @param[out] may_be_done  something may be in the fold queue to be taken.
  [[nodiscard]] wire::Drop start(const IncomingPacket& received, FoldQueue& folds,
                                 bool& may_be_done) noexcept;
  /// The packet that was checked: its payload is the caller's if it is not kept by keep().
  [[nodiscard]] const IncomingPacket& packet(std::size_t place) const noexcept {
    return checks_[place];
  }
  /// Its payload is right: take() gives it. @return whether there was room.
  [[nodiscard]] bool keep(const IncomingPacket& packet) noexcept { return right_.push(packet); }
  [[nodiscard]] bool empty() const noexcept { return right_.empty(); }
  [[nodiscard]] IncomingPacket take() noexcept;
  void free_all() noexcept;

 private:
  std::vector<IncomingPacket> checks_;  ///< by place in the fold queue
  FixedQueue<IncomingPacket> right_;    ///< to be received
};

}  // namespace gradwire::collective
