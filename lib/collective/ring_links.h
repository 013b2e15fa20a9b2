// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The links of a ring, from a shard's configuration: one to the next rank, one to the rank before.
/// With shape_ring.h it is all that knows what is up and down. Pure; any thread.
#pragma once

#include "collective/link_end.h"
#include "collective/shape_ring.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

/// @param index  below link_count(config.nranks).
[[nodiscard]] inline LinkAddress ring_link(const ShardConfig& config, LinkIndex index) noexcept {
  LinkAddress link;
  link.index = index;
  link.lane = config.lane;
  if (index == kDownstream) {
    link.rank = downstream_rank(config.rank, config.nranks);
    link.flags = wire::kFlagFromUpstream;
    link.gets_data = true;
    link.own_id = config.sender_connection_id;
    link.incarnation = config.downstream_incarnation;
    link.token = config.downstream_token;
    link.ip = config.downstream_ip;
    link.frame = config.to_downstream;
  } else {
    link.rank = upstream_rank(config.rank, config.nranks);
    link.brings_data = true;
    link.own_id = config.receiver_connection_id;
    link.incarnation = config.upstream_incarnation;
    link.token = config.upstream_token;
    link.ip = config.upstream_ip;
    link.frame = config.to_upstream;
  }
  return link;
}

/// Before a packet that carries data: Ethernet, IP and UDP.
[[nodiscard]] inline std::size_t data_frame_bytes(const ShardConfig& config) noexcept {
  return config.to_downstream.bytes();
}

}  // namespace gradwire::collective
