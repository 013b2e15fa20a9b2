// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/peers.h"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "collective/shapes/shape_direct.h"
#include "collective/shapes/shape_ring.h"
#include "collective/shard_config.h"
#include "control/formation/table.h"

namespace gradwire::control {
namespace {

/// Family, prefix and the bits of the prefix.
using Network = std::array<std::uint8_t, 18>;

Network network_of(const ipc::RankAddress& address, std::size_t prefix_bits) noexcept {
  Network network{};
  network[0] = address.family;
  network[1] = static_cast<std::uint8_t>(prefix_bits);
  const std::size_t whole = prefix_bits / 8;
  std::memcpy(&network[2], address.ip, whole);
  if (const std::size_t rest = prefix_bits % 8; rest != 0) {
    network[2 + whole] = static_cast<std::uint8_t>(address.ip[whole] & (0xff00 >> rest));
  }
  return network;
}

/// The first or last 64 bits of an address, the first bit highest.
std::uint64_t half_of(const ipc::RankAddress& address, std::size_t half) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, address.ip + 8 * half, sizeof word);
  return be64toh(word);
}
std::uint64_t first_bits(std::size_t count) noexcept {
  if (count == 0) return 0;
  return count >= 64 ? ~std::uint64_t{0} : ~(~std::uint64_t{0} >> count);
}

/// Whether two ranks have a link of the ring, or none at all.
/// @param ring  so many ranks have members.
bool are_neighbors(std::size_t a, std::size_t b, std::size_t ring) noexcept {
  if (a == b || (a >= ring && b >= ring)) return true;
  if (a >= ring || b >= ring) return false;
  const std::size_t ahead = a < b ? b - a : a - b;
  return ahead <= 1 || ahead == ring - 1;
}

/// Addresses by which two ranks may reach each other though they are no neighbors. A table of
/// 1,024 ranks with 8 addresses each comes from any client, so what is needed for each pair of
/// ranks is computed once for each address.
class OffRing {
 public:
  explicit OffRing(std::span<const ipc::RankInfo> table) : table_(table), ports_(table.size()) {
    struct End {
      Network network;
      std::uint16_t rank;
      std::uint16_t place;
    };
    std::vector<End> ends;  // of links that lead to one other port alone
    for (std::size_t rank = 0; rank < table.size(); ++rank) {
      const auto addresses = addresses_of(table[rank]);
      for (std::size_t i = 0; i < addresses.size(); ++i) {
        const ipc::RankAddress& address = addresses[i];
        Port& port = ports_[rank][i];
        port = {half_of(address, 0), half_of(address, 1), first_bits(address.prefix_bits),
                first_bits(address.prefix_bits <= 64 ? 0 : address.prefix_bits - 64u),
                network_of(address, address.prefix_bits)};
        if (address.single_peer == 0) continue;
        port.leads_to = kNobody;
        ends.push_back(
            {port.network, static_cast<std::uint16_t>(rank), static_cast<std::uint16_t>(i)});
      }
    }
    has_single_ = !ends.empty();
    std::ranges::sort(ends, {}, &End::network);
    for (std::size_t first = 0; first < ends.size();) {
      std::size_t last = first + 1;
      while (last < ends.size() && ends[last].network == ends[first].network) ++last;
      if (last - first == 2) {
        const End& a = ends[first];
        const End& b = ends[first + 1];
        ports_[a.rank][a.place].leads_to = b.rank;
        ports_[b.rank][b.place].leads_to = a.rank;
      }
      first = last;
    }
  }

  [[nodiscard]] std::vector<AddressPair> pairs(std::size_t lower, std::size_t higher) const {
    if (!has_single_) return common_addresses(table_[lower], table_[higher]);
    return common_addresses(without_others(lower, higher), without_others(higher, lower));
  }
  /// Whether pairs() has any.
  [[nodiscard]] bool connects(std::size_t a, std::size_t b) const {
    const auto as = addresses_of(table_[a]);
    const auto bs = addresses_of(table_[b]);
    for (std::size_t i = 0; i < as.size(); ++i) {
      if (!leads_to(a, i, b)) continue;
      for (std::size_t j = 0; j < bs.size(); ++j) {
        if (leads_to(b, j, a) && can_pair(as[i], ports_[a][i], bs[j], ports_[b][j])) return true;
      }
    }
    return false;
  }
  /// Ranks of equal addresses but for their hosts' bits reach the same ranks.
  [[nodiscard]] std::vector<std::uint16_t> classes() const {
    std::uint8_t prefix = 0;
    for (const ipc::RankInfo& info : table_) {
      for (const auto& address : addresses_of(info)) prefix = std::max(prefix, address.prefix_bits);
    }
    struct Look {
      Network network;
      std::uint8_t prefix_bits;
      std::uint8_t routed;
      std::uint32_t rail;
      std::uint32_t only;  ///< where it leads follows from who else has a port in its network
      auto operator<=>(const Look&) const = default;
    };
    std::map<std::vector<Look>, std::uint16_t> known;
    std::vector<std::uint16_t> classes;
    for (std::size_t rank = 0; rank < table_.size(); ++rank) {
      std::vector<Look> looks;
      looks.reserve(ipc::RankInfo::kMaxAddresses);
      for (const ipc::RankAddress& address : addresses_of(table_[rank])) {
        looks.push_back({network_of(address, prefix), address.prefix_bits, address.routed,
                         address.rail,
                         address.single_peer == 0 ? UINT32_MAX : static_cast<std::uint32_t>(rank)});
      }
      const auto next = static_cast<std::uint16_t>(known.size());
      classes.push_back(known.try_emplace(std::move(looks), next).first->second);
    }
    return classes;
  }
  /// If so, any two ranks are connected, and nobody has to compare each with each.
  [[nodiscard]] bool all_alike() const {
    const auto firsts = addresses_of(table_[0]);
    for (std::size_t i = 0; i < firsts.size(); ++i) {
      const ipc::RankAddress& first = firsts[i];
      const auto all_have = [&](auto&& fits) {
        for (std::size_t rank = 0; rank < table_.size(); ++rank) {
          const auto addresses = addresses_of(table_[rank]);
          bool has = false;
          for (std::size_t j = 0; j < addresses.size() && !has; ++j) {
            const ipc::RankAddress& address = addresses[j];
            has = address.single_peer == 0 && address.family == first.family &&
                  address.rail == first.rail && fits(address, ports_[rank][j]);
          }
          if (!has) return false;
        }
        return true;
      };
      const Network& network = ports_[0][i].network;
      if (all_have([](const auto& address, const Port&) { return address.routed != 0; }) ||
          all_have([&](const auto&, const Port& port) { return port.network == network; })) {
        return true;
      }
    }
    return false;
  }

 private:
  static constexpr std::uint32_t kAnybody = UINT32_MAX;
  static constexpr std::uint32_t kNobody = UINT32_MAX - 1;
  struct Port {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    std::uint64_t high_mask = 0;  ///< of the prefix
    std::uint64_t low_mask = 0;
    Network network{};
    std::uint32_t leads_to = kAnybody;  ///< a rank, if the port leads to one other port alone
  };

  [[nodiscard]] bool leads_to(std::size_t rank, std::size_t place, std::size_t other) const {
    const std::uint32_t to = ports_[rank][place].leads_to;
    return to == kAnybody || to == other;
  }
  /// As have_common_address(), of one address each.
  [[nodiscard]] static bool can_pair(const ipc::RankAddress& a, const Port& at_a,
                                     const ipc::RankAddress& b, const Port& at_b) noexcept {
    if (a.family != b.family || (a.rail != b.rail && a.rail != 0 && b.rail != 0)) return false;
    if (a.routed != 0 && b.routed != 0) return true;
    const std::uint64_t high = at_a.high ^ at_b.high;
    const std::uint64_t low = at_a.low ^ at_b.low;
    return (high & (at_a.high_mask | at_b.high_mask)) == 0 &&
           (low & (at_a.low_mask | at_b.low_mask)) == 0;
  }
  /// Without ports that lead to one rank which is not `other`.
  [[nodiscard]] ipc::RankInfo without_others(std::size_t rank, std::size_t other) const {
    ipc::RankInfo info = table_[rank];
    std::uint16_t kept = 0;
    const auto addresses = addresses_of(table_[rank]);
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (leads_to(rank, i, other)) info.addresses[kept++] = addresses[i];
    }
    info.address_count = kept;
    return info;
  }

  std::span<const ipc::RankInfo> table_;
  std::vector<std::array<Port, ipc::RankInfo::kMaxAddresses>> ports_;  ///< by rank
  bool has_single_ = false;
};

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
      if (are_neighbors(a, b, ring)) continue;
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

const std::optional<Apart>& Connections::apart() {
  if (!apart_) apart_ = unconnected_ranks(table_, folding_ranks_);
  return *apart_;
}

Result<std::vector<PeerPaths>> peer_paths(const GroupKey& key, std::uint16_t rank,
                                          std::uint8_t lanes, std::span<const ipc::RankInfo> table,
                                          std::span<const LocalAddress> addresses,
                                          std::uint16_t folding_ranks) {
  const OffRing off_ring(table);
  std::vector<PeerPaths> peers;
  for (std::uint16_t other = 0; other < table.size(); ++other) {
    if (are_neighbors(rank, other, table.size() - folding_ranks)) continue;
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
