// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The table of a group: one RankInfo for each rank, the same on every rank, exchanged by the
/// clients' own rendezvous. Everything here is computed from the table alone, so every rank gets
/// the same result without asking the others. Any thread; allocates.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_layout.h"
#include "base/result.h"
#include "base/sip_hash.h"
#include "base/types.h"
#include "control/formation/paths.h"
#include "control/keys/join_keys.h"
#include "control/options.h"
#include "ipc/join_message.h"
#include "port/too_big.h"
#include "wire/frame.h"

namespace gradwire::control {

/// A random number for a daemon that starts; never 0. @return kSystem if the kernel gives no random
/// number.
[[nodiscard]] Result<std::uint64_t> random_incarnation();
[[nodiscard]] Result<SipHashKey> random_secret();

/// The part of an entry that only this user's processes learn. It is always the same for one user,
/// since the members of a rank compare their tables.
[[nodiscard]] std::uint32_t secret_for(const SipHashKey& daemon_secret, uid_t uid) noexcept;

/// The addresses of an entry that are used.
[[nodiscard]] inline std::span<const ipc::RankAddress> addresses_of(
    const ipc::RankInfo& info) noexcept {
  return std::span(info.addresses)
      .first(std::min<std::size_t>(info.address_count, ipc::RankInfo::kMaxAddresses));
}

/// Makes this daemon's own entry, without a secret.
[[nodiscard]] ipc::RankInfo make_rank_info(const DaemonInfo& daemon, std::uint8_t lanes,
                                           std::span<const LocalAddress> addresses);

/// Of an entry's bytes, whatever its own checksum is: each one is sealed with it when it is
/// complete.
[[nodiscard]] std::uint32_t checksum_of(const ipc::RankInfo& info);

/// What all ranks of a table agree on.
struct Agreement {
  /// The smallest of all ranks, rounded down to 64; of sealed packets if the mode is not off.
  std::uint32_t payload_bytes = 0;
  std::uint8_t lanes = 0;  ///< the smallest number of all ranks
  std::uint32_t features = 0;
  /// Which process is at which rank, if ranks differ in members or processes are numbered in
  /// another order than rank by rank.
  std::optional<ProcessLayout> layout{};
  GroupSecurity security{};
};

/// Checks a join against its bounds and its table, and the table against `own`, this daemon's
/// entry without what it says of keys.
/// @param keys  without an argument: the daemon has none.
/// @return the agreement, or an error that names the rank and the field.
[[nodiscard]] Result<Agreement> check_join(const ipc::JoinBody& join, const ipc::RankInfo& own,
                                           const JoinKeys& keys = {});

/// What a group is for, beside what its table says.
struct GroupUse {
  std::uint16_t folding_ranks = 0;  ///< so many of the last have no members
  bool tiles = false;               ///< the group has ops by tiles
  std::uint32_t tile_model = 0;  ///< by which it chooses them: collective::kTileModel; 0: by none
  bool transfers_alone = false;  ///< it has no ops
};

/// Hash over key, agreement, every entry, field by field, who is at which rank, and use: equal
/// digests in the hellos mean equal tables.
/// @param member_count  of each rank, if the agreement has no layout.
[[nodiscard]] std::uint64_t table_digest(const GroupKey& key, std::uint16_t member_count,
                                         const Agreement& agreement,
                                         std::span<const ipc::RankInfo> table,
                                         const GroupUse& use = {});

/// SHA-256 of what table_digest() is of: nobody finds two tables of one hash.
[[nodiscard]] security::Sha256 table_hash(const GroupKey& key, std::uint16_t member_count,
                                          const Agreement& agreement,
                                          std::span<const ipc::RankInfo> table,
                                          const GroupUse& use = {});

/// Describes where two tables of a group differ; empty if they are equal.
[[nodiscard]] std::string difference(std::span<const ipc::RankInfo> a,
                                     std::span<const ipc::RankInfo> b);

/// The token in packets from one rank to another on a lane, without which nobody can forge one: a
/// pseudo-random function of the group, the lane, and the two ranks and their daemons, keyed by the
/// secrets of these two entries. The other entries do not matter, so that two neighbors whose
/// tables differ elsewhere can still tell each other.
[[nodiscard]] std::uint64_t link_token(const GroupKey& key, std::uint8_t lane, std::uint16_t from,
                                       std::uint16_t to, std::span<const ipc::RankInfo> table);
/// The tokens for the neighbors of `rank`, by lane.
[[nodiscard]] std::vector<NeighborTokens> neighbor_tokens(const GroupKey& key, std::uint8_t lanes,
                                                          std::uint16_t rank,
                                                          std::span<const ipc::RankInfo> table);

struct AddressPair {
  wire::IpAddress upstream;
  wire::IpAddress downstream;
};
/// What a rail's name is in a table. @return 0 if it is empty.
[[nodiscard]] std::uint32_t rail_hash(std::string_view name) noexcept;

/// Pairs the addresses of two neighbors, in the order of `upstream`; both ends use these pairs for
/// the links between them, lane by lane. Those of rails with one name come first, if a network or
/// routes connect them; then, in order, those in one network (by both prefixes); then, in order,
/// those that both have a route beyond their network. Rails with different names are never paired.
/// Empty if nothing connects them.
[[nodiscard]] std::vector<AddressPair> common_addresses(const ipc::RankInfo& upstream,
                                                        const ipc::RankInfo& downstream);
/// Whether there are any, whoever is upstream.
[[nodiscard]] bool have_common_address(const ipc::RankInfo& a, const ipc::RankInfo& b);

/// The paths of frames from `rank` to its neighbor, without the neighbor's MAC address: one for
/// each pair of common addresses.
/// @param addresses this daemon's own addresses; `own` is its entry.
/// @return an error that names both ranks if nothing connects them, or if they have one address.
[[nodiscard]] Result<std::vector<NeighborPath>> neighbor_paths(
    std::uint16_t rank, std::uint16_t neighbor, bool downstream,
    std::span<const ipc::RankInfo> table, const ipc::RankInfo& own,
    std::span<const LocalAddress> addresses);

/// As above, for given pairs.
[[nodiscard]] Result<std::vector<NeighborPath>> paths_by(std::vector<AddressPair> pairs,
                                                         std::uint16_t rank, std::uint16_t other,
                                                         bool downstream,
                                                         std::span<const ipc::RankInfo> table,
                                                         std::span<const LocalAddress> addresses);

/// Says whose MAC address has not been found yet: the rank's, or that of the router to it.
/// @param side  "upstream" or "downstream".
[[nodiscard]] std::string unanswered_text(const NeighborPath& path, std::string_view side);
/// "the router A says that its next link carries N bytes, and a packet to B has M".
[[nodiscard]] std::string text_of(const port::TooBig& message);

/// "10.0.0.1/24, 10.1.0.1/24"
[[nodiscard]] std::string addresses_text(const ipc::RankInfo& info);

}  // namespace gradwire::control
