// SPDX-License-Identifier: BSD-3-Clause
// Which addresses of two neighbors belong to each other, and how frames get there.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/sip_hash.h"
#include "control/formation/table.h"
#include "port/neighbors/neighbor_message.h"

namespace gradwire::control {
namespace {

/// As the digest's, for names of rails ("gradwire", "rail v1").
constexpr SipHashKey kRailKey = {0x6772616477697265, 0x7261696c20763100};

wire::IpAddress ip_of(const ipc::RankAddress& address) noexcept {
  wire::IpAddress ip;
  ip.family = address.family;
  std::copy(std::begin(address.ip), std::end(address.ip), ip.bytes.begin());
  return ip;
}

/// By what two addresses are one another's.
enum class Pairing : std::uint8_t { kRail, kNetwork, kRoute };

bool can_pair(const ipc::RankAddress& up, const ipc::RankAddress& down, Pairing by) noexcept {
  if (up.family != down.family) return false;
  const bool same_network = wire::same_network(ip_of(up), ip_of(down), up.prefix_bits) &&
                            wire::same_network(ip_of(up), ip_of(down), down.prefix_bits);
  // Both need a route: packets there are useless without acknowledgements back.
  const bool reachable = same_network || (up.routed != 0 && down.routed != 0);
  const bool named = up.rail != 0 && down.rail != 0;
  if (named && up.rail != down.rail) return false;
  switch (by) {
    case Pairing::kRail:
      return named && reachable;
    case Pairing::kNetwork:
      return same_network;
    case Pairing::kRoute:
      return reachable;
  }
  return false;
}

bool has_rail(const ipc::RankInfo& info) noexcept {
  return std::ranges::any_of(addresses_of(info), [](const auto& one) { return one.rail != 0; });
}
bool rails_matter(const ipc::RankInfo& a, const ipc::RankInfo& b) noexcept {
  return has_rail(a) && has_rail(b);
}

}  // namespace

std::uint32_t rail_hash(std::string_view name) noexcept {
  if (name.empty()) return 0;
  const std::uint64_t hash = sip_hash(kRailKey, std::as_bytes(std::span(name)));
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(hash), 1);
}

bool have_common_address(const ipc::RankInfo& a, const ipc::RankInfo& b) {
  return std::ranges::any_of(addresses_of(a), [&](const ipc::RankAddress& up) {
    // Whatever pairs by rail or network does by route, too.
    return std::ranges::any_of(addresses_of(b), [&](const ipc::RankAddress& down) {
      return can_pair(up, down, Pairing::kRoute);
    });
  });
}

std::vector<AddressPair> common_addresses(const ipc::RankInfo& upstream,
                                          const ipc::RankInfo& downstream) {
  const auto ups = addresses_of(upstream);
  const auto downs = addresses_of(downstream);
  constexpr std::size_t kNone = ipc::RankInfo::kMaxAddresses;
  std::array<std::size_t, ipc::RankInfo::kMaxAddresses> chosen;
  chosen.fill(kNone);
  // Names first, then networks, then whoever is left: what comes later takes nothing from before.
  for (const Pairing by : {Pairing::kRail, Pairing::kNetwork, Pairing::kRoute}) {
    for (std::size_t u = 0; u < ups.size(); ++u) {
      for (std::size_t d = 0; d < downs.size() && chosen[u] == kNone; ++d) {
        const bool taken = std::ranges::find(chosen, d) != chosen.end();
        if (!taken && can_pair(ups[u], downs[d], by)) chosen[u] = d;
      }
    }
  }
  std::vector<AddressPair> pairs;
  for (std::size_t u = 0; u < ups.size(); ++u) {
    if (chosen[u] != kNone) pairs.push_back({ip_of(ups[u]), ip_of(downs[chosen[u]])});
  }
  return pairs;
}

Result<std::vector<NeighborPath>> neighbor_paths(std::uint16_t rank, std::uint16_t neighbor,
                                                 bool downstream,
                                                 std::span<const ipc::RankInfo> table,
                                                 const ipc::RankInfo& own,
                                                 std::span<const LocalAddress> addresses) {
  const ipc::RankInfo& remote = table[neighbor];
  auto pairs = downstream ? common_addresses(own, remote) : common_addresses(remote, own);
  if (pairs.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "rank {} ({}) cannot reach its {} neighbor, rank {} ({}): give both an address in "
            "the same network, or both a gateway{}",
            rank, addresses_text(own), downstream ? "downstream" : "upstream", neighbor,
            addresses_text(remote),
            rails_matter(own, remote) ? ", on rails of the same name" : ""));
  }
  return paths_by(std::move(pairs), rank, neighbor, downstream, table, addresses);
}

Result<std::vector<NeighborPath>> paths_by(std::vector<AddressPair> pairs, std::uint16_t rank,
                                           std::uint16_t other, bool downstream,
                                           std::span<const ipc::RankInfo> table,
                                           std::span<const LocalAddress> addresses) {
  if (pairs.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("nothing connects rank {} ({}) with rank {} ({})", rank,
                            addresses_text(table[rank]), other, addresses_text(table[other])));
  }
  std::vector<NeighborPath> paths;
  for (const AddressPair& pair : pairs) {
    NeighborPath path;
    path.rank = other;
    path.incarnation = table[other].incarnation;
    path.local_ip = downstream ? pair.upstream : pair.downstream;
    path.remote_ip = downstream ? pair.downstream : pair.upstream;
    path.remote_base_udp_port = table[other].base_udp_port;
    path.remote_source_ports = table[other].source_ports;
    if (path.local_ip == path.remote_ip) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("ranks {} and {} have the same address {}", rank, other,
                              wire::to_string(path.local_ip)));
    }
    const auto local = std::ranges::find(addresses, path.local_ip, &LocalAddress::ip);
    if (local == addresses.end()) {
      return fail(ErrorCode::kInternal, fmt::format("no port has this daemon's address {}",
                                                    wire::to_string(path.local_ip)));
    }
    path.port = local->port;
    path.rate_bps = local->rate_bps;
    paths.push_back(path);
  }
  return paths;
}

std::string text_of(const port::TooBig& message) {
  const std::string mtu =
      message.mtu != 0 ? fmt::format("carries {} bytes", message.mtu) : std::string("carries less");
  return fmt::format("the router {} says that its next link {}, and a packet to {} has {}",
                     wire::to_string(message.router), mtu, wire::to_string(message.destination),
                     message.packet_bytes);
}

std::string unanswered_text(const NeighborPath& path, std::string_view side) {
  const std::string rank =
      fmt::format("{} rank {} ({})", side, path.rank, wire::to_string(path.remote_ip));
  if (path.hop.family == 0 || path.hop == path.remote_ip) {
    return fmt::format("{} does not answer {} on port {}", rank,
                       port::protocol_name(path.remote_ip), path.port);
  }
  return fmt::format("the router {}, which leads to {}, does not answer {} on port {}",
                     wire::to_string(path.hop), rank, port::protocol_name(path.hop), path.port);
}

std::string addresses_text(const ipc::RankInfo& info) {
  std::string text;
  for (const ipc::RankAddress& address : addresses_of(info)) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}/{}", wire::to_string(ip_of(address)), address.prefix_bits);
  }
  return text.empty() ? "none" : text;
}

}  // namespace gradwire::control
