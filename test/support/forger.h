// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Forges packets of every type in the name of a shard's neighbor: every field is right, and so is
/// the address, but not the link's token, or not the tag of a sealed packet.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <span>

#include "collective/shapes/shape_ring.h"
#include "collective/shard.h"
#include "wire/packet.h"
#include "wire/sealed.h"

namespace gradwire::test {

inline constexpr std::array kAllTypes = {
    wire::PacketType::kHello, wire::PacketType::kHelloAck, wire::PacketType::kData,
    wire::PacketType::kPing,  wire::PacketType::kAck,      wire::PacketType::kAbort,
    wire::PacketType::kBye,   wire::PacketType::kByeAck,   wire::PacketType::kProgressCheck};

/// Whether packets of the type are sent in that direction.
inline bool goes(wire::PacketType type, bool down) {
  switch (type) {
    case wire::PacketType::kHello:
    case wire::PacketType::kData:
    case wire::PacketType::kPing:
    case wire::PacketType::kProgressCheck:
      return down;
    case wire::PacketType::kHelloAck:
    case wire::PacketType::kAck:
      return !down;
    default:
      return true;
  }
}

/// Makes forged packets to a shard.
class Forger {
 public:
  /// @param down   from the upstream neighbor, else from the downstream one.
  /// @param wrong the bits in which the token differs from the link's.
  Forger(collective::Shard& shard, bool down, std::uint64_t wrong) : shard_(shard), down_(down) {
    const collective::ShardConfig& config = shard.config();
    common_.lane = config.lane;
    common_.group_tag = wire::group_tag(config.key);
    common_.from_rank = down ? collective::upstream_rank(config.rank, config.nranks)
                             : collective::downstream_rank(config.rank, config.nranks);
    common_.token = (down ? config.upstream.tokens : config.downstream.tokens).from ^ wrong;
  }
  void send(wire::PacketType type, TimeNs now) {
    const collective::ShardConfig& config = shard_.config();
    rte_mbuf* frame = rte_pktmbuf_alloc(config.packet_pool);
    REQUIRE(frame != nullptr);
    auto* room = reinterpret_cast<std::byte*>(rte_pktmbuf_append(frame, 336));
    REQUIRE(room != nullptr);
    std::size_t bytes = write(type, {room, 320});
    REQUIRE(bytes > 0);
    wire::Packet packet;
    REQUIRE(wire::decode({room, bytes}, packet) == wire::Drop::kNone);
    if (flags_ != 0) {
      room[wire::kFlagsAt] |= static_cast<std::byte>(flags_);
      for (std::size_t i = 0; i < wire::kSealTagBytes; ++i) room[bytes++] = std::byte{0x5a};
      wire::renew_header_crc(room);
      REQUIRE(wire::decode_header({room, bytes}, packet) == wire::Drop::kNone);
    }
    const bool from_upstream = down_ || config.nranks == 2;
    auto from =
        shard_.source_of(packet.common, from_upstream ? config.upstream.ip : config.downstream.ip);
    if (from.drop == wire::Drop::kNone && from.sealed) {
      std::span<const std::byte> sealed(room, bytes);
      from.drop = shard_.open(packet.common, frame, sealed);
      REQUIRE(from.drop != wire::Drop::kNone);
    }
    shard_.on_packet(frame, packet, from, false, now);
  }

  /// Its packets have a tag from now on, which cannot be right, and a number that never came.
  /// @param flags  as the group's sealed packets have them.
  void seals(std::uint8_t flags) { flags_ = flags; }
  /// What its aborts say.
  void names(const AbortReason& reason) { abort_ = reason; }
  /// Its hellos are of another table from now on.
  void differs() { differs_ = true; }

 private:
  std::size_t write(wire::PacketType type, std::span<std::byte> out) {
    const collective::ShardConfig& config = shard_.config();
    const std::uint16_t n = config.nranks;
    common_.packet_number = wire::wants_ack(type) ? 1'000 : 1;
    if (flags_ != 0) common_.packet_number = (std::uint64_t{1} << security::kGenerationBits) - 1;
    switch (type) {
      case wire::PacketType::kHello:
      case wire::PacketType::kHelloAck: {
        wire::HelloBody body;
        body.key = config.key;
        body.incarnation = down_ ? config.upstream.incarnation : config.downstream.incarnation;
        body.table_digest = config.table_digest + (differs_ ? 1 : 0);
        body.members = differs_ ? 0 : config.members_said();
        body.folding_ranks = config.folding_ranks;
        body.payload_bytes = config.payload_bytes;
        body.from_rank = common_.from_rank;
        body.to_rank = config.rank;
        body.nranks = n;
        body.lanes = config.lanes;
        body.credit_chunks = 1u << 20;
        return wire::encode_hello(out, type, common_, body, 320);
      }
      case wire::PacketType::kData: {
        const wire::DataHeader data{.op_seq = 1, .total_count = 1, .tag = 66};
        wire::encode_data(out.first<wire::kHeaderBytes>(), common_, data, 0);
        return wire::kHeaderBytes + 4;
      }
      case wire::PacketType::kPing:
        return wire::encode_ping(out, common_);
      case wire::PacketType::kAck: {
        wire::AckHeader ack;
        ack.credit_chunks = 1u << 20;
        ack.posted_op_seq = 99;
        ack.range_count = 1;
        ack.ranges[0] = {1, 1};
        return wire::encode_ack(out, common_, ack);
      }
      case wire::PacketType::kAbort:
        return wire::encode_abort(out, common_, abort_);
      case wire::PacketType::kBye:
      case wire::PacketType::kByeAck:
        return wire::encode_bye(out, type, common_, {.completed_op_seq = 1});
      case wire::PacketType::kProgressCheck:
        return wire::encode_progress_check(out, common_, {.op_seq = 1});
      case wire::PacketType::kContribution: {
        wire::DataHeader data{.op_seq = 1, .total_count = 16};
        const std::size_t bytes = 16 * element_bytes(data.datatype);
        std::fill_n(out.begin() + wire::kHeaderBytes, bytes, std::byte{});
        wire::encode_contribution(out.first<wire::kHeaderBytes>(), common_, data, 0,
                                  wire::crc32c(out.subspan(wire::kHeaderBytes, bytes)));
        return wire::kHeaderBytes + bytes;
      }
      case wire::PacketType::kReceipt:
      case wire::PacketType::kInquiry:
        return wire::encode_receipt(out, type, common_, {.entered = 1, .received = 1});
      case wire::PacketType::kPiece: {
        const wire::OfferHeader piece{.pair = {0, 1}, .sequence = 1, .terms = {.bytes = 64}};
        std::fill_n(out.begin() + wire::kHeaderBytes, 64, std::byte{});
        wire::encode_piece(out.first<wire::kHeaderBytes>(), common_, piece,
                           wire::crc32c(out.subspan(wire::kHeaderBytes, 64)));
        return wire::kHeaderBytes + 64;
      }
      case wire::PacketType::kOffer:
        return wire::encode_offer(out, common_, {.pair = {0, 1}, .sequence = 1, .terms = {}});
      case wire::PacketType::kPull:
        return wire::encode_pull(out, common_, {.pair = {1, 0}, .sequence = 1});
      case wire::PacketType::kTilePiece: {
        const wire::TileHeader piece{.op_seq = 1, .total_count = 16};
        std::fill_n(out.begin() + wire::kHeaderBytes, 64, std::byte{});
        wire::encode_tile_piece(out.first<wire::kHeaderBytes>(), common_, piece,
                                wire::crc32c(out.subspan(wire::kHeaderBytes, 64)));
        return wire::kHeaderBytes + 64;
      }
      case wire::PacketType::kTileCall:
        return wire::encode_tile_call(out, common_, {.op_seq = 1, .total_count = 16});
      case wire::PacketType::kTilePull:
        return wire::encode_tile_pull(out, common_, {.op_seq = 1, .first = 0, .grant = 1});
    }
    return 0;
  }

  collective::Shard& shard_;
  bool down_;
  wire::CommonHeader common_;
  AbortReason abort_{.code = AbortCode::kClientAbort};
  bool differs_ = false;
  std::uint8_t flags_ = 0;
};

}  // namespace gradwire::test
