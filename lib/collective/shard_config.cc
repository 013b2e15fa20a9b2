// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shard_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/window.h"
#include "collective/ops/op_table.h"
#include "collective/shapes/partition.h"
#include "collective/shapes/shape.h"
#include "collective/shapes/shape_direct.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

namespace {

/// Whether packets go to a rank which `peers` alone knows.
bool goes_off_ring(const ShardConfig& c, std::uint16_t other) noexcept {
  if (c.folds_only()) return other < c.nranks && other != attached_rank(c.rank, c.nranks);
  if (other == c.rank) return false;
  return other >= c.nranks ||
         (other != downstream_rank(c.rank, c.nranks) && other != upstream_rank(c.rank, c.nranks));
}

/// What a sealed packet is longer by.
std::size_t seal_bytes(const ShardConfig& c) noexcept {
  return c.seals != nullptr ? wire::kSealTagBytes : 0;
}

/// Whether there are keys for each rank with which this one exchanges packets.
bool has_keys(const ShardConfig& c) noexcept {
  if (c.seals == nullptr || c.nranks == 1) return true;
  if (!c.folds_only() && (!c.seals->has(downstream_rank(c.rank, c.nranks)) ||
                          !c.seals->has(upstream_rank(c.rank, c.nranks))))
    return false;
  if (c.folds_only() && !c.seals->has(attached_rank(c.rank, c.nranks))) return false;
  for (std::uint16_t other = 0; needs_all_ranks(c) && other < c.all_ranks(); ++other) {
    if (goes_off_ring(c, other) && !c.seals->has(other)) return false;
  }
  return c.rank >= c.folding_ranks || c.seals->has(static_cast<std::uint16_t>(c.nranks + c.rank));
}

/// Whether each rank has a share of what goes by tiles, if that is not the ring's segment.
bool has_right_shares(const ShardConfig& c) noexcept {
  return c.tiles.shares == nullptr ? c.folding_ranks == 0
                                   : c.tiles.shares->ranks() == c.all_ranks();
}

}  // namespace

Result<void> check(const ShardConfig& c, const reduce::Backend* backend) {
  const bool has_neighbors = link_count(c.nranks) > 0;
  const bool needs_upstream = c.nranks > 2 && !c.folds_only();
  const auto bad = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (backend == nullptr) return bad("a shard needs a reduce backend");
  if (c.nranks < 1 || c.nranks > kMaxRanks)
    return bad(fmt::format("nranks is {}, must be 1 to {}", c.nranks, kMaxRanks));
  if (c.rank >= c.all_ranks())
    return bad(fmt::format("rank is {}, must be below nranks, {}", c.rank, c.all_ranks()));
  if (c.transfers.alone && (c.nranks != 2 || c.folding_ranks != 0 || c.transfers.pairs_max == 0 ||
                            c.direct.op_bytes != 0 || c.direct.gathered_bytes != 0 || c.tiles.used))
    return bad("a group for transfers alone has two ranks, and neither small ops nor ops by tiles");
  if (c.folding_ranks != 0 &&
      (c.nranks < 2 || c.folding_ranks > c.nranks || c.all_ranks() > kMaxRanks ||
       c.direct.two_step_bytes == 0 || c.direct.owners == nullptr))
    return bad(
        fmt::format("{} ranks without members beside {} with: as many at most, beside 2 at least, "
                    "{} in all, in a group that has ops in two steps and names who sums them",
                    c.folding_ranks, c.nranks, kMaxRanks));
  if (c.member_count < 1 || c.member_count > kMaxMembers)
    return bad(fmt::format("member count is {}, must be 1 to {}", c.member_count, kMaxMembers));
  if (c.layout != nullptr && (c.layout->nranks() != c.nranks ||
                              (!c.folds_only() && c.layout->members_of(c.rank) != c.member_count)))
    return bad(
        fmt::format("rank {} of {} has {} members, which is not what the layout of its "
                    "group's processes says",
                    c.rank, c.nranks, c.member_count));
  if (c.lanes < 1 || c.lanes > kMaxLanes || c.lane >= c.lanes)
    return bad(
        fmt::format("lane {} of {}: must be below a count of 1 to {}", c.lane, c.lanes, kMaxLanes));
  if (c.payload_bytes < 64 || c.payload_bytes % 64 != 0 || c.payload_bytes > 65'472)
    return bad(fmt::format("payload is {} bytes, must be a multiple of 64 from 64 to 65472",
                           c.payload_bytes));
  if (!std::has_single_bit(c.max_active_ops) || c.max_active_ops > OpTable::kDescriptorsKept)
    return bad(fmt::format("max active ops is {}, must be a power of two up to {}",
                           c.max_active_ops, OpTable::kDescriptorsKept));
  if (c.eager_packets >= kNoPayloadCrcFeature || c.exchange_bytes % 1024 != 0 ||
      c.exchange_bytes >> 10 > 0xffff)
    return bad(
        fmt::format("an eager allowance of {} packets and exchanges of {} bytes: 16,383 at "
                    "most, and whole KiB up to 65,535",
                    c.eager_packets, c.exchange_bytes));
  if (c.batch_entries < 1 || c.pending_entries < c.batch_entries)
    return bad(fmt::format("{} pending entries must be at least a batch of {}, which is 1 or more",
                           c.pending_entries, c.batch_entries));
  if (c.window_packets < 2 || c.transit_packets < 1 || c.eager_packets < 1 || c.max_chunks < 1)
    return bad("window needs 2 packets, transit, eager and chunks 1 at least");
  if (has_neighbors && (c.packet_pool == nullptr || c.control_pool == nullptr))
    return bad("a shard with neighbors needs its two mempools");
  if (has_neighbors &&
      (c.downstream.frame.bytes() == 0 || (needs_upstream && c.upstream.frame.bytes() == 0)))
    return bad("a shard with neighbors needs the frames that lead to them");
  if (c.direct.two_step_bytes != 0 &&
      (c.direct.op_bytes == 0 || c.direct.two_step_bytes > kTwoStepBytesMax ||
       c.direct.two_step_bytes % 1024 != 0))
    return bad(
        fmt::format("ops of {} bytes in two steps: whole KiB up to {}, if there are direct "
                    "ops",
                    c.direct.two_step_bytes, kTwoStepBytesMax >> 10));
  if (c.direct.owners != nullptr && c.direct.owners->nranks() != c.all_ranks())
    return bad(fmt::format("owners among {} ranks, in a group of {}", c.direct.owners->nranks(),
                           c.all_ranks()));
  if (c.direct.gathered_bytes != 0 &&
      (c.direct.op_bytes == 0 || c.direct.gathered_bytes > kGatheredBytesMax ||
       c.direct.gathered_bytes % 1024 != 0))
    return bad(fmt::format("gathered ops of {} bytes: whole KiB up to {}, if there are direct ops",
                           c.direct.gathered_bytes, kGatheredBytesMax >> 10));
  if (c.direct.op_bytes != 0 && has_neighbors) {
    if (c.direct.op_bytes > kDirectBytesMax || c.direct.op_bytes % 1024 != 0)
      return bad(fmt::format("direct ops of {} bytes: whole KiB up to {}", c.direct.op_bytes,
                             kDirectBytesMax >> 10));
    if (backend->sources_max() < c.nranks)
      return bad(
          fmt::format("direct ops of {} ranks are not for the backend {}, which folds what "
                      "{} ranks give at most",
                      c.nranks, backend->name(), backend->sources_max()));
  }
  if (needs_all_ranks(c) && c.peers.size() != c.all_ranks())
    return bad(fmt::format("direct ops and transfers need addresses of all {} ranks, not of {}",
                           c.all_ranks(), c.peers.size()));
  for (std::uint16_t other = 0; needs_all_ranks(c) && other < c.all_ranks(); ++other) {
    if (goes_off_ring(c, other) && c.peers[other].frame.bytes() == 0)
      return bad(
          fmt::format("direct ops and transfers need the frames that lead to rank {}", other));
  }
  if (!has_keys(c)) return bad("sealed packets need keys of each rank to which they go");
  if (c.transfers.pairs_max > kPairsMax)
    return bad(fmt::format("transfers between {} pairs of processes: {} at most",
                           c.transfers.pairs_max, kPairsMax));
  if (c.transfers.streams == 0 || c.transfers.streams > kStreamsMax)
    return bad(fmt::format("{} streams of a pair of processes: 1 to {}", c.transfers.streams,
                           kStreamsMax));
  if (c.transfers.pairs_max != 0 && c.payload_pool != nullptr)
    return bad("transfers are not for payloads in a GPU's memory");
  if (c.tiles.used && (c.batch_entries != 1 || !backend->runs_at_once()))
    return bad(
        fmt::format("ops by tiles are for backends that work at once, not for the backend {}",
                    backend->name()));
  if (c.tiles.used && !has_right_shares(c))
    return bad(
        fmt::format("ops by tiles of {} ranks, {} of them without members, need shares of as many",
                    c.all_ranks(), c.folding_ranks));
  if (c.payload_pool != nullptr && backend->runs_at_once())
    return bad(
        fmt::format("payloads in a GPU's memory are not for the backend {}", backend->name()));
  if (c.payload_pool != nullptr && !c.payload_crc)
    return bad("payloads in a GPU's memory need their CRC (transport.integrity = payload)");
  if (has_neighbors && c.payload_pool != nullptr &&
      rte_pktmbuf_data_room_size(c.payload_pool) < c.payload_bytes)
    return bad(fmt::format("a payload of {} bytes does not fit the payload mempool's {}",
                           c.payload_bytes, rte_pktmbuf_data_room_size(c.payload_pool)));
  if (c.payload_pool != nullptr && c.seals != nullptr)
    return bad("payloads in a GPU's memory pass no CPU that could seal them (security.mode)");
  if (has_neighbors && rte_pktmbuf_data_room_size(c.packet_pool) <
                           RTE_PKTMBUF_HEADROOM + c.downstream.frame.bytes() + wire::kHeaderBytes +
                               c.payload_bytes + seal_bytes(c))
    return bad(fmt::format("a payload of {} bytes does not fit the mempool's data room of {}",
                           c.payload_bytes, rte_pktmbuf_data_room_size(c.packet_pool)));
  return {};
}

std::uint64_t direct_memory_bytes(const ShardConfig& config, bool at_once) noexcept {
  return 2 * direct::scratch_bytes(config.direct.op_bytes, config.direct.two_step_bytes,
                                   config.direct.gathered_bytes, !at_once);
}

transport::SenderConfig sender_config(const ShardConfig& config) noexcept {
  transport::SenderConfig sender = config.sender;
  // Room for numbers of packets that were repeated and not yet resolved, beside the window.
  const std::uint32_t numbers = std::bit_ceil(config.window_packets * 4);
  sender.max_packets_in_flight = std::max(sender.max_packets_in_flight, numbers);
  return sender;
}

std::uint32_t full_packet_wire_bytes(const ShardConfig& config) noexcept {
  return config.payload_bytes * config.payload_scale +
         static_cast<std::uint32_t>(wire::kHeaderBytes + config.downstream.frame.bytes() +
                                    seal_bytes(config));
}

std::uint64_t window_bytes(const ShardConfig& config) noexcept {
  if (config.window_bytes != 0) return config.window_bytes;
  return std::uint64_t{config.window_packets} * full_packet_wire_bytes(config);
}

std::uint32_t packet_mbufs_needed(const ShardConfig& config) noexcept {
  // A hello each way by each further path.
  const auto further_hellos = static_cast<std::uint32_t>(
      2 * (config.downstream.others.size() + config.upstream.others.size()));
  // It keeps none from one round to the next: what it sends in one has places in an outbox. And a
  // hello both ways.
  if (config.transfers.alone) {
    return static_cast<std::uint32_t>(OutboxSide::kCapacity) + 2 + further_hellos;
  }
  // Unacknowledged, waiting to go on, in batches or held (which no batch has), early; and one
  // retransmission's copy for each packet whose mbuf a driver still holds, and a hello both ways.
  // Whether a group has direct ops and transfers, too, is for its table to say: there are buffers
  // for them in any case.
  return 2 * config.window_packets + config.transit_packets +
         std::max(config.pending_entries, config.window_packets) + config.eager_packets + 4 +
         kDirectBurst + kTransferBurst + (config.tiles.used ? kTileBurst : 0) +
         // Hellos of a rank without members that hangs on this one.
         2 + further_hellos;
}

void settle_windows(ShardConfig& config, std::uint32_t payload_bytes) noexcept {
  if (config.window_packets == 0) config.window_packets = window_packets_for(payload_bytes);
  if (config.transit_packets == 0) config.transit_packets = config.window_packets;
}

void settle_transfers_alone(ShardConfig& config) noexcept {
  config.transfers.alone = true;
  config.window_bytes = window_bytes(config);
  config.window_packets = 2;
  config.transit_packets = config.eager_packets = 1;
  config.batch_entries = config.pending_entries = 1;
  config.max_active_ops = config.max_chunks = 1;
  config.direct.op_bytes = config.direct.two_step_bytes = config.direct.gathered_bytes = 0;
  config.direct.owners = nullptr;
  config.tiles.used = config.tiles.for_formats_alone = false;
  config.tiles.costs = nullptr;
  config.tiles.shares = nullptr;
}

std::uint32_t features_of(const ShardConfig& config) noexcept {
  return config.eager_packets | kTokenFeature | (config.payload_crc ? 0 : kNoPayloadCrcFeature) |
         static_cast<std::uint32_t>(config.exchange_bytes >> 10) << 16;
}

std::string features_difference(std::size_t rank, std::uint32_t features, std::size_t other_rank,
                                std::uint32_t other) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  const auto compare = [&](const char* what, std::uint32_t mine, std::uint32_t theirs) {
    if (mine == theirs) return;
    add(fmt::format("{} is {} at rank {} and {} at rank {}", what, mine, rank, theirs, other_rank));
  };
  compare("transport.eager_packets", features & (kNoPayloadCrcFeature - 1),
          other & (kNoPayloadCrcFeature - 1));
  compare("transport.exchange_kib", features >> 16, other >> 16);
  if (((features ^ other) & kNoPayloadCrcFeature) != 0) {
    const auto integrity = [](std::uint32_t of) {
      return (of & kNoPayloadCrcFeature) != 0 ? "link" : "payload";
    };
    add(fmt::format("transport.integrity is {} at rank {} and {} at rank {}", integrity(features),
                    rank, integrity(other), other_rank));
  }
  if (((features ^ other) & kTokenFeature) != 0) {
    const bool without = (features & kTokenFeature) == 0;
    add(
        fmt::format("the gradwired of rank {} is of an older release than that of rank {}, and "
                    "puts no token into its packets",
                    without ? rank : other_rank, without ? other_rank : rank));
  }
  return text;
}

std::uint32_t pending_entries_wanted(const ShardConfig& config) noexcept {
  return std::max(config.batch_entries,
                  2 * config.window_packets + config.transit_packets + config.eager_packets);
}

std::uint64_t lane_chunks(const ShapeGroup& group, std::uint32_t payload_bytes, std::uint8_t lanes,
                          const ShapeCall& call) noexcept {
  return (partition_of(group, payload_bytes, call).total_chunks() + lanes - 1) / lanes;
}

std::uint64_t lane_chunks(std::uint64_t count, DataType datatype, std::uint16_t nranks,
                          std::uint32_t payload_bytes, std::uint8_t lanes) noexcept {
  const Partition partition(count, datatype, nranks, payload_bytes);
  return (partition.total_chunks() + lanes - 1) / lanes;
}

}  // namespace gradwire::collective
