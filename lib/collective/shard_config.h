// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a shard is made from, and what follows from it before there is one. Keys of the daemon's
/// configuration become what a shard counts in by the constructors. Plain data; any thread.
#pragma once

#include <rte_mempool.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sections.h"
#include "base/types.h"
#include "base/window.h"
#include "collective/links/seals.h"
#include "collective/off_ring/off_ring_config.h"
#include "collective/shapes/shape.h"
#include "collective/tiles/tile_cut.h"
#include "reduce/backend.h"
#include "transport/receiver.h"
#include "transport/sender.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::collective {

struct ShardTimeouts {
  ShardTimeouts() : ShardTimeouts(TimeoutsSection{}) {}
  explicit ShardTimeouts(const TimeoutsSection& keys)
      : formation_ns(defaults::ms(keys.formation_ms)),
        hello_interval_ns(defaults::ms(keys.hello_ms)),
        silence_ns(defaults::ms(keys.silence(false))),
        // Ten pings within the silence limit, so that lost packets do not look like a death.
        ping_interval_ns(std::min(defaults::ms(keys.ping_ms), silence_ns / 10)),
        leave_ns(defaults::ms(keys.leave_ms)) {}

  TimeNs formation_ns = 0;       ///< from start() until formed
  TimeNs hello_interval_ns = 0;  ///< between hellos
  TimeNs silence_ns = 0;         ///< a neighbor not heard for so long is dead
  TimeNs ping_interval_ns = 0;   ///< after sending nothing down for so long: ping
  TimeNs leave_ns = 0;           ///< from leave() until closed, whatever the neighbors say
  /// An op that every rank has posted, and no rank moved for so long while it polled: a bug, and
  /// the group aborts with AbortCode::kStuck.
  TimeNs stuck_ns = 30'000'000'000;
  friend bool operator==(const ShardTimeouts&, const ShardTimeouts&) = default;
};

/// What packets of the links between two ranks carry, from the table.
struct LinkTokens {
  std::uint64_t to = 0;    ///< packets that go there
  std::uint64_t from = 0;  ///< packets from there
  friend bool operator==(const LinkTokens&, const LinkTokens&) = default;
};

/// From how many UDP source ports a rank may send to another: each is another way through a fabric
/// of paths of equal cost (doc/protocol/paths.md, Source ports).
struct SourcePorts {
  std::uint8_t count = 1;  ///< [1, wire::kSourcePortsMax]
  bool known = false;      ///< the other rank understands what packets say of source ports
  friend bool operator==(const SourcePorts&, const SourcePorts&) = default;
};

/// One of several ways to a rank: by a port of this host to a port of that one.
struct LinkPath {
  wire::IpAddress ip;         ///< where packets from there come from
  wire::FrameTemplate frame;  ///< of packets that go there
  std::uint16_t port = 0;     ///< index of the lane's port that leads there
  friend bool operator==(const LinkPath&, const LinkPath&) = default;
};

/// How packets go to a rank and come from it, from the table.
struct PeerAddress {
  std::uint64_t incarnation = 0;  ///< of its daemon; hellos say it
  LinkTokens tokens;
  wire::IpAddress ip;            ///< packets from elsewhere are foreign
  wire::FrameTemplate frame;     ///< of packets that go there
  std::uint16_t port = 0;        ///< index of the lane's port that leads there
  std::vector<LinkPath> others;  ///< further paths, for when that one is silent
  SourcePorts sources;
  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

struct ShardConfig {
  ShardConfig() : ShardConfig(TransportSection{}, LimitsSection{}, TimeoutsSection{}) {}
  /// With what the daemon's configuration says of every group.
  explicit ShardConfig(const TransportSection& transport, const LimitsSection& limits,
                       const TimeoutsSection& timeout_keys)
      : congestion(transport::parse_congestion(transport.congestion).value()),
        swift_target_ns(defaults::us(transport.swift_target_us)),
        window_packets(transport.window_packets != kAuto
                           ? static_cast<std::uint32_t>(transport.window_packets)
                           : window_packets_for(0)),
        transit_packets(transport.transit_packets != kAuto
                            ? static_cast<std::uint32_t>(transport.transit_packets)
                            : window_packets),
        eager_packets(static_cast<std::uint32_t>(transport.eager_packets)),
        max_active_ops(static_cast<std::uint32_t>(limits.active_ops)),
        max_chunks(static_cast<std::uint32_t>(limits.lane_chunks)),
        exchange_bytes(transport.exchange_kib << 10),
        payload_crc(transport.integrity == "payload"),
        direct(transport),
        tiles(transport),
        timeouts(timeout_keys) {
    sender.rate_bps = static_cast<std::uint64_t>(transport.rate_gbps * 1e9);
  }

  GroupKey key;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;  ///< with members: they are the ring
  /// So many ranks from `nranks` on have no members. They sum ops in two steps and all-reduces by
  /// tiles, and do nothing else. Each hangs on one rank of the ring (attached_rank()); what is said
  /// of the downstream rank here is that one, and of the upstream rank too.
  std::uint16_t folding_ranks = 0;
  std::uint16_t member_count = 1;         ///< of this rank; if it folds only, of each other, or 1
  const ProcessLayout* layout = nullptr;  ///< nullptr: every rank has as many. Outlives the shard
  std::uint8_t lane = 0;
  std::uint8_t lanes = 1;
  std::uint32_t payload_bytes = 0;  ///< multiple of 64, the same on every rank
  std::uint64_t table_digest = 0;   ///< of the group's table, the same on every rank
  std::uint64_t incarnation = 0;    ///< of this daemon
  /// The neighbors on the ring. With two ranks they are one rank: all goes downstream, and the
  /// upstream's address is the one that counts. Frames of further paths are as long as the first's.
  PeerAddress downstream;
  PeerAddress upstream;
  /// Keys of packets that go to other ranks and come from there. nullptr: packets are not sealed.
  std::shared_ptr<Seals> seals;
  rte_mempool* packet_pool = nullptr;  ///< data room >= frame headers + 64 + payload_bytes
  /// Where payloads lie in mbufs of their own, in a GPU's memory: the CPU neither reads nor writes
  /// them, frames are a header of packet_pool and a payload behind it, and the backend makes CRCs.
  /// nullptr: a payload follows its header.
  rte_mempool* payload_pool = nullptr;
  rte_mempool* control_pool = nullptr;  ///< acknowledgements, hellos, aborts: room for a hello
  transport::SenderConfig sender;
  transport::ReceiverConfig receiver;
  std::uint64_t window_bytes = 0;  ///< the most in flight; 0 = window_packets full
  transport::CongestionKind congestion{};
  TimeNs swift_target_ns = 0;  ///< of the controller `swift`
  /// For the simulator alone: bytes on the wire for each byte of payload held, so that windows and
  /// pacing see long packets that take little memory.
  std::uint32_t payload_scale = 1;
  /// Unacknowledged data packets; bounds the mbufs held. "auto" is the largest payload's.
  std::uint32_t window_packets = 0;
  /// Received and waiting to go on; beyond it chunks spill. "auto": as the window.
  std::uint32_t transit_packets = 0;
  /// Sent ahead of the grant, both ways; equal on all ranks.
  std::uint32_t eager_packets = 0;
  /// Posted and unfinished; a power of two.
  std::uint32_t max_active_ops = 0;
  /// Room in bitmaps: chunks of all active ops on this lane.
  std::uint32_t max_chunks = 0;
  std::uint32_t batch_entries = 1;  ///< chunks handed to the backend at once; 1 keeps a payload in
                                    ///< L1 between its reduction and its CRC
  /// Chunks that the backend may have at once. One that finishes later than it is asked needs room
  /// for all that the credit lets in, and for own chunks: see pending_entries_wanted().
  std::uint32_t pending_entries = 128;
  /// The largest exchange (collective/shapes/shape_exchange.h), whole KiB; equal on all ranks.
  std::uint64_t exchange_bytes = 0;
  /// Payloads carry a CRC, which the receiver checks (transport.integrity = "payload"); equal on
  /// all ranks. Only memory that loses no bit does without.
  bool payload_crc = true;
  /// [all_ranks()]; nothing of this rank and of its neighbors on the ring.
  std::vector<PeerAddress> peers;
  DirectConfig direct;
  TransferConfig transfers;
  TileConfig tiles;
  std::uint64_t streaming_bytes = 8u << 20;  ///< results of ops from this size on are written past
                                             ///< the cache
  bool received_mbufs_are_exclusive =
      false;  ///< the driver's row: write in place even if refcnt > 1
  ShardTimeouts timeouts;

  [[nodiscard]] std::uint16_t all_ranks() const noexcept {
    return static_cast<std::uint16_t>(nranks + folding_ranks);
  }
  /// As hellos say it: members of each rank, 0 if the table says who is where.
  [[nodiscard]] std::uint16_t members_said() const noexcept {
    return layout != nullptr ? 0 : member_count;
  }
  /// Whether this rank has no members.
  [[nodiscard]] bool folds_only() const noexcept { return rank >= nranks; }
  /// Whether this rank is in a ring.
  [[nodiscard]] bool has_ring() const noexcept { return !folds_only() && !transfers.alone; }
  [[nodiscard]] GroupProcesses processes() const noexcept { return {nranks, member_count, layout}; }
  [[nodiscard]] ShapeGroup shape_group() const noexcept {
    return {rank,
            nranks,
            member_count,
            exchange_bytes,
            layout,
            direct.op_bytes,
            payload_bytes,
            direct.two_step_bytes,
            direct.gathered_bytes,
            direct.gathered_ranks,
            direct.owners.get(),
            tiles.used && !tiles.for_formats_alone,
            tiles.costs.get()};
  }
  [[nodiscard]] TileGroup tile_group() const noexcept {
    return {.payload_bytes = payload_bytes,
            .lanes = lanes,
            .all_ranks = all_ranks(),
            .processes = processes(),
            .shares = tiles.shares.get(),
            .tile_bytes = tiles.tile_bytes};
  }
  friend bool operator==(const ShardConfig&, const ShardConfig&) = default;
};

/// The rank of the ring on which a rank without members hangs: of so many ranks in the ring.
[[nodiscard]] constexpr std::uint16_t attached_rank(std::uint16_t folding,
                                                    std::uint16_t nranks) noexcept {
  return static_cast<std::uint16_t>(folding - nranks);
}
/// Whether packets go between any two ranks, so that `peers` is needed.
[[nodiscard]] inline bool needs_all_ranks(const ShardConfig& config) noexcept {
  return (config.direct.op_bytes != 0 || config.transfers.pairs_max != 0 || config.tiles.used) &&
         config.nranks > 1;
}
/// Bytes of scratch memory that a shard has for ops off the ring.
/// @param at_once  whether its backend works at once.
[[nodiscard]] std::uint64_t direct_memory_bytes(const ShardConfig& config, bool at_once) noexcept;
/// Whether a shard can be made of it and of `backend`; if not, the error names value and bound.
[[nodiscard]] Result<void> check(const ShardConfig& config, const reduce::Backend* backend);
/// The transport's, with room for the window.
[[nodiscard]] transport::SenderConfig sender_config(const ShardConfig& config) noexcept;
/// The most that the congestion controller lets be in flight.
[[nodiscard]] std::uint64_t window_bytes(const ShardConfig& config) noexcept;
/// Bytes of a full packet on the wire, as windows and pacing see it.
[[nodiscard]] std::uint32_t full_packet_wire_bytes(const ShardConfig& config) noexcept;
/// mbufs of the packet pool that a shard of this configuration can hold at once: the lane's mempool
/// has to have so many for each shard, and its receive descriptors beside them (design rule 3).
[[nodiscard]] std::uint32_t packet_mbufs_needed(const ShardConfig& config) noexcept;
/// Where `window_packets` is 0 it becomes window_packets_for() the payload, where `transit_packets`
/// is 0 the window.
void settle_windows(ShardConfig& config, std::uint32_t payload_bytes) noexcept;
/// Makes it one of a group for transfers alone: with the window that it has, and no memory for ops.
void settle_transfers_alone(ShardConfig& config) noexcept;
/// What every rank of a group must have alike, for the table (RankInfo::features): eager_packets,
/// kNoPayloadCrcFeature, kTokenFeature, and exchange_bytes in KiB from bit 16 on.
[[nodiscard]] std::uint32_t features_of(const ShardConfig& config) noexcept;
/// Payloads carry no CRC.
inline constexpr std::uint32_t kNoPayloadCrcFeature = 1u << 14;
/// Packets carry the token of their link.
inline constexpr std::uint32_t kTokenFeature = 1u << 15;
/// Where the features of two ranks differ, for people: "transport.eager_packets is 32 at rank 1 and
/// 16 at rank 0"; empty where they do not.
[[nodiscard]] std::string features_difference(std::size_t rank, std::uint32_t features,
                                              std::size_t other_rank, std::uint32_t other);
/// How many entries a shard needs so that a slow backend holds back its neighbors by credit instead
/// of dropping packets.
[[nodiscard]] std::uint32_t pending_entries_wanted(const ShardConfig& config) noexcept;
/// Chunks of one op that fall to one lane; what max_chunks is compared with. A count of kBytes is
/// one of bytes here: an op that moves elements of any size moves uint8.
[[nodiscard]] std::uint64_t lane_chunks(const ShapeGroup& group, std::uint32_t payload_bytes,
                                        std::uint8_t lanes, const ShapeCall& call) noexcept;
/// For an all-reduce that is no exchange.
[[nodiscard]] std::uint64_t lane_chunks(std::uint64_t count, DataType datatype,
                                        std::uint16_t nranks, std::uint32_t payload_bytes,
                                        std::uint8_t lanes) noexcept;

}  // namespace gradwire::collective
