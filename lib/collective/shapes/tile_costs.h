// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether a large op without a wire format takes less time by tiles than by the ring
/// (doc/protocol/tiles.md, The choice): a model of both, of which all ranks make the same from the
/// group's table and the call. Whole picoseconds; division rounds down. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "collective/tiles/tile_shares.h"

namespace gradwire::collective {

/// Counts up whenever the model chooses otherwise than before. All ranks have the same.
inline constexpr std::uint32_t kTileModel = 1;

/// What a group's table says of time. Made once for each group.
class TileCosts {
 public:
  /// Rank 0's configuration (transport.packet_ns, byte_ps, hop_ns).
  struct Endpoint {
    std::uint16_t packet_ns = 0;  ///< for each packet sent, and for each received
    std::uint16_t byte_ps = 0;    ///< a byte copied or folded
    std::uint32_t hop_ns = 0;     ///< from wire to wire
  };

  /// @param rates   [all ranks], none of them 0: each rank's rate, the sum of its addresses', in
  ///                units of 100 Mbit/s.
  /// @param nranks  that have members, two at least; the others are behind them.
  /// @param shares  of all ranks; nullptr: each rank owns its segment of the ring.
  /// @param lanes   of the group.
  TileCosts(const Endpoint& endpoint, std::span<const std::uint32_t> rates, std::uint16_t nranks,
            const TileShares* shares, std::uint8_t lanes) noexcept;

  /// @param bytes          of the whole op.
  /// @param payload_bytes  of a packet.
  /// @return whether the op is to go by tiles: they save an eighth of the ring's time at least,
  /// since a model is only one.
  [[nodiscard]] bool tiles_are_faster(Collective collective, std::uint64_t bytes,
                                      std::uint32_t payload_bytes) const noexcept;

  // Standard C++ has no such type; both compilers do.
  __extension__ using Picoseconds = unsigned __int128;
  [[nodiscard]] Picoseconds ring_time(Collective collective, std::uint64_t bytes,
                                      std::uint32_t payload_bytes) const noexcept;
  [[nodiscard]] Picoseconds tiles_time(Collective collective, std::uint64_t bytes,
                                       std::uint32_t payload_bytes) const noexcept;

  friend bool operator==(const TileCosts&, const TileCosts&) = default;

 private:
  [[nodiscard]] Picoseconds hop() const noexcept;
  [[nodiscard]] Picoseconds packet() const noexcept { return Picoseconds{packet_ns_} * 1000; }

  std::uint16_t packet_ns_, byte_ps_;
  std::uint32_t hop_ns_;
  std::uint16_t nranks_;
  std::uint8_t lanes_;
  std::uint32_t slowest_;  ///< rate of the slowest rank with members
  /// Of an all-reduce by tiles, the rank whose port is busy longest: it carries so much of so much
  /// each way, at that rate.
  std::uint64_t carried_, of_;
  std::uint32_t at_;
};

}  // namespace gradwire::collective
