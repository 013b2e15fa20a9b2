// SPDX-License-Identifier: BSD-3-Clause
#include "control/plans/plan_request.h"

#include <fmt/format.h>

#include <utility>

#include "collective/shapes/shape_ring.h"
#include "control/formation/folding.h"
#include "control/formation/peers.h"

namespace gradwire::control {
namespace {

/// Whether a group for transfers alone can be formed.
Result<void> check_transfers_alone(const ipc::JoinBody& join, const TransferAgreement& transfers) {
  if (join.request.nranks != 2 || join.request.folding_ranks != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a group for transfers alone is of two daemons, which both have "
                            "processes; this one is of {}, of which {} have none",
                            join.request.nranks, join.request.folding_ranks));
  }
  if (!transfers.possible) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a group for transfers alone: there are none between these daemons: {}",
                            transfers.why_not));
  }
  return {};
}

}  // namespace

Result<PlanRequest> plan_request(const ipc::JoinBody& join, const ipc::RankInfo& own,
                                 std::span<const LocalAddress> addresses, const JoinKeys& keys) {
  const auto agreement = check_join(join, own, keys);
  if (!agreement) return tl::unexpected(agreement.error());
  PlanRequest wanted;
  wanted.key = {join.request.group_id, join.request.epoch};
  wanted.rank = join.request.rank;
  wanted.nranks = join.request.ring_ranks();
  wanted.folding_ranks = join.request.folding_ranks;
  wanted.member_count = join.request.member_count;
  wanted.layout = agreement->layout;
  wanted.lanes = agreement->lanes;
  wanted.payload_bytes = agreement->payload_bytes;
  wanted.incarnation = own.incarnation;
  const auto ring = std::span(join.table).first(wanted.nranks);
  const GroupProcesses processes{wanted.nranks, wanted.member_count,
                                 wanted.layout ? &*wanted.layout : nullptr};
  // Without folding ranks both agreements ask the same of the same table.
  Connections connections(join.table);
  Connections* const known = wanted.folding_ranks == 0 ? &connections : nullptr;
  TransferAgreement transfers =
      transfer_agreement(ring, processes, known, join.request.transfers_alone());
  if (join.request.transfers_alone()) {
    if (auto ok = check_transfers_alone(join, transfers); !ok) return tl::unexpected(ok.error());
  }
  wanted.why_no_transfers = std::move(transfers.why_not);
  if (transfers.possible && !wanted.folds_only()) {
    wanted.streams = transfers.streams;
    wanted.pairs_max =
        processes.members_of(wanted.rank) * processes.count() * std::uint32_t{wanted.streams};
  }
  wanted.transfers_alone = join.request.transfers_alone();
  TileAgreement tiles;
  if (!wanted.transfers_alone) {
    tiles = tile_agreement(join.table, wanted.folding_ranks, known, agreement->lanes);
  }
  wanted.tiles = tiles.possible;
  wanted.tiles_for_formats_alone = tiles.for_formats_alone;
  wanted.tile_shares = std::move(tiles.shares);
  wanted.tile_costs = std::move(tiles.costs);
  wanted.why_no_tiles = std::move(tiles.why_not);
  wanted.why_no_formats = std::move(tiles.why_no_formats);
  const std::uint32_t model = wanted.tile_costs != nullptr ? collective::kTileModel : 0;
  const GroupUse use{wanted.folding_ranks, wanted.tiles, model, wanted.transfers_alone};
  wanted.table_digest = table_digest(wanted.key, wanted.member_count, *agreement, join.table, use);
  wanted.security = agreement->security;
  if (wanted.security.mode != security::Mode::kOff) {
    wanted.table_hash = table_hash(wanted.key, wanted.member_count, *agreement, join.table, use);
  }
  if (wanted.nranks == 1) return wanted;
  const auto paths = [&](std::uint16_t neighbor, bool downstream) {
    return neighbor_paths(wanted.rank, neighbor, downstream, join.table, own, addresses);
  };
  if (!wanted.folds_only()) {
    wanted.tokens = neighbor_tokens(wanted.key, wanted.lanes, wanted.rank, ring);
    auto down = paths(collective::downstream_rank(wanted.rank, wanted.nranks), true);
    if (!down) return tl::unexpected(down.error());
    auto up = paths(collective::upstream_rank(wanted.rank, wanted.nranks), false);
    if (!up) return tl::unexpected(up.error());
    wanted.downstream = std::move(*down);
    wanted.upstream = std::move(*up);
  }
  if (wanted.transfers_alone) return wanted;
  DirectAgreement direct = direct_agreement(join.table, wanted.folding_ranks, known);
  wanted.direct_bytes = direct.bytes;
  wanted.two_step_bytes = direct.two_step_bytes;
  wanted.owners = std::move(direct.owners);
  wanted.gathered_bytes = direct.gathered_bytes;
  wanted.gathered_ranks = direct.gathered_ranks;
  wanted.why_not_direct = std::move(direct.why_not);
  if (auto ok = check_folding_work(wanted, join.table); !ok) return tl::unexpected(ok.error());
  if (wanted.direct_bytes == 0 && wanted.pairs_max == 0 && !wanted.tiles) return wanted;
  auto peers = peer_paths(wanted.key, wanted.rank, wanted.lanes, join.table, addresses,
                          wanted.folding_ranks);
  if (!peers) return tl::unexpected(peers.error());
  wanted.peers = std::move(*peers);
  if (wanted.folds_only()) {
    if (auto hung = hang(wanted); !hung) return tl::unexpected(hung.error());
  }
  return wanted;
}

void put_keys(PlanRequest& wanted, std::shared_ptr<GroupKeys> keys) {
  wanted.keys = std::move(keys);
  if (wanted.downstream.empty() || wanted.upstream.empty()) return;
  for (std::uint8_t lane = 0; lane < wanted.lanes; ++lane) {
    wanted.tokens[lane] = {wanted.keys->tokens(lane, wanted.upstream.front().rank),
                           wanted.keys->tokens(lane, wanted.downstream.front().rank)};
    for (PeerPaths& peer : wanted.peers) peer.tokens[lane] = wanted.keys->tokens(lane, peer.rank);
  }
}

}  // namespace gradwire::control
