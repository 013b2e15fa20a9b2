// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How ranks of a group that are no neighbors on the ring reach each other, and whether its small
/// ops go that way. Everything here is computed from the table alone, so every rank comes to the
/// same. Any thread; allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process_layout.h"
#include "base/result.h"
#include "base/types.h"
#include "collective/shapes/owners.h"
#include "collective/shapes/tile_costs.h"
#include "collective/tiles/tile_shares.h"
#include "control/formation/paths.h"
#include "ipc/control_messages.h"

namespace gradwire::control {

/// So many pairs of ranks, of those that do not look alike, are compared: it is done on the control
/// thread, of a table that a client brings.
inline constexpr std::uint32_t kComparisonsMax = 8192;

/// Two ranks that no pair of addresses connects, though they are no neighbors on the ring.
struct Apart {
  std::uint16_t a = 0;
  std::uint16_t b = 0;
  bool too_many = false;  ///< these and all after them were not compared: kComparisonsMax
  friend bool operator==(const Apart&, const Apart&) = default;
};

/// None if every rank can reach every other, those without members each that has some. A port that
/// leads to one other port alone (memif) connects the two ranks that have an address in its
/// network, if no third one has. Ranks whose addresses are in the same networks are compared once.
/// @param folding_ranks  so many of the last have no members, and are no part of the ring.
[[nodiscard]] std::optional<Apart> unconnected_ranks(std::span<const ipc::RankInfo> table,
                                                     std::uint16_t folding_ranks = 0);

/// For people.
[[nodiscard]] std::string text_of(const Apart& apart, std::span<const ipc::RankInfo> table);

/// What unconnected_ranks() finds, looked for once and only if somebody asks. The table outlives
/// it.
class Connections {
 public:
  explicit Connections(std::span<const ipc::RankInfo> table, std::uint16_t folding_ranks = 0)
      : table_(table), folding_ranks_(folding_ranks) {}
  [[nodiscard]] const std::optional<Apart>& apart();

 private:
  std::span<const ipc::RankInfo> table_;
  std::uint16_t folding_ranks_;
  std::optional<std::optional<Apart>> apart_;
};

/// Whether ops of a group may be direct, which all ranks must see alike.
struct DirectAgreement {
  std::uint64_t bytes = 0;           ///< collective::ShardConfig::direct.op_bytes; 0: none is
  std::uint64_t two_step_bytes = 0;  ///< likewise; 0: no op goes in two steps
  std::uint64_t gathered_bytes = 0;  ///< likewise; 0: no op is gathered
  std::uint16_t gathered_ranks = 0;  ///< likewise
  /// Who sums ops in two steps: those that say so, and those without members. nullptr: all do,
  /// since there are none.
  std::shared_ptr<const collective::Owners> owners;
  /// Why not, though rank 0's transport.direct_kib wants it; names the rank. Else empty.
  std::string why_not;
};
/// @param known  of the same table and ranks, so that two do not look twice; nullptr: its own.
[[nodiscard]] DirectAgreement direct_agreement(std::span<const ipc::RankInfo> table,
                                               std::uint16_t folding_ranks = 0,
                                               Connections* known = nullptr);

/// Whether large ops of a group go by tiles, which all ranks must see alike.
struct TileAgreement {
  bool possible = false;
  bool for_formats_alone = false;  ///< of an op without a format none does
  /// Which ops without a format do, else; nullptr: all that are not small.
  std::shared_ptr<const collective::TileCosts> costs;
  /// Who owns how much of all-reduces, by the rates of the ranks' ports. nullptr: each rank its
  /// segment of the ring.
  std::shared_ptr<const collective::TileShares> shares;
  /// Why no op without a format does, though rank 0's transport.tiles is not "never"; names the
  /// rank. Else empty.
  std::string why_not;
  /// Why no op may travel in a wire format; names the rank. Else empty.
  std::string why_no_formats;
};
/// @param known  as direct_agreement()'s.
/// @param lanes  of the group.
[[nodiscard]] TileAgreement tile_agreement(std::span<const ipc::RankInfo> table,
                                           std::uint16_t folding_ranks = 0,
                                           Connections* known = nullptr, std::uint8_t lanes = 1);

/// Whether data goes between any two processes of a group, which all ranks must see alike.
struct TransferAgreement {
  bool possible = false;
  /// Why not; names ranks. Else empty.
  std::string why_not;
  std::uint16_t streams = 1;  ///< that a pair of processes may have
};
/// A group for transfers alone has at most so many pairs of a process at one rank and any other,
/// and streams of them: a user may have many such groups.
inline constexpr std::uint64_t kPairsOfTransfersAlone = 1024;
/// @param table  of the ranks with members.
/// @param known  as direct_agreement()'s.
/// @param alone  the group is for transfers alone.
[[nodiscard]] TransferAgreement transfer_agreement(std::span<const ipc::RankInfo> table,
                                                   const GroupProcesses& processes,
                                                   Connections* known = nullptr,
                                                   bool alone = false);

/// The paths of frames from `rank` to the ranks that are no neighbors of it, without MAC
/// addresses, and the tokens of those packets. Both ends choose the same addresses. Nothing goes
/// between two ranks without members.
/// @param addresses  this daemon's own; `table[rank]` is its entry.
/// @return in order of rank; an error that names both ranks if nothing connects them.
[[nodiscard]] Result<std::vector<PeerPaths>> peer_paths(const GroupKey& key, std::uint16_t rank,
                                                        std::uint8_t lanes,
                                                        std::span<const ipc::RankInfo> table,
                                                        std::span<const LocalAddress> addresses,
                                                        std::uint16_t folding_ranks = 0);

}  // namespace gradwire::control
