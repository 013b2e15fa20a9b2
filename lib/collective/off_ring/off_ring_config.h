// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a shard's parts off the ring are made from: small ops (Direct), transfers (Transfers) and
/// large ops by tiles (Tiles); and the bounds of it. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/sections.h"
#include "collective/shapes/owners.h"
#include "collective/shapes/tile_costs.h"
#include "collective/tiles/tile_cut.h"

namespace gradwire::collective {

/// Packets that a shard sends in a round, of direct ops, of transfers and of ops by tiles: none of
/// them takes all of a port's room, or many buffers.
inline constexpr std::uint32_t kDirectBurst = 16;
inline constexpr std::uint32_t kTransferBurst = 16;
inline constexpr std::uint32_t kTileBurst = 16;
/// Entries of direct ops that a backend which does not work at once may have of a shard; they take
/// no place of the ring's chunks.
inline constexpr std::uint32_t kDirectFolds = 64;
/// The most that DirectConfig::op_bytes may be: a shard has four times as much memory for them.
inline constexpr std::uint64_t kDirectBytesMax = 1u << 20;
/// The most that DirectConfig::two_step_bytes may be.
inline constexpr std::uint64_t kTwoStepBytesMax = 8u << 20;
/// The most that transport.two_step_kib may be, which is what each rank may give.
inline constexpr std::uint16_t kTwoStepKibMax = 256;
/// The most that DirectConfig::gathered_bytes may be.
inline constexpr std::uint64_t kGatheredBytesMax = 1u << 20;
/// The most that TransferConfig::pairs_max may be: a stream takes some 250 bytes each way.
inline constexpr std::uint32_t kPairsMax = 1u << 17;
/// Streams that a pair of processes may have, and all pairs of a rank together, one each apart.
inline constexpr std::uint16_t kStreamsMax = 64;
inline constexpr std::uint32_t kStreamsOfRankMax = 4096;

/// Small ops. All but the memory is equal on all ranks.
struct DirectConfig {
  DirectConfig() = default;
  explicit DirectConfig(const TransportSection& keys)
      : gathered_ranks(static_cast<std::uint16_t>(keys.gathered_ranks)) {}

  /// The largest direct op (collective/shapes/shape_direct.h), all ranks' parts together. 0: there
  /// are none, and none of the others below.
  std::uint64_t op_bytes = 0;
  /// The largest op in two steps (collective/shapes/shape_direct.h), of what a rank's part takes.
  /// 0: there are none.
  std::uint64_t two_step_bytes = 0;
  /// The largest gathered op (collective/shapes/shape_gathered.h), of what all ranks give. 0: there
  /// are none.
  std::uint64_t gathered_bytes = 0;
  /// Groups of more ranks than so many have gathered ops.
  std::uint16_t gathered_ranks = 0;
  /// Which ranks sum ops in two steps; nullptr: all do.
  std::shared_ptr<const Owners> owners;
  /// Memory for such ops that the backend can read and write, of direct_memory_bytes(). nullptr:
  /// the shard makes its own, which only the CPU can.
  std::shared_ptr<std::byte[]> memory;
  friend bool operator==(const DirectConfig&, const DirectConfig&) = default;
};

/// Sends and receives between processes.
struct TransferConfig {
  /// Streams of ordered pairs of processes between which this rank may transfer in the life of the
  /// group, each way. 0: it has no transfers.
  std::uint32_t pairs_max = 0;
  std::uint16_t streams = 1;  ///< that a pair may have; equal on all ranks
  /// The group has two ranks, transfers and nothing else: settle_transfers_alone(). Equal on both.
  bool alone = false;
  friend bool operator==(const TransferConfig&, const TransferConfig&) = default;
};

/// Large ops. All but the memory is equal on all ranks.
struct TileConfig {
  TileConfig() = default;
  explicit TileConfig(const TransportSection& keys) : scratch_bytes(keys.tile_scratch_kib << 10) {}

  bool used = false;  ///< if the backend works at once
  /// An op without a wire format never goes by tiles.
  bool for_formats_alone = false;
  /// Says otherwise which ops go by tiles; nullptr: all.
  std::shared_ptr<const TileCosts> costs;
  /// Who owns how much of an all-reduce; nullptr: each rank its segment of the ring, if there are
  /// no ranks without members.
  std::shared_ptr<const TileShares> shares;
  std::uint32_t tile_bytes = kTileBytes;  ///< as TileGroup's
  /// Memory of an owner's lane for parts and results (transport.tile_scratch_kib).
  std::uint64_t scratch_bytes = 0;
  friend bool operator==(const TileConfig&, const TileConfig&) = default;
};

}  // namespace gradwire::collective
