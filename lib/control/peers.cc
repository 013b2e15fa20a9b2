// SPDX-License-Identifier: BSD-3-Clause
#include "control/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "collective/shape_direct.h"
#include "collective/shape_ring.h"
#include "collective/shard_config.h"
#include "control/table.h"

namespace gradwire::control {
namespace {

using Network = std::array<std::uint8_t, 18>;

/// Family, prefix and the bits of the prefix.
Network network_of(const ipc::RankAddress& address) noexcept {
  Network network{};
  network[0] = address.family;
  network[1] = address.prefix_bits;
  for (std::size_t bit = 0; bit < address.prefix_bits; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80 >> bit % 8);
    network[2 + bit / 8] |= address.ip[bit / 8] & mask;
  }
  return network;
}

/// Whether two ranks have a link of the ring, or none at all.
/// @param ring  so many ranks have members.
bool are_neighbours(std::size_t a, std::size_t b, std::size_t ring) noexcept {
  if (a == b || (a >= ring && b >= ring)) return true;
  if (a >= ring || b >= ring) return false;
  const std::size_t ahead = a < b ? b - a : a - b;
  return ahead <= 1 || ahead == ring - 1;
}

/// Addresses by which two ranks may reach each other though they are no neighbours.
class OffRing {
 public:
  explicit OffRing(std::span<const ipc::RankInfo> table) : table_(table) {
    for (std::size_t rank = 0; rank < table.size(); ++rank) {
      for (const ipc::RankAddress& address : addresses_of(table[rank])) {
        if (address.single_peer != 0) single_[network_of(address)].push_back(rank);
      }
    }
  }

  [[nodiscard]] std::vector<AddressPair> pairs(std::size_t lower, std::size_t higher) const {
    if (single_.empty()) return common_addresses(table_[lower], table_[higher]);
    return common_addresses(without_others(lower, higher), without_others(higher, lower));
  }
  [[nodiscard]] bool connects(std::size_t a, std::size_t b) const {
    if (single_.empty()) return have_common_address(table_[a], table_[b]);
    return have_common_address(without_others(a, b), without_others(b, a));
  }
  /// Ranks of equal addresses but for their hosts' bits reach the same ranks.
  [[nodiscard]] std::vector<std::uint16_t> classes() const {
    std::uint8_t prefix = 0;
    for (const ipc::RankInfo& info : table_) {
      for (const auto& address : addresses_of(info)) prefix = std::max(prefix, address.prefix_bits);
    }
    std::map<std::vector<std::uint32_t>, std::uint16_t> known;
    std::vector<std::uint16_t> classes;
    for (std::size_t rank = 0; rank < table_.size(); ++rank) {
      std::vector<std::uint32_t> looks;
      for (ipc::RankAddress address : addresses_of(table_[rank])) {
        looks.push_back(address.prefix_bits);
        looks.push_back(address.rail);
        looks.push_back(address.routed);
        // Where it leads follows from who else has a port in its network.
        looks.push_back(address.single_peer == 0 ? UINT32_MAX : static_cast<std::uint32_t>(rank));
        address.prefix_bits = prefix;
        for (const std::uint8_t byte : network_of(address)) looks.push_back(byte);
      }
      const auto next = static_cast<std::uint16_t>(known.size());
      classes.push_back(known.try_emplace(std::move(looks), next).first->second);
    }
    return classes;
  }
  /// If so, any two ranks are connected, and nobody has to compare each with each.
  [[nodiscard]] bool all_alike() const {
    return std::ranges::any_of(addresses_of(table_[0]), [&](const ipc::RankAddress& first) {
      const auto all_have = [&](auto&& fits) {
        return std::ranges::all_of(table_, [&](const ipc::RankInfo& info) {
          return std::ranges::any_of(addresses_of(info), [&](const ipc::RankAddress& address) {
            return address.single_peer == 0 && address.family == first.family &&
                   address.rail == first.rail && fits(address);
          });
        });
      };
      const Network network = network_of(first);
      return all_have([](const auto& address) { return address.routed != 0; }) ||
             all_have([&](const auto& address) { return network_of(address) == network; });
    });
  }

 private:
  /// Without ports that lead to one rank which is not `other`.
  [[nodiscard]] ipc::RankInfo without_others(std::size_t rank, std::size_t other) const {
    ipc::RankInfo info = table_[rank];
    std::uint16_t kept = 0;
    for (const ipc::RankAddress& address : addresses_of(table_[rank])) {
      if (address.single_peer != 0) {
        const std::vector<std::size_t>& ends = single_.at(network_of(address));
        if (ends.size() != 2 || (ends[0] != other && ends[1] != other)) continue;
      }
      info.addresses[kept++] = address;
    }
    info.address_count = kept;
    return info;
  }

  std::span<const ipc::RankInfo> table_;
  std::map<Network, std::vector<std::size_t>> single_;  ///< ranks, by the port's network
};

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

std::optional<Apart> unconnected_ranks(std::span<const ipc::RankInfo> table,
                                       std::uint16_t folding_ranks) {
  const OffRing off_ring(table);
  const std::size_t ring = table.size() - folding_ranks;
  if ((ring <= 3 && folding_ranks == 0) || off_ring.all_alike()) return std::nullopt;
  const std::vector<std::uint16_t> classes = off_ring.classes();
  const std::size_t count = *std::ranges::max_element(classes) + std::size_t{1};
  enum class Known : std::uint8_t { kNo, kConnected, kApart };
  std::vector<Known> known(count * count, Known::kNo);
  std::uint32_t compared = 0;
  for (std::uint16_t a = 0; a < table.size(); ++a) {
    for (std::uint16_t b = a + 1; b < table.size(); ++b) {
      if (are_neighbours(a, b, ring)) continue;
      Known& of = known[classes[a] * count + classes[b]];
      if (of == Known::kNo) {
        if (++compared > kComparisonsMax) return Apart{a, b, true};
        of = off_ring.connects(a, b) ? Known::kConnected : Known::kApart;
      }
      if (of == Known::kApart) return Apart{a, b, false};
    }
  }
  return std::nullopt;
}

std::string text_of(const Apart& apart, std::span<const ipc::RankInfo> table) {
  if (apart.too_many) {
    return fmt::format(
        "the ranks have ports in so many networks that more than {} pairs of ranks would have to "
        "be compared to find out whether each reaches each",
        kComparisonsMax);
  }
  return fmt::format("ranks {} ({}) and {} ({}) have no ports that lead to each other", apart.a,
                     addresses_text(table[apart.a]), apart.b, addresses_text(table[apart.b]));
}

DirectAgreement direct_agreement(std::span<const ipc::RankInfo> table,
                                 std::uint16_t folding_ranks) {
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
  } else if (const auto apart = unconnected_ranks(table, folding_ranks)) {
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

TransferAgreement transfer_agreement(std::span<const ipc::RankInfo> table,
                                     const GroupProcesses& processes) {
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
  if (pairs > collective::kPairsMax) {
    return {false, fmt::format("a rank of {} processes in a group of {} would have {} pairs of "
                               "processes; {} are allowed",
                               most, processes.count(), pairs, collective::kPairsMax)};
  }
  if (const auto apart = unconnected_ranks(table)) {
    return {false, text_of(*apart, table)};
  }
  return {true, {}};
}

Result<std::vector<PeerPaths>> peer_paths(const GroupKey& key, std::uint16_t rank,
                                          std::uint8_t lanes, std::span<const ipc::RankInfo> table,
                                          std::span<const LocalAddress> addresses,
                                          std::uint16_t folding_ranks) {
  const OffRing off_ring(table);
  std::vector<PeerPaths> peers;
  for (std::uint16_t other = 0; other < table.size(); ++other) {
    if (are_neighbours(rank, other, table.size() - folding_ranks)) continue;
    const bool first = rank < other;
    auto paths = paths_by(off_ring.pairs(std::min(rank, other), std::max(rank, other)), rank, other,
                          first, table, addresses);
    if (!paths) return tl::unexpected(paths.error());
    PeerPaths& peer = peers.emplace_back();
    peer.rank = other;
    peer.paths = std::move(*paths);
    for (std::uint8_t lane = 0; lane < lanes; ++lane) {
      peer.tokens.push_back(
          {link_token(key, lane, rank, other, table), link_token(key, lane, other, rank, table)});
    }
  }
  return peers;
}

}  // namespace gradwire::control
