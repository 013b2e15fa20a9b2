// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/peer_ends.h"

#include "collective/links/ring_links.h"

namespace gradwire::collective {

PeerEnds::PeerEnds(const ShardConfig& config, const Links& links, ShardCounters& counters)
    : ping_interval_ns_(config.timeouts.ping_interval_ns),
      tally_{counters.peer_path_moves, counters.peer_source_port_moves},
      peers_(needs_all_ranks(config) ? config.all_ranks() : 0) {
  for (std::uint16_t rank = 0; rank < ranks(); ++rank) {
    if (rank == config.rank || (config.folds_only() && rank >= config.nranks)) continue;
    Peer& peer = peers_[rank];
    for (const auto& link : links) {
      if (link->end.rank() != rank) continue;
      peer.end = &link->end;
      if (link->brings_data()) peer.ring_numbers = &link->receiver().transport();
    }
    if (peer.end == nullptr) {
      peer.own_end = std::make_unique<LinkEnd>(link_to_peer(config, rank));
      peer.end = peer.own_end.get();
    }
    peer.end->count_in(tally_);
  }
}

wire::Drop PeerEnds::source_of(const wire::CommonHeader& header, const wire::IpAddress& source,
                               PathIndex& path) const noexcept {
  if (!has(header.from_rank)) return wire::Drop::kForeign;
  const LinkEnd& end = of(header.from_rank);
  path = end.path_from(source);
  if (path == kNoPath) return wire::Drop::kForeign;
  return end.check(header);
}

}  // namespace gradwire::collective
