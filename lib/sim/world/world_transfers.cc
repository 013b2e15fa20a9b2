// SPDX-License-Identifier: BSD-3-Clause
// Ends of transfers on their way to the lanes.
#include <algorithm>

#include "collective/transfers/transfer_chunks.h"
#include "sim/world/world.h"

namespace gradwire::sim {

bool World::post(GroupId group, std::uint16_t rank, const collective::TransferSpec& spec) {
  Rank& r = groups_[group].ranks[rank];
  if (r.failed || r.shards.empty()) return false;
  trace_.mix(now_, 27, group, rank, spec.id);
  trace_.line(now_, "host {:<3} group {} rank {} posts transfer {}: {} of {}{} bytes, {}", r.host,
              group, rank, spec.id / 2,
              spec.end == collective::TransferEnd::kSource ? "send" : "recv",
              spec.up_to ? "up to " : "", spec.terms.bytes, wire::text_of(spec.pair).text);
  const bool one_lane = spec.pair.stream != 0 || r.shards.size() == 1;
  // The other lanes have no part in it.
  if (one_lane) r.transfers_done[spec.id] = static_cast<std::uint8_t>(r.shards.size() - 1);
  if (spec.up_to && !one_lane) r.unsized[spec.id] = spec;
  line_up(group, rank, {spec, true, !spec.up_to && !one_lane});
  return true;
}

void World::line_up(GroupId group, std::uint16_t rank, const WaitingTransfer& transfer) {
  Rank& r = groups_[group].ranks[rank];
  Host& host = hosts_[r.host];
  if (r.transfers.empty() && r.waiting.empty()) host.posting.emplace_back(group, rank);
  r.transfers.push_back(transfer);
  if (!host.paused) retry_posts(group, rank);
  wake(host, now_);
}

void World::on_sized(const Place& place, const collective::Event& event) {
  Rank& rank = groups_[place.group].ranks[place.rank];
  trace_.line(now_, "host {:<3} group {} rank {} hears that transfer {} has {} bytes", rank.host,
              place.group, place.rank, event.op_seq / 2, event.bytes);
  observer_.on_transfer_sized(place.group, place.rank, event.op_seq, event.bytes);
  const auto unsized = rank.unsized.find(event.op_seq);
  if (unsized == rank.unsized.end()) return;
  collective::TransferSpec spec = unsized->second;
  rank.unsized.erase(unsized);
  spec.terms.bytes = event.bytes;
  spec.up_to = false;
  if (!rank.failed) line_up(place.group, place.rank, {spec, false, true});
}

void World::post_transfers(Rank& rank) {
  if (rank.transfers.empty()) return;
  rank.lane_transfers.resize(rank.shards.size());
  std::uint64_t taken = UINT64_MAX;
  for (std::size_t lane = 0; lane < rank.shards.size(); ++lane) {
    collective::Shard& shard = *rank.shards[lane];
    std::uint64_t& own = rank.lane_transfers[lane];
    while (!stands_still(&shard) && own - rank.transfers_taken < rank.transfers.size()) {
      const WaitingTransfer& next = rank.transfers[own - rank.transfers_taken];
      ++own;
      const bool is_first =
          lane == collective::TransferChunks::first_lane(
                      next.spec.pair, static_cast<std::uint8_t>(rank.shards.size()));
      if (is_first ? !next.to_first : !next.to_others) continue;
      const collective::PostResult posted = shard.post(next.spec, local(hosts_[rank.host], now_));
      // A lane may have aborted a moment ago.
      require(posted == collective::PostResult::kOk || shard.reason().is_set(),
              "a simulated transfer is posted when the one before is done");
    }
    taken = std::min(taken, own);
  }
  for (; rank.transfers_taken < taken; ++rank.transfers_taken) rank.transfers.pop_front();
}

}  // namespace gradwire::sim
