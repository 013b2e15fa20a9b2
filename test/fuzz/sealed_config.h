// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How the shards of SealedGroup are configured.
#pragma once

#include <cstdint>

#include "collective/shard.h"
#include "fuzz/hostile_peers.h"

namespace gradwire::fuzz {

inline constexpr GroupKey kSealedGroup = {7, 1};

/// But for lanes, tokens and keys.
/// @param shape  bits: payloads of 128 bytes, and shapes that ops have.
inline collective::ShardConfig sealed_config(std::uint16_t rank, std::uint16_t nranks,
                                             std::uint8_t shape, std::uint32_t window) {
  collective::ShardConfig config;
  config.key = kSealedGroup;
  config.nranks = nranks;
  config.rank = rank;
  config.payload_bytes = 64u * (1 + (shape & 1));
  config.exchange_bytes = (shape & 2) != 0 ? 1024 : 0;
  config.direct.op_bytes = (shape & 4) != 0 ? 1024 : 0;
  config.direct.two_step_bytes = (shape & 12) == 12 ? 1024 : 0;
  config.tiles.used = (shape & 16) != 0;
  config.tiles.tile_bytes = 16u * config.payload_bytes;
  config.max_active_ops = 4;
  config.max_chunks = 256;
  config.window_packets = config.transit_packets = window;
  config.eager_packets = 4;
  config.incarnation = kIncarnation + rank;
  config.packet_pool = large_pool;
  config.control_pool = control_pool;
  config.timeouts.silence_ns = 2'000'000'000;
  config.timeouts.ping_interval_ns = 20'000'000;
  add_peers(config, collective::upstream_rank(rank, nranks),
            collective::downstream_rank(rank, nranks));
  return config;
}

}  // namespace gradwire::fuzz
