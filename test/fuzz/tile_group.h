// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Of which group the shard is that the target `tiles` fuzzes, as the first bytes of an input say.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collective/shard.h"
#include "fuzz/hostile_peers.h"
#include "fuzz/input.h"

namespace gradwire::fuzz {

/// Of a group whose ranks differ in size; it stays for the life of the program.
inline const ProcessLayout* uneven_layout(std::uint16_t nranks) {
  static std::map<std::uint16_t, ProcessLayout> layouts;
  std::vector<std::uint16_t> ranks;
  for (std::uint16_t rank = nranks; rank-- > 0;) ranks.insert(ranks.end(), 1 + rank % 3, rank);
  return &layouts.try_emplace(nranks, *ProcessLayout::make(ranks, nranks)).first->second;
}

// Bits of the first byte, beside those that say how many ranks there are.
inline constexpr std::uint8_t kFormats = 4;
inline constexpr std::uint8_t kHosts = 16;       ///< ranks without members
inline constexpr std::uint8_t kHostItself = 32;  ///< this one is one

inline std::uint16_t neighbor(const collective::ShardConfig& config, bool next) {
  if (config.folds_only()) return collective::attached_rank(config.rank, config.nranks);
  return next ? collective::downstream_rank(config.rank, config.nranks)
              : collective::upstream_rank(config.rank, config.nranks);
}

inline collective::ShardConfig tile_group_from(Input& input) {
  collective::ShardConfig config;
  config.key = {7, 1};
  const std::uint8_t size = input.u8();
  config.nranks = static_cast<std::uint16_t>(2 + size % 4);
  if ((size & kHosts) != 0) config.folding_ranks = (size & 64) != 0 ? 2 : 1;
  config.rank = static_cast<std::uint16_t>(input.pick(config.nranks));
  config.member_count = static_cast<std::uint16_t>(1 + input.pick(2));
  config.lanes = static_cast<std::uint8_t>(1 + input.pick(2));
  config.lane = static_cast<std::uint8_t>(input.pick(config.lanes));
  const std::uint8_t room = input.u8();
  // A block of `int8` fits.
  config.payload_bytes = ((size & kFormats) != 0 ? 320 : 64) * (1u + (room & 1));
  config.tiles.used = true;
  config.tiles.tile_bytes = 16u * (1u + (room >> 1 & 3)) * config.payload_bytes;
  config.tiles.scratch_bytes = (room & 8) != 0 ? 1024 : 65'536;
  config.packet_pool = (room & 0x40) != 0 ? small_pool : large_pool;
  if ((room & 0x80) != 0) {
    config.layout = uneven_layout(config.nranks);
    if (!config.folds_only()) {
      config.member_count = config.processes().members_of(config.rank);
    }
  }
  // Small ops wait for the same ranks in another way.
  config.direct.op_bytes = (room & 0x20) != 0 ? 1024 : 0;
  if (config.folding_ranks != 0) {
    config.direct.op_bytes = config.direct.two_step_bytes = 1024;
    std::vector<std::uint16_t> owners(1, config.nranks);
    config.direct.owners =
        std::make_shared<const collective::Owners>(std::move(owners), config.all_ranks());
    // Not known, or those without members own most.
    std::vector<std::uint32_t> rates(config.all_ranks(), (size & 128) != 0 ? 10 : 0);
    for (std::uint16_t rank = config.nranks; (size & 128) != 0 && rank < rates.size(); ++rank) {
      rates[rank] = 40;
    }
    config.tiles.shares = std::make_shared<const collective::TileShares>(
        *collective::TileShares::make(rates, config.nranks));
    if ((size & kHostItself) != 0) {
      config.rank = static_cast<std::uint16_t>(config.nranks + config.rank % config.folding_ranks);
      config.member_count = 1;
    }
  }
  config.control_pool = control_pool;
  config.window_packets = 2u + input.pick(40);
  config.max_active_ops = 1u << input.pick(5);
  config.max_chunks = 1024;
  config.incarnation = kIncarnation + config.rank;
  config.congestion = static_cast<transport::CongestionKind>(room >> 4 & 1);
  config.timeouts.silence_ns = 2'000'000'000;
  add_peers(config, neighbor(config, false), neighbor(config, true));
  return config;
}

}  // namespace gradwire::fuzz
