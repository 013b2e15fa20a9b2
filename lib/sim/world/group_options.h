// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A group of simulated hosts, and what follows from its options alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/shard_config.h"
#include "sim/world/network.h"

namespace gradwire::sim {

struct GroupOptions {
  GroupKey key{0x1234567890abcdef, 7};
  std::vector<HostId> hosts;         ///< [all ranks], each once
  std::uint16_t folding_ranks = 0;   ///< so many of the last have no members
  std::uint16_t members = 1;         ///< of each rank; if there are `ranks`, of the largest
  std::vector<std::uint16_t> ranks;  ///< [processes]: the rank of each; empty: rank by rank
  std::uint8_t lanes = 1;
  std::vector<HostId> owners;  ///< that sum ops in two steps; if none is in the group, all do
  /// By host: of its ports, as collective::TileShares has them; empty: none is known.
  std::vector<std::uint32_t> rates;
  /// Ops without a wire format go by tiles if that is faster by this and `rates`, which are then
  /// known; nothing: all may that are not small.
  std::optional<collective::TileCosts::Endpoint> endpoint;
  /// Whether packets are sealed, by the real schedule and cipher.
  security::Mode mode = security::Mode::kOff;
  unsigned generation_bits = security::kGenerationBits;
  TimeNs key_delay_ns = 0;        ///< from when a lane wants the next key until it has it
  collective::ShardConfig shard;  ///< payload, window, timeouts, ...: what is not of one rank
  TimeNs fan_out_ns = 50'000;     ///< until a rank's other lanes hear of an abort
};

/// How many ranks have members.
[[nodiscard]] inline std::uint16_t ring_ranks(const GroupOptions& options) noexcept {
  return static_cast<std::uint16_t>(options.hosts.size() - options.folding_ranks);
}
/// [processes]: the rank of each, in any case.
[[nodiscard]] std::vector<std::uint16_t> ranks_of(const GroupOptions& group);
/// nullptr: all ranks.
[[nodiscard]] std::shared_ptr<const collective::Owners> owners_of(const GroupOptions& group);
/// Of all-reduces by tiles. nullptr: each rank its segment of the ring.
[[nodiscard]] std::shared_ptr<const collective::TileShares> tile_shares_of(
    const GroupOptions& group);
/// Whether an op without a wire format goes by tiles. nullptr: all may that are not small.
[[nodiscard]] std::shared_ptr<const collective::TileCosts> tile_costs_of(const GroupOptions& group);

}  // namespace gradwire::sim
