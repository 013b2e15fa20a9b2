// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/require.h"
#include "base/sip_hash.h"
#include "collective/shapes/shape_ring.h"
#include "collective/shard.h"
#include "control/formation/folding.h"
#include "wire/packet.h"

namespace gradwire::control {
namespace {

/// In a hash's input, so that no two uses of a key give the same; secrets.cc has 2.
constexpr std::uint8_t kLinkTokenLabel = 3;

bool same(const ipc::RankInfo& a, const ipc::RankInfo& b) {
  static_assert(std::has_unique_object_representations_v<ipc::RankInfo>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

tl::unexpected<Error> bad(std::string text) {
  return fail(ErrorCode::kInvalidArgument, std::move(text));
}

Result<void> check_addresses(std::size_t rank, const ipc::RankInfo& info) {
  if (info.address_count > ipc::RankInfo::kMaxAddresses) {
    return bad(fmt::format("rank {} has {} addresses, must have at most {}", rank,
                           info.address_count, ipc::RankInfo::kMaxAddresses));
  }
  for (const ipc::RankAddress& address : addresses_of(info)) {
    const int most = address.family == 4 ? 32 : 128;
    if ((address.family != 4 && address.family != 6) || address.prefix_bits > most) {
      return bad(
          fmt::format("rank {} has an address of family {} with {} prefix bits, must be "
                      "family 4 with at most 32 or family 6 with at most 128",
                      rank, address.family, address.prefix_bits));
    }
  }
  return {};
}

Result<void> check_entry(std::size_t rank, const ipc::RankInfo& info) {
  if (info.magic != ipc::RankInfo::kMagic || info.version != ipc::RankInfo::kVersion ||
      info.bytes != sizeof info) {
    return bad(fmt::format(
        "the entry of rank {} has magic {:#010x}, version {} and {} bytes, must have {:#010x}, {} "
        "and {}: it does not come from a daemon of this release",
        rank, info.magic, info.version, info.bytes, ipc::RankInfo::kMagic, ipc::RankInfo::kVersion,
        sizeof info));
  }
  if (info.incarnation == 0)
    return bad(
        fmt::format("rank {} has incarnation 0, must be a random number that is not 0", rank));
  if (info.lanes == 0 || info.lanes > kMaxLanes) {
    return bad(fmt::format("rank {} has {} lanes, must be 1 to {}", rank, info.lanes, kMaxLanes));
  }
  if (info.max_payload_bytes < 64) {
    return bad(fmt::format("rank {} has payloads of {} bytes, must be at least 64", rank,
                           info.max_payload_bytes));
  }
  if (info.base_udp_port == 0 || info.base_udp_port + info.lanes - 1 > 0xffff) {
    return bad(fmt::format("rank {} has base UDP port {} for {} lanes, must be 1 to {}", rank,
                           info.base_udp_port, info.lanes, 0x10000 - info.lanes));
  }
  if (info.direct_kib > collective::kDirectBytesMax >> 10) {
    return bad(fmt::format("rank {} has direct ops of {} KiB, must be at most {}", rank,
                           info.direct_kib, collective::kDirectBytesMax >> 10));
  }
  if (info.two_step_kib > collective::kTwoStepKibMax) {
    return bad(
        fmt::format("rank {} has ops in two steps of {} KiB for each rank, must be at most {}",
                    rank, info.two_step_kib, collective::kTwoStepKibMax));
  }
  if (info.gathered_kib > collective::kGatheredBytesMax >> 10) {
    return bad(fmt::format("rank {} has gathered ops of {} KiB, must be at most {}", rank,
                           info.gathered_kib, collective::kGatheredBytesMax >> 10));
  }
  if (info.two_step_owner > 1) {
    return bad(fmt::format("rank {} is {} times an owner of ops in two steps, must be 0 or 1", rank,
                           info.two_step_owner));
  }
  if (info.source_ports > ipc::RankInfo::kAnySourcePort || info.folding > 2) {
    return bad(fmt::format("rank {} says {} of source ports, {} of folding: 0 to 2", rank,
                           info.source_ports, info.folding));
  }
  if (info.tiles > 1 || info.formats > 3 || info.tiles_wanted > ipc::RankInfo::kTilesNever) {
    return bad(
        fmt::format("rank {} says {} of tiles, {} of formats and {} of whether it wants "
                    "tiles: 0 or 1, 0 to 3, 0 to 2",
                    rank, info.tiles, info.formats, info.tiles_wanted));
  }
  for (std::size_t i = info.address_count; i < std::size(info.rates); ++i) {
    if (info.rates[i] == 0) continue;
    return bad(fmt::format("rank {} says the rate of address {}, and has {}", rank, i,
                           info.address_count));
  }
  if (auto ok = check_addresses(rank, info); !ok) return ok;
  if (const std::uint32_t right = checksum_of(info); info.checksum != right) {
    return bad(fmt::format(
        "the entry of rank {} has checksum {:08x}, and {:08x} is that of its bytes: it was changed "
        "on its way. Pass it on exactly as its daemon described it",
        rank, info.checksum, right));
  }
  return {};
}

Result<void> check_bounds(const ipc::JoinRequest& request) {
  if (request.group_id == 0) return bad("group id 0, must be a random number that is not 0");
  if (request.rank >= request.nranks) {
    return bad(fmt::format("rank {} in a group of {} ranks: ranks count from 0", request.rank,
                           request.nranks));
  }
  if (request.member_count == 0 || request.member_count > kMaxMembers) {
    return bad(
        fmt::format("{} members per rank, must be 1 to {}", request.member_count, kMaxMembers));
  }
  if (request.member >= request.member_count) {
    return bad(fmt::format("member {} in a rank of {} members: members count from 0",
                           request.member, request.member_count));
  }
  return {};
}

/// As an entry has it. One that is known is never 0.
std::uint16_t in_rate_units(std::uint64_t bps) noexcept {
  constexpr std::uint64_t kUnit = 100'000'000;
  if (bps == 0) return 0;
  return static_cast<std::uint16_t>(
      std::clamp<std::uint64_t>((bps + kUnit / 2) / kUnit, 1, UINT16_MAX));
}

/// The first two ranks that are one daemon, if there are any.
std::optional<std::pair<std::size_t, std::size_t>> same_daemon(
    std::span<const ipc::RankInfo> table) {
  std::unordered_map<std::uint64_t, std::size_t> ranks;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    const auto [found, is_new] = ranks.emplace(table[rank].incarnation, rank);
    if (!is_new) return std::pair{found->second, rank};
  }
  return std::nullopt;
}

/// For a join that says which process is where.
Result<std::optional<ProcessLayout>> layout_of(const ipc::JoinBody& join) {
  if (join.ranks.empty()) return std::optional<ProcessLayout>();
  auto layout = ProcessLayout::make(join.ranks, join.request.ring_ranks());
  if (!layout) return tl::unexpected(layout.error());
  // One without members says what rank 0 has.
  const std::uint16_t members =
      layout->members_of(join.request.folds_only() ? 0 : join.request.rank);
  if (join.request.member_count != members) {
    return bad(
        fmt::format("rank {} joined with {} members, but {} of the group's processes are "
                    "at that rank",
                    join.request.rank, join.request.member_count, members));
  }
  if (layout->is_plain()) return std::optional<ProcessLayout>();
  return std::optional(std::move(*layout));
}

/// What it says of keys is not looked at, if this daemon has some.
Result<void> check_own(const ipc::JoinBody& join, const ipc::RankInfo& own, bool has_keys) {
  const std::size_t rank = join.request.rank;
  const ipc::RankInfo& entry = join.table[rank];
  if (entry.incarnation != own.incarnation) {
    const auto found = std::ranges::find(join.table, own.incarnation, &ipc::RankInfo::incarnation);
    const std::string where = found == join.table.end()
                                  ? "not in the table"
                                  : fmt::format("rank {} there", found - join.table.begin());
    return fail(ErrorCode::kMismatch,
                fmt::format("the table has daemon {1:016x} as rank {0}, but this is daemon "
                            "{2:016x}, which is {3}: each rank must describe its own daemon",
                            rank, entry.incarnation, own.incarnation, where));
  }
  ipc::RankInfo ours = own;
  ours.secret = entry.secret;
  ours.checksum = entry.checksum;
  if (has_keys) std::ranges::copy(entry.keys, ours.keys);
  if (!same(entry, ours)) {
    return fail(ErrorCode::kMismatch,
                fmt::format("the entry of rank {} comes from this daemon but was changed: pass it "
                            "on exactly as the daemon described it",
                            rank));
  }
  if (entry.secret != own.secret) {
    return fail(ErrorCode::kPermission,
                fmt::format("the entry of rank {} comes from this daemon but was made for another "
                            "user: all processes of a rank must run as one user",
                            rank));
  }
  return {};
}

}  // namespace

std::uint32_t checksum_of(const ipc::RankInfo& info) {
  ipc::RankInfo unsealed = info;
  unsealed.checksum = 0;
  return wire::crc32c(std::as_bytes(std::span(&unsealed, 1)));
}

ipc::RankInfo make_rank_info(const DaemonInfo& daemon, std::uint8_t lanes,
                             std::span<const LocalAddress> addresses) {
  ipc::RankInfo info;
  info.lanes = lanes;
  info.incarnation = daemon.incarnation;
  info.max_payload_bytes = daemon.max_payload_bytes;
  info.features = daemon.features;
  info.base_udp_port = daemon.base_udp_port;
  info.direct_kib = daemon.direct_kib;
  info.two_step_kib = daemon.two_step_kib;
  info.gathered_kib = daemon.gathered_kib;
  info.gathered_ranks = daemon.gathered_ranks;
  info.two_step_owner = daemon.two_step_owner ? 1 : 0;
  info.fold_sources = daemon.fold_sources;
  info.folding = daemon.folding;
  info.source_ports = daemon.source_ports;
  info.transfers = daemon.transfers ? collective::kStreamsMax : 0;
  info.tiles = daemon.tiles ? 1 : 0;
  info.formats = daemon.tiles ? ipc::RankInfo::kAllFormats : 0;
  info.tiles_wanted = daemon.tiles_wanted;
  info.packet_ns = daemon.packet_ns;
  info.byte_ps = daemon.byte_ps;
  info.hop_ns = daemon.hop_ns;
  for (const LocalAddress& local : addresses) {
    if (info.address_count == ipc::RankInfo::kMaxAddresses) break;
    ipc::RankAddress& address = info.addresses[info.address_count++];
    std::copy(local.ip.bytes.begin(), local.ip.bytes.end(), address.ip);
    address.family = local.ip.family;
    address.prefix_bits = local.prefix_bits;
    address.routed = local.routed ? 1 : 0;
    address.single_peer = local.single_peer ? 1 : 0;
    address.rail = local.rail;
    info.rates[info.address_count - 1] = in_rate_units(local.rate_bps);
  }
  return info;
}

Result<Agreement> check_join(const ipc::JoinBody& join, const ipc::RankInfo& own,
                             const JoinKeys& keys) {
  if (auto ok = check_bounds(join.request); !ok) return tl::unexpected(ok.error());
  if (auto ok = check_folding_ranks(join); !ok) return tl::unexpected(ok.error());
  const std::vector<ipc::RankInfo>& table = join.table;
  auto layout = layout_of(join);
  if (!layout) return tl::unexpected(layout.error());
  std::uint32_t payload_bytes = UINT32_MAX;
  auto lanes = static_cast<std::uint8_t>(kMaxLanes);
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    if (auto ok = check_entry(rank, table[rank]); !ok) return tl::unexpected(ok.error());
    if (table[rank].features != table[0].features) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("the daemons of a group must have the same release and settings: {}",
                              collective::features_difference(rank, table[rank].features, 0,
                                                              table[0].features)));
    }
    payload_bytes = std::min(payload_bytes, table[rank].max_payload_bytes);
    lanes = std::min(lanes, static_cast<std::uint8_t>(table[rank].lanes));
  }
  if (const auto both = same_daemon(table)) {
    const std::string why = keys_difference(table[both->first], table[both->second]);
    return bad(fmt::format(
        "ranks {} and {} are the same daemon {:016x}{}: one daemon is one rank, and several "
        "processes on its host join as members of it",
        both->first, both->second, table[both->second].incarnation,
        why.empty() ? why : fmt::format(" in different entries ({})", why)));
  }
  if (auto ok = check_own(join, own, keys.cluster != nullptr); !ok) {
    return tl::unexpected(ok.error());
  }
  auto security = agree_on_keys(table, join.request.rank, keys);
  if (!security) return tl::unexpected(security.error());
  if (security->mode != security::Mode::kOff) payload_bytes = security->payload_bytes;
  return Agreement{payload_bytes / 64 * 64, lanes, own.features, std::move(*layout),
                   std::move(*security)};
}

std::uint64_t link_token(const GroupKey& key, std::uint8_t lane, std::uint16_t from,
                         std::uint16_t to, std::span<const ipc::RankInfo> table) {
  const SipHashKey secrets = {table[from].secret, table[to].secret};
  // One for each rank and lane, twice: no place to allocate.
  std::array<std::byte, 34> bytes{};
  std::size_t end = 0;
  const auto add = [&](auto value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      bytes[end++] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
    }
  };
  add(kLinkTokenLabel);
  add(key.group_id);
  add(key.epoch);
  add(lane);
  add(table[from].incarnation);
  add(table[to].incarnation);
  add(from);
  add(to);
  require(end == bytes.size(), "a token's input has other fields than it has room for");
  return sip_hash(secrets, bytes);
}

std::vector<NeighborTokens> neighbor_tokens(const GroupKey& key, std::uint8_t lanes,
                                            std::uint16_t rank,
                                            std::span<const ipc::RankInfo> table) {
  const auto nranks = static_cast<std::uint16_t>(table.size());
  const std::uint16_t up = collective::upstream_rank(rank, nranks);
  const std::uint16_t down = collective::downstream_rank(rank, nranks);
  std::vector<NeighborTokens> tokens(lanes);
  for (std::uint8_t lane = 0; lane < lanes; ++lane) {
    const auto both = [&](std::uint16_t other) {
      return collective::LinkTokens{link_token(key, lane, rank, other, table),
                                    link_token(key, lane, other, rank, table)};
    };
    tokens[lane] = {both(up), both(down)};
  }
  return tokens;
}

std::string difference(std::span<const ipc::RankInfo> a, std::span<const ipc::RankInfo> b) {
  if (a.size() != b.size()) return fmt::format("{} ranks against {}", a.size(), b.size());
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    if (a[rank].incarnation != b[rank].incarnation) {
      return fmt::format("rank {} is daemon {:016x} in one and {:016x} in the other", rank,
                         a[rank].incarnation, b[rank].incarnation);
    }
    if (!same(a[rank], b[rank])) {
      return fmt::format(
          "rank {} has addresses {} in one and {} in the other, or other properties differ", rank,
          addresses_text(a[rank]), addresses_text(b[rank]));
    }
  }
  return {};
}

}  // namespace gradwire::control
