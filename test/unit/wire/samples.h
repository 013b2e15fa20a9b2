// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One packet of every type, for the codec's tests: the values are all different, so that swapped
/// fields show.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::wire::test {

using Bytes = std::vector<std::byte>;

inline Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return hex;
}

/// A frame of that UDP payload, over IPv6 not completed.
inline Bytes make_frame(const FrameAddresses& addresses, const Bytes& payload) {
  const auto made = FrameTemplate::make(addresses);
  REQUIRE(made.has_value());
  Bytes frame(made->bytes());
  made->write(frame.data(), payload.size());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

inline CommonHeader sample_common(PacketType type) {
  return {.type = type,
          .lane = 3,
          .group_tag = 0xa1b2c3d4,
          .packet_number = 0x1122334455667788,
          .from_rank = 0x0102,
          .token = 0xf1f2f3f4f5f6f7f8};
}

inline DataHeader sample_data() {
  return {.op_seq = 0x0102030405060708,
          .total_count = 0x9192deadbeef,
          .chunk = 0x11121314,
          .tag = 0x21222324,
          .count = 3,
          .hop = 5,
          .datatype = DataType::kBfloat16,
          .redop = RedOp::kProd};
}

inline AckHeader sample_ack() {
  AckHeader ack{.credit_chunks = 0x3132333435363738,
                .posted_op_seq = 0x4142434445464748,
                .delay_ns = 0x51525354,
                .ecn_ce_count = 0x61626364,
                .range_count = 2,
                .ranges = {},
                .called = {}};
  ack.ranges[0] = {.first = 100, .last = 256};
  ack.ranges[1] = {.first = 7, .last = 98};
  ack.called = {.op_seq = 0x2122232425262728,
                .digest = 0x0102030405060708,
                .count = 0x0a0b0c0d0e0f,
                .tag = 0x61626364,
                .datatype = DataType::kBfloat16,
                .redop = RedOp::kProd,
                .collective = Collective::kReduce,
                .root = 0x0807};
  return ack;
}

inline Receipt sample_receipt() {
  return {.entered = 0x4142434445464748,
          .received = 0x3132333435363738,
          .chunks = 0x5152535455565758,
          .echo = 0x71727374,
          .delay_us = 0x6162};
}
inline OfferHeader sample_offer(PacketType type) {
  const bool piece = type == PacketType::kPiece;
  return {.pair = {0x8182, 0x9192, 0x0102},
          .sequence = 0x030405060708,
          .terms = {0x31323334, 0x21222324, TransferCall::kScatter},
          .chunk = piece ? 0x11121314u : 0,
          .asks = !piece,
          .done = false,
          .again = !piece};
}

inline PullHeader sample_pull() {
  return {.pair = {0x8182, 0x9192, 0x0102},
          .sequence = 0x030405060708,
          .wanted = 0x5152535455565758,
          .first = 0x11121314,
          .echo = 0x71727374,
          .asks = false,
          .complete = true,
          .again = true};
}
/// Of a tile piece what only a call has is not said, and the other way round.
inline TileHeader sample_tile(PacketType type) {
  const bool piece = type == PacketType::kTilePiece;
  return {.op_seq = 0x0102030405060708,
          .total_count = 0x9192deadbeef,
          .chunk = piece ? 0x11121314u : 0,
          .echo = piece ? 0 : 0x71727374u,
          .tag = 0x21222324,
          .datatype = DataType::kBfloat16,
          .redop = RedOp::kAvg,
          .collective = Collective::kReduce,
          .root = 0x0807,
          .format = WireFormat::kInt8,
          .result = piece,
          .asks = !piece,
          .not_entered = false,
          .since = static_cast<std::uint8_t>(piece ? 0 : 0x19),
          .again = !piece};
}

/// Two chunks of the last word, and one of the second, are to be sent again.
inline TilePullHeader sample_tile_pull() {
  return {.op_seq = 0x0102030405060708,
          .first = 0x11121314,
          .grant = 0x11121413,
          .done = 0x31323334,
          .echo = 0x71727374,
          .over = 0x4142,
          .asks = true,
          .results = false,
          .repair = true,
          .all = false,
          .again = true,
          .wanted = {0, 0x80, 0, 0x4000000000000001}};
}
/// How far what the sample contribution says was received lies below its op.
inline constexpr std::uint64_t kSampleBelow = 4;
inline constexpr std::uint8_t kSampleStep = 7;
inline constexpr std::uint8_t kSampleSince = 0x19;

inline HelloBody sample_hello() {
  return {.key = {.group_id = 0x7172737475767778, .epoch = 0x81828384},
          .incarnation = 0xa1a2a3a4a5a6a7a8,
          .table_digest = 0xb1b2b3b4b5b6b7b8,
          .features = 0x91929394,
          .payload_bytes = 8192,
          .from_rank = 4,
          .to_rank = 5,
          .nranks = 6,
          .lanes = 7,
          .credit_chunks = 0xd1d2d3d4d5d6d7d8,
          .posted_op_seq = 0xe1e2e3e4e5e6e7e8,
          .source = 17,
          .heard_source = 23,
          .members = 0x1819,
          .folding_ranks = 0x1a1b};
}

inline AbortReason sample_abort() {
  AbortReason reason{.code = AbortCode::kSilence,
                     .culprit_rank = 9,
                     .reporter_rank = 10,
                     .op_seq = 0x1718191a1b1c1d1e,
                     .duration_ns = 0x2728292a2b2c2d2e};
  reason.set_detail("gone");
  return reason;
}

inline constexpr ByeBody kSampleBye{.completed_op_seq = 0x3738393a3b3c3d3e,
                                    .digest = 0x4748494a4b4c4d4e,
                                    .posted_by_all = 0x2748494a4b4c4d4e};
inline constexpr std::uint64_t kSampleAsked = 0x9192939495969798;
inline constexpr std::size_t kSampleHelloBytes = kHeaderBytes + kHelloBodyBytes + 8;

inline Bytes make_data(const CommonHeader& common, const DataHeader& data,
                       std::span<const std::byte> payload) {
  Bytes bytes(kHeaderBytes);
  encode_data(std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes), common, data,
              crc32c(payload));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

inline Bytes make_contribution(const CommonHeader& common, const DataHeader& data,
                               std::uint64_t received, std::span<const std::byte> payload) {
  Bytes bytes(kHeaderBytes);
  encode_contribution(std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes), common, data,
                      received, crc32c(payload));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

inline Bytes make_tile_piece(const TileHeader& piece, std::span<const std::byte> payload) {
  Bytes bytes(kHeaderBytes);
  encode_tile_piece(std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes),
                    sample_common(PacketType::kTilePiece), piece, crc32c(payload));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

/// A packet of `type` as this code makes it.
inline Bytes sample_packet(PacketType type) {
  const CommonHeader common = sample_common(type);
  if (type == PacketType::kData) return make_data(common, sample_data(), from_hex("010203040506"));
  if (type == PacketType::kContribution) {
    DataHeader data = sample_data();
    data.step = kSampleStep;
    data.since = kSampleSince;
    return make_contribution(common, data, data.op_seq - kSampleBelow, from_hex("010203040506"));
  }
  if (type == PacketType::kPiece) {
    const Bytes payload = from_hex("010203040506");
    Bytes piece(kHeaderBytes);
    encode_piece(std::span<std::byte, kHeaderBytes>(piece.data(), kHeaderBytes), common,
                 sample_offer(type), crc32c(payload));
    piece.insert(piece.end(), payload.begin(), payload.end());
    return piece;
  }
  if (type == PacketType::kTilePiece) {
    return make_tile_piece(sample_tile(type), from_hex("010203040506"));
  }
  Bytes bytes(2048, std::byte{0xee});
  std::size_t length = 0;
  switch (type) {
    case PacketType::kHello:
      length = encode_hello(bytes, type, common, sample_hello(), kSampleHelloBytes);
      break;
    case PacketType::kHelloAck:
      length = encode_hello(bytes, type, common, sample_hello(), 0);
      break;
    case PacketType::kPing:
      length = encode_ping(bytes, common, kSampleAsked);
      break;
    case PacketType::kAck:
      length = encode_ack(bytes, common, sample_ack());
      break;
    case PacketType::kAbort:
      length = encode_abort(bytes, common, sample_abort());
      break;
    case PacketType::kBye:
    case PacketType::kByeAck:
      length = encode_bye(bytes, type, common, kSampleBye);
      break;
    case PacketType::kProgressCheck:
      length = encode_progress_check(
          bytes, common,
          {.op_seq = 0x4142434445464748, .stalled_ns = 0x5152535455565758, .origin_rank = 0x0301});
      break;
    case PacketType::kReceipt:
    case PacketType::kInquiry:
      length = encode_receipt(bytes, type, common, sample_receipt());
      break;
    case PacketType::kOffer:
      length = encode_offer(bytes, common, sample_offer(type));
      break;
    case PacketType::kPull:
      length = encode_pull(bytes, common, sample_pull());
      break;
    case PacketType::kTileCall:
      length = encode_tile_call(bytes, common, sample_tile(type));
      break;
    case PacketType::kTilePull:
      length = encode_tile_pull(bytes, common, sample_tile_pull());
      break;
    case PacketType::kData:
    case PacketType::kContribution:
    case PacketType::kPiece:
    case PacketType::kTilePiece:
      break;
  }
  bytes.resize(length);
  return bytes;
}

inline constexpr std::array kAllTypes = {
    PacketType::kHello,        PacketType::kHelloAck, PacketType::kData,
    PacketType::kPing,         PacketType::kAck,      PacketType::kAbort,
    PacketType::kBye,          PacketType::kByeAck,   PacketType::kProgressCheck,
    PacketType::kContribution, PacketType::kReceipt,  PacketType::kInquiry,
    PacketType::kPiece,        PacketType::kOffer,    PacketType::kPull,
    PacketType::kTilePiece,    PacketType::kTileCall, PacketType::kTilePull};
static_assert(kAllTypes.size() == static_cast<std::size_t>(kLastPacketType));

/// Puts both CRCs right after a change, so that a test reaches the checks behind them.
inline void repair(Bytes& packet) {
  const auto store = [&](std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i)
      packet[at + static_cast<std::size_t>(i)] = static_cast<std::byte>(value >> (24 - 8 * i));
  };
  const std::span<const std::byte> all(packet);
  store(52, crc32c(all.subspan(kHeaderBytes)));
  store(48, crc32c_extend(crc32c(all.first(48)), all.subspan(52, 12)));
}

inline Drop decode_bytes(const Bytes& bytes) {
  Packet packet;
  return decode(bytes, packet);
}

/// Changes a byte of a good packet, puts the CRCs right, decodes.
inline Drop decode_changed(PacketType type, std::size_t at, int value) {
  Bytes bytes = sample_packet(type);
  bytes.at(at) = static_cast<std::byte>(value);
  repair(bytes);
  return decode_bytes(bytes);
}

}  // namespace gradwire::wire::test
