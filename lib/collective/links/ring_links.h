// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The links of a ring, from a shard's configuration: one to the next rank, one to the rank before;
/// with two ranks that is the same rank, and one link has both directions. With shape_ring.h it is
/// all that knows what is up and down. A rank without members has one link alone, with both
/// directions, to the rank on which it hangs, which has it as its last. A group for transfers alone
/// has two ranks and the one link, by which no data goes. Pure; any thread.
#pragma once

#include <algorithm>

#include "collective/links/link_end.h"
#include "collective/shapes/shape_ring.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

[[nodiscard]] inline std::size_t link_count(const ShardConfig& config) noexcept {
  if (config.folds_only()) return 1;
  return link_count(config.nranks) + (config.rank < config.folding_ranks ? 1 : 0);
}

/// Without what the link is for.
[[nodiscard]] inline LinkAddress link_to(const ShardConfig& config, std::uint16_t rank,
                                         const PeerAddress& peer) {
  LinkAddress link;
  link.rank = rank;
  link.own_rank = config.rank;
  link.lane = config.lane;
  link.group_tag = wire::group_tag(config.key);
  link.incarnation = peer.incarnation;
  link.tokens = peer.tokens;
  link.seals = config.seals.get();
  link.ip = peer.ip;
  link.frame = peer.frame;
  link.port = peer.port;
  link.others = peer.others;
  link.sources = peer.sources;
  return link;
}

/// To any rank, off the ring.
[[nodiscard]] inline LinkAddress link_to_peer(const ShardConfig& config, std::uint16_t rank) {
  LinkAddress link = link_to(config, rank, config.peers[rank]);
  link.box = link.ack_box = Outbox::kAny;
  return link;
}

/// To the rank without members that hangs on this one.
[[nodiscard]] inline LinkAddress link_to_attached(const ShardConfig& config, LinkIndex index) {
  LinkAddress link = link_to_peer(config, static_cast<std::uint16_t>(config.nranks + config.rank));
  link.index = index;
  link.gets_data = link.brings_data = true;
  link.role = LinkRole::kAttached;
  return link;
}

/// @param index  below link_count(config).
[[nodiscard]] inline LinkAddress ring_link(const ShardConfig& config, LinkIndex index) {
  if (index == link_count(config.nranks)) return link_to_attached(config, index);
  const bool gets_data = index == kDownstream;
  LinkAddress link =
      gets_data ? link_to(config,
                          config.folds_only() ? attached_rank(config.rank, config.nranks)
                                              : downstream_rank(config.rank, config.nranks),
                          config.downstream)
                : link_to(config, upstream_rank(config.rank, config.nranks), config.upstream);
  link.index = index;
  link.role = config.folds_only()      ? LinkRole::kHost
              : config.transfers.alone ? LinkRole::kQuiet
                                       : LinkRole::kRing;
  link.gets_data = gets_data;
  link.brings_data = config.folds_only() || index == upstream_link(config.nranks);
  link.box = link.gets_data ? Outbox::kDown : Outbox::kUp;
  link.ack_box = link.brings_data ? Outbox::kUp : Outbox::kDown;
  // What comes from the rank before comes the way that its data takes, acknowledgements too if it
  // is the next rank as well.
  if (!link.brings_data) return link;
  if (link.others.empty() || !link.gets_data) {
    link.ip = config.upstream.ip;
    return link;
  }
  // Each of two ranks may have paired the addresses in its own way.
  const auto add = [&link](const LinkPath& path) {
    const bool known = link.ip == path.ip ||
                       std::any_of(link.others.begin(), link.others.end(),
                                   [&](const LinkPath& other) { return other.ip == path.ip; });
    if (!known) link.others.push_back(path);
  };
  add({config.upstream.ip, config.upstream.frame, config.upstream.port});
  for (const LinkPath& path : config.upstream.others) add(path);
  return link;
}

/// Before a packet that carries data: Ethernet, IP and UDP.
[[nodiscard]] inline std::size_t data_frame_bytes(const ShardConfig& config) noexcept {
  return config.downstream.frame.bytes();
}

}  // namespace gradwire::collective
