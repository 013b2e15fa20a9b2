// SPDX-License-Identifier: BSD-3-Clause
// What a group's table comes to, for ops that go between any two ranks.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "collective/shapes/shape_direct.h"
#include "collective/shard_config.h"
#include "control/formation/peers.h"

namespace gradwire::control {
namespace {

/// @param ring  so many ranks have members.
/// @return nullptr if none says so, or all.
std::shared_ptr<const collective::Owners> owners_of(std::span<const ipc::RankInfo> table,
                                                    std::size_t ring) {
  std::vector<std::uint16_t> ranks;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    if (table[rank].two_step_owner == 0 && rank < ring) continue;
    ranks.push_back(static_cast<std::uint16_t>(rank));
  }
  if (ranks.empty() || (ranks.size() == table.size() && ring == table.size())) return nullptr;
  return std::make_shared<const collective::Owners>(std::move(ranks),
                                                    static_cast<std::uint16_t>(table.size()));
}

}  // namespace

DirectAgreement direct_agreement(std::span<const ipc::RankInfo> table, std::uint16_t folding_ranks,
                                 Connections* known) {
  Connections own(table, folding_ranks);
  Connections& connections = known != nullptr ? *known : own;
  DirectAgreement agreed;
  const std::size_t nranks = table.size() - folding_ranks;
  const std::uint64_t wanted = std::uint64_t{table[0].direct_kib} << 10;
  if (nranks < 2 || wanted == 0) return agreed;
  const auto weak = std::ranges::find_if(
      table, [&](const ipc::RankInfo& info) { return info.fold_sources < nranks; });
  if (nranks * collective::direct::kAlignment > wanted) {
    agreed.why_not = fmt::format("{} KiB hold no {} bytes of each of {} ranks", table[0].direct_kib,
                                 collective::direct::kAlignment, nranks);
  } else if (weak != table.end()) {
    agreed.why_not = fmt::format(
        "the daemon of rank {} can fold what {} ranks give, and the group has {}: it reduces on a "
        "GPU or is of an older release",
        weak - table.begin(), weak->fold_sources, nranks);
  } else if (const auto& apart = connections.apart()) {
    agreed.why_not = text_of(*apart, table);
  } else {
    agreed.bytes = wanted;
    agreed.two_step_bytes = std::min<std::uint64_t>(
        (std::uint64_t{table[0].two_step_kib} << 10) * nranks, collective::kTwoStepBytesMax);
    agreed.owners = owners_of(table, nranks);
    agreed.gathered_ranks = table[0].gathered_ranks;
    // Small groups need no memory for what they never do.
    if (nranks > agreed.gathered_ranks) {
      agreed.gathered_bytes = std::uint64_t{table[0].gathered_kib} << 10;
    }
  }
  return agreed;
}

namespace {

/// All the rank's ports together, as RankInfo::rates; 0 if one of them is not known.
std::uint32_t rate_of(const ipc::RankInfo& info) noexcept {
  const auto rates = std::span(info.rates).first(info.address_count);
  if (std::ranges::find(rates, 0) != rates.end()) return 0;
  return std::accumulate(rates.begin(), rates.end(), std::uint32_t{0});
}

std::shared_ptr<const collective::TileShares> shares_of(std::span<const std::uint32_t> rates,
                                                        std::uint16_t nranks) {
  auto shares = collective::TileShares::make(rates, nranks);
  if (!shares) return nullptr;
  return std::make_shared<const collective::TileShares>(std::move(*shares));
}

/// Why nobody can tell what tiles take; empty: everybody can.
std::string why_no_choice(std::span<const ipc::RankInfo> table,
                          std::span<const std::uint32_t> rates) {
  if (const auto it = std::ranges::find(rates, 0u); it != rates.end()) {
    return fmt::format(
        "the rate of a port of rank {} is not known, so nothing tells which ops are faster so: set "
        "port.rate_gbps there",
        it - rates.begin());
  }
  const auto old = std::ranges::find(table, 0u, &ipc::RankInfo::packet_ns);
  if (old == table.end()) return {};
  return fmt::format("the daemon of rank {} is of an older release, and cannot choose them",
                     old - table.begin());
}

}  // namespace

TileAgreement tile_agreement(std::span<const ipc::RankInfo> table, std::uint16_t folding_ranks,
                             Connections* known, std::uint8_t lanes) {
  Connections own(table, folding_ranks);
  Connections& connections = known != nullptr ? *known : own;
  if (table.size() < 2) return {};
  if (table[0].tiles_wanted == ipc::RankInfo::kTilesNever) {
    TileAgreement never;
    never.why_no_formats = "transport.tiles of rank 0's daemon is \"never\"";
    return never;
  }
  const auto none = [](const std::string& why) {
    TileAgreement out;
    out.why_not = out.why_no_formats = why;
    return out;
  };
  const auto without =
      std::ranges::find_if(table, [](const ipc::RankInfo& info) { return info.tiles == 0; });
  if (without != table.end()) {
    return none(
        fmt::format("the daemon of rank {} has no tiles: it reduces on a GPU or is of an "
                    "older release",
                    without - table.begin()));
  }
  if (const auto& apart = connections.apart()) return none(text_of(*apart, table));
  TileAgreement agreed;
  agreed.possible = true;
  std::vector<std::uint32_t> rates;
  for (const ipc::RankInfo& info : table) rates.push_back(rate_of(info));
  const auto nranks = static_cast<std::uint16_t>(table.size() - folding_ranks);
  agreed.shares = shares_of(rates, nranks);
  if (table[0].tiles_wanted != ipc::RankInfo::kTilesAlways) {
    agreed.why_not = why_no_choice(table, rates);
    agreed.for_formats_alone = !agreed.why_not.empty() || nranks < 2;
    if (!agreed.for_formats_alone) {
      agreed.costs = std::make_shared<const collective::TileCosts>(
          collective::TileCosts::Endpoint{table[0].packet_ns, table[0].byte_ps, table[0].hop_ns},
          rates, nranks, agreed.shares.get(), lanes);
    }
  }
  const auto lacks = std::ranges::find_if(table, [](const ipc::RankInfo& info) {
    return (info.formats & ipc::RankInfo::kAllFormats) != ipc::RankInfo::kAllFormats;
  });
  if (lacks != table.end()) {
    agreed.why_no_formats = fmt::format(
        "the daemon of rank {} does not have both wire formats, bf16 and int8: it is of another "
        "release",
        lacks - table.begin());
    // Else nothing would go by them.
    agreed.possible = !agreed.for_formats_alone;
  }
  return agreed;
}

TransferAgreement transfer_agreement(std::span<const ipc::RankInfo> table,
                                     const GroupProcesses& processes, Connections* known,
                                     bool alone) {
  const auto without =
      std::ranges::find_if(table, [](const ipc::RankInfo& info) { return info.transfers == 0; });
  if (without != table.end()) {
    return {false, fmt::format("the daemon of rank {} does not move data between any two "
                               "processes: its gradient memory or its packets are a GPU's, or it "
                               "is an embedded rank or of an older release",
                               without - table.begin())};
  }
  std::uint64_t most = 0;
  for (std::uint32_t rank = 0; rank < processes.nranks; ++rank) {
    most = std::max<std::uint64_t>(most, processes.members_of(rank));
  }
  const std::uint64_t pairs = most * processes.count();
  const std::uint64_t most_pairs = alone ? kPairsOfTransfersAlone : collective::kPairsMax;
  if (pairs > most_pairs) {
    return {false, fmt::format("a rank of {} processes in a group of {} would have {} pairs of "
                               "processes; {} are allowed",
                               most, processes.count(), pairs, most_pairs)};
  }
  Connections own(table);
  if (const auto& apart = (known != nullptr ? *known : own).apart()) {
    return {false, text_of(*apart, table)};
  }
  // An entry may say anything.
  std::uint64_t streams = std::min<std::uint64_t>(
      collective::kStreamsMax,
      std::max<std::uint64_t>(
          (alone ? kPairsOfTransfersAlone : collective::kStreamsOfRankMax) / pairs, 1));
  for (const ipc::RankInfo& info : table) {
    streams = std::min<std::uint64_t>(streams, info.transfers);
  }
  return {true, {}, static_cast<std::uint16_t>(streams)};
}

}  // namespace gradwire::control
