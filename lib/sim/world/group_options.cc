// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/group_options.h"

#include <algorithm>
#include <utility>

#include "base/require.h"

namespace gradwire::sim {

std::vector<std::uint16_t> ranks_of(const GroupOptions& group) {
  if (!group.ranks.empty()) return group.ranks;
  std::vector<std::uint16_t> ranks;
  for (std::uint16_t rank = 0; rank < ring_ranks(group); ++rank) {
    ranks.insert(ranks.end(), group.members, rank);
  }
  return ranks;
}

std::shared_ptr<const collective::Owners> owners_of(const GroupOptions& group) {
  std::vector<std::uint16_t> owners;
  for (std::uint16_t rank = 0; rank < group.hosts.size(); ++rank) {
    const bool named = std::ranges::count(group.owners, group.hosts[rank]) != 0;
    if (named || rank >= ring_ranks(group)) owners.push_back(rank);
  }
  if (owners.empty()) return nullptr;
  return std::make_shared<const collective::Owners>(std::move(owners),
                                                    std::uint16_t(group.hosts.size()));
}

namespace {

/// [all ranks]
std::vector<std::uint32_t> rates_of(const GroupOptions& group) {
  std::vector<std::uint32_t> rates(group.hosts.size());
  for (std::size_t rank = 0; rank < rates.size() && !group.rates.empty(); ++rank) {
    rates[rank] = group.rates[group.hosts[rank]];
  }
  return rates;
}

}  // namespace

std::shared_ptr<const collective::TileCosts> tile_costs_of(const GroupOptions& group) {
  const std::uint16_t nranks = ring_ranks(group);
  if (!group.shard.tiles.used || !group.endpoint || nranks < 2) return nullptr;
  require(!group.rates.empty(), "costs are of ports whose rates are known");
  const auto shares = tile_shares_of(group);
  return std::make_shared<const collective::TileCosts>(*group.endpoint, rates_of(group), nranks,
                                                       shares.get(), group.lanes);
}

std::shared_ptr<const collective::TileShares> tile_shares_of(const GroupOptions& group) {
  if (!group.shard.tiles.used) return nullptr;
  auto shares = collective::TileShares::make(rates_of(group), ring_ranks(group));
  if (!shares) return nullptr;
  return std::make_shared<const collective::TileShares>(std::move(*shares));
}

}  // namespace gradwire::sim
