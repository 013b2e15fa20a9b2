// SPDX-License-Identifier: BSD-3-Clause
// The three types of doc/protocol/tiles.md: each rule of the decoder is broken by the smallest step
// over its border, and the value on the border is taken.
#include "samples.h"

using namespace gradwire;
using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

constexpr PacketType kPiece = PacketType::kTilePiece;
constexpr PacketType kCall = PacketType::kTileCall;
constexpr PacketType kPull = PacketType::kTilePull;

/// Of fp32 and format `same`, with no more than every call has.
TileHeader plain() { return {.op_seq = 1, .total_count = 4}; }

Drop drop_of_piece(const TileHeader& piece, std::size_t payload_bytes) {
  return decode_bytes(make_tile_piece(piece, Bytes(payload_bytes)));
}

Drop drop_of_call(const TileHeader& call) {
  Bytes room(256);
  room.resize(encode_tile_call(room, sample_common(kCall), call));
  return decode_bytes(room);
}

Bytes make_pull(const TilePullHeader& pull) {
  Bytes room(256);
  room.resize(encode_tile_pull(room, sample_common(kPull), pull));
  return room;
}
Drop drop_of_pull(const TilePullHeader& pull) { return decode_bytes(make_pull(pull)); }

/// Of a piece and of a call.
void check_both(const TileHeader& tile, std::size_t payload_bytes, Drop want) {
  CHECK(drop_of_piece(tile, payload_bytes) == want);
  CHECK(drop_of_call(tile) == want);
}

/// A call that says that its op has not entered, with another value in a byte.
Drop drop_of_not_entered(std::size_t at, int value) {
  Bytes room(256);
  TileHeader call = sample_tile(kCall);
  call.not_entered = true;
  room.resize(encode_tile_call(room, sample_common(kCall), call));
  room.at(at) = static_cast<std::byte>(value);
  repair(room);
  return decode_bytes(room);
}

}  // namespace

TEST_CASE("tile pieces, calls and pulls decode to what was encoded") {
  Packet packet;
  for (const PacketType type : {kPiece, kCall}) {
    REQUIRE(decode(sample_packet(type), packet) == Drop::kNone);
    CHECK(packet.tile == sample_tile(type));
    CHECK(packet.payload.size() == (type == kPiece ? 6 : 0));
  }
  REQUIRE(decode(sample_packet(kPull), packet) == Drop::kNone);
  CHECK(packet.tile_pull == sample_tile_pull());

  TilePullHeader results = sample_tile_pull();
  results = {.op_seq = 7, .first = 3, .grant = 9, .echo = 4, .results = true};
  REQUIRE(decode(make_pull(results), packet) == Drop::kNone);
  CHECK(packet.tile_pull == results);
  CHECK(packet.payload.empty());
  results = {.op_seq = 7, .results = true, .all = true};
  REQUIRE(decode(make_pull(results), packet) == Drop::kNone);
  CHECK(packet.tile_pull == results);
}

TEST_CASE("a tile packet says nothing that its type does not have") {
  // Whatever the encoder is given.
  TileHeader tile = sample_tile(kCall);
  tile.chunk = 0x11121314;
  tile.result = true;
  Packet packet;
  REQUIRE(decode(make_tile_piece(tile, from_hex("01")), packet) == Drop::kNone);
  TileHeader want = sample_tile(kPiece);
  CHECK(packet.tile == want);
  Bytes room(256);
  room.resize(encode_tile_call(room, sample_common(kCall), tile));
  REQUIRE(decode(room, packet) == Drop::kNone);
  CHECK(packet.tile == sample_tile(kCall));

  tile.not_entered = true;
  room.resize(encode_tile_call(room, sample_common(kCall), tile));
  REQUIRE(decode(room, packet) == Drop::kNone);
  want = {.op_seq = tile.op_seq, .echo = tile.echo, .not_entered = true, .again = true};
  CHECK(packet.tile == want);

  // An all-reduce has no root.
  TileHeader rootless = plain();
  rootless.root = 3;
  check_both(rootless, 4, Drop::kNone);
}

TEST_CASE("a tile packet has room for its header, and a repair for its bits") {
  Bytes room(256, std::byte{0xee});
  const std::span<std::byte> all(room);
  const CommonHeader common = sample_common(kPull);
  TilePullHeader pull = sample_tile_pull();
  CHECK(encode_tile_call(all.first(63), common, plain()) == 0);
  CHECK(encode_tile_pull(all.first(95), common, pull) == 0);
  pull.repair = false;
  CHECK(encode_tile_pull(all.first(63), common, pull) == 0);
  CHECK(std::all_of(room.begin(), room.end(), [](std::byte b) { return b == std::byte{0xee}; }));
  CHECK(encode_tile_pull(all.first(64), common, pull) == 64);
  CHECK(encode_tile_call(all.first(64), common, plain()) == 64);
  pull.repair = true;
  CHECK(room[64] == std::byte{0xee});
  CHECK(encode_tile_pull(all.first(96), common, pull) == 96);
  CHECK(room[96] == std::byte{0xee});
}

TEST_CASE("a piece's payload has whole elements, from one to the op's, or is in a format") {
  for (const DataType type : kDataTypes) {
    TileHeader piece = plain();
    piece.datatype = type;
    const std::size_t each = element_bytes(type);
    CHECK(drop_of_piece(piece, 0) == Drop::kShort);
    CHECK(drop_of_piece(piece, each - 1) == Drop::kShort);
    CHECK(drop_of_piece(piece, each) == Drop::kNone);
    CHECK(drop_of_piece(piece, 4 * each) == Drop::kNone);
    CHECK(drop_of_piece(piece, 5 * each) == Drop::kMalformed);
    piece.total_count = 8;
    if (each == 1) continue;
    CHECK(drop_of_piece(piece, 4 * each - 1) == Drop::kMalformed);
    CHECK(drop_of_piece(piece, 4 * each + 1) == Drop::kMalformed);
  }
  for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
    TileHeader piece = plain();
    piece.format = format;
    CHECK(drop_of_piece(piece, 0) == Drop::kShort);
    for (const std::size_t bytes : {1, 3, 1'300}) CHECK(drop_of_piece(piece, bytes) == Drop::kNone);
  }
  // A call has none.
  Bytes call = sample_packet(kCall);
  call.push_back(std::byte{0});
  repair(call);
  CHECK(decode_bytes(call) == Drop::kMalformed);
}

TEST_CASE("a tile packet names an op, a datatype, a redop, a collective and its root") {
  TileHeader tile = plain();
  tile.op_seq = 0;
  check_both(tile, 4, Drop::kMalformed);
  tile = plain();
  tile.datatype = static_cast<DataType>(kDataTypeCount);
  check_both(tile, 4, Drop::kMalformed);
  tile = plain();
  tile.redop = static_cast<RedOp>(kRedOpCount - 1);
  check_both(tile, 4, Drop::kNone);
  tile.redop = static_cast<RedOp>(kRedOpCount);
  check_both(tile, 4, Drop::kMalformed);
  for (int value = 0; value < 16; ++value) {
    INFO("collective " << value);
    const auto collective = static_cast<Collective>(value);
    // An all-reduce is written as 0, and a transfer has packets of its own.
    const bool known = value == 0 || (value >= 2 && value <= 5) || value == 11;
    for (const PacketType type : {kPiece, kCall}) {
      Bytes bytes = type == kPiece ? make_tile_piece(plain(), Bytes(4)) : sample_packet(kCall);
      bytes[44] = std::byte{0};  // as `same`, any that has packets
      bytes[40] = static_cast<std::byte>(value << 4);
      for (const bool rooted : {false, true}) {
        bytes[42] = bytes[43] = std::byte{rooted};
        repair(bytes);
        const bool fits = known && rooted == has_root(collective);
        CHECK(decode_bytes(bytes) == (fits ? Drop::kNone : Drop::kMalformed));
      }
    }
  }
}

TEST_CASE("a format is for sums of some datatypes, and one of the table") {
  for (const DataType type : kDataTypes) {
    for (const RedOp op : kRedOps) {
      for (int value = 0; value <= 5; ++value) {
        if (value == 1) continue;
        for (int format = 0; format < 16; ++format) {
          TileHeader tile = plain();
          tile.total_count = 8;
          tile.datatype = type;
          tile.redop = op;
          if (value != 0) tile.collective = static_cast<Collective>(value);
          if (has_root(tile.collective)) tile.root = 0;
          tile.format = static_cast<WireFormat>(format);
          const bool sums =
              (value == 0 || value == 2 || value == 5) && (op == RedOp::kSum || op == RedOp::kAvg);
          const bool width = type == DataType::kFloat32 ||
                             (type == DataType::kBfloat16 && tile.format == WireFormat::kInt8);
          const bool taken = format == 0 || (format <= 2 && sums && width);
          INFO("type " << static_cast<int>(type) << " redop " << static_cast<int>(op) << " coll. "
                       << value << " format " << format);
          check_both(tile, 8, taken ? Drop::kNone : Drop::kMalformed);
        }
      }
    }
  }
}

TEST_CASE("a tile packet has no bits but its type's") {
  // The lower half of byte 44: asks, result, not entered.
  for (int bits = 0; bits < 16; ++bits) {
    INFO("bits " << bits);
    const bool of_piece = bits == 0 || bits == 2;
    // The sample says a call, so that "not entered" is too much.
    const bool of_call = bits == 0 || bits == 1;
    CHECK(decode_changed(kPiece, 44, 0x20 | bits) == (of_piece ? Drop::kNone : Drop::kMalformed));
    CHECK(decode_changed(kCall, 44, 0x20 | bits) == (of_call ? Drop::kNone : Drop::kMalformed));
    // Without its bit it is a call of no elements.
    const bool of_none = bits == 0 || bits == 1 || bits == 4;
    CHECK(drop_of_not_entered(44, bits) == (of_none ? Drop::kNone : Drop::kMalformed));
  }
  for (const PacketType type : {kPiece, kCall}) {
    CHECK(decode_changed(type, 30, 0x80) == Drop::kMalformed);
    CHECK(decode_changed(type, 31, 1) == Drop::kMalformed);
    for (int flags = 2; flags < 256; flags *= 2) {
      CHECK(decode_changed(type, 2, flags) == Drop::kMalformed);
      CHECK(decode_changed(kPull, 2, flags | 1) == Drop::kMalformed);
    }
  }
  CHECK(decode_changed(kPiece, 2, 1) == Drop::kMalformed);
  CHECK(decode_changed(kCall, 2, 0) == Drop::kNone);
  CHECK(decode_changed(kPull, 2, 0) == Drop::kNone);
}

TEST_CASE("only a call says since when, and no op before the first") {
  CHECK(decode_changed(kPiece, 45, 1) == Drop::kMalformed);
  TileHeader call = plain();
  call.op_seq = 3;
  for (const std::uint8_t since : {0, 3, 4, 255}) {
    call.since = since;
    CHECK(drop_of_call(call) == (since <= 3 ? Drop::kNone : Drop::kMalformed));
  }
}

TEST_CASE("a call of what has not entered says nothing else") {
  CHECK(drop_of_not_entered(16, 1) == Drop::kNone);  // which op
  for (const std::size_t at : {32, 33, 34, 35}) {    // which pull it answers
    CHECK(drop_of_not_entered(at, 0xff) == Drop::kNone);
  }
  CHECK(drop_of_not_entered(2, 0) == Drop::kNone);
  for (std::size_t at = 24; at < 46; ++at) {
    if (at >= 32 && at < 36) continue;
    INFO("byte " << at);
    CHECK(drop_of_not_entered(at, at == 44 ? 0x14 : 1) == Drop::kMalformed);
  }
  CHECK(drop_of_not_entered(40, 0x40) == Drop::kMalformed);  // an all-gather
  CHECK(drop_of_not_entered(44, 0x24) == Drop::kMalformed);  // int8
  Bytes bytes = sample_packet(kCall);
  for (std::size_t at = 16; at < 24; ++at) bytes[at] = std::byte{0};
  for (std::size_t at = 24; at < 46; ++at)
    bytes[at] = std::byte{at == 44 ? std::uint8_t{4} : std::uint8_t{0}};
  repair(bytes);
  CHECK(decode_bytes(bytes) == Drop::kMalformed);  // of op 0
  bytes[23] = std::byte{1};
  repair(bytes);
  CHECK(decode_bytes(bytes) == Drop::kNone);
}

TEST_CASE("a tile pull grants from first on, 256 chunks at most") {
  constexpr std::uint32_t kMax = UINT32_MAX;
  const auto drop_of = [](std::uint32_t first, std::uint32_t grant, bool results = false) {
    return drop_of_pull({.op_seq = 1, .first = first, .grant = grant, .results = results});
  };
  for (const bool results : {false, true}) {
    for (const std::uint32_t first : {0u, 1u, 1'000u, kMax - kTileGrantMax}) {
      CHECK(drop_of(first, first, results) == Drop::kNone);
      CHECK(drop_of(first, first + kTileGrantMax, results) == Drop::kNone);
      if (first != 0) CHECK(drop_of(first, first - 1, results) == Drop::kMalformed);
      if (first < kMax - kTileGrantMax) {
        CHECK(drop_of(first, first + kTileGrantMax + 1, results) == Drop::kMalformed);
      }
    }
    CHECK(drop_of(kMax, kMax, results) == Drop::kNone);
    CHECK(drop_of(kMax, 0, results) == Drop::kMalformed);  // no numbers go round
    CHECK(drop_of(kMax, 255, results) == Drop::kMalformed);
    CHECK(drop_of(0, kMax, results) == Drop::kMalformed);
  }
  CHECK(drop_of_pull({.op_seq = 0, .grant = 1}) == Drop::kMalformed);
}

TEST_CASE("only an owner says what is folded, and what is over") {
  TilePullHeader pull{.op_seq = 3, .done = 1, .over = 3};
  CHECK(drop_of_pull(pull) == Drop::kNone);
  pull.over = 4;
  CHECK(drop_of_pull(pull) == Drop::kMalformed);
  pull = {.op_seq = 3, .results = true};
  CHECK(drop_of_pull(pull) == Drop::kNone);
  pull.done = 1;
  CHECK(drop_of_pull(pull) == Drop::kMalformed);
  pull.done = 0;
  pull.over = 1;
  CHECK(drop_of_pull(pull) == Drop::kMalformed);
}

TEST_CASE("what is wanted again was granted, has not come, and is something") {
  const auto drop_of = [](std::uint32_t granted, std::initializer_list<std::uint32_t> bits) {
    TilePullHeader pull{.op_seq = 1, .first = 70, .grant = 70 + granted, .repair = true};
    for (const std::uint32_t bit : bits) pull.wanted[bit / 64] |= std::uint64_t{1} << bit % 64;
    return drop_of_pull(pull);
  };
  for (const std::uint32_t granted : {1, 2, 63, 64, 65, 127, 128, 129, 192, 193, 255, 256}) {
    INFO("granted " << granted);
    CHECK(drop_of(granted, {}) == Drop::kMalformed);
    CHECK(drop_of(granted, {0}) == Drop::kNone);
    CHECK(drop_of(granted, {granted - 1}) == Drop::kNone);
    for (std::uint32_t beyond = granted; beyond < kTileGrantMax; ++beyond) {
      CHECK(drop_of(granted, {beyond}) == Drop::kMalformed);
      CHECK(drop_of(granted, {0, beyond}) == Drop::kMalformed);
    }
  }
  CHECK(drop_of(0, {}) == Drop::kMalformed);
  CHECK(drop_of(0, {0}) == Drop::kMalformed);
}

TEST_CASE("the bits are a tile pull's payload, and nothing else is") {
  Bytes bytes = sample_packet(kPull);
  REQUIRE(bytes.size() == 96);
  for (const std::size_t size : {64, 65, 72, 95, 97, 104}) {
    Bytes other = bytes;
    other.resize(size);
    repair(other);
    CHECK(decode_bytes(other) == (size < 96 ? Drop::kShort : Drop::kMalformed));
  }
  CHECK(decode_changed(kPull, 42, 1) == Drop::kMalformed);  // no repair, but bits
  bytes = make_pull({.op_seq = 1, .grant = 3});
  bytes.push_back(std::byte{0});
  repair(bytes);
  CHECK(decode_bytes(bytes) == Drop::kMalformed);
  bytes = make_pull({.op_seq = 1, .grant = 3});
  bytes[42] = std::byte{4};  // a repair without bits
  repair(bytes);
  CHECK(decode_bytes(bytes) == Drop::kShort);
}

TEST_CASE("a tile pull's bits are four, and all is of results") {
  const Bytes nothing = make_pull({.op_seq = 1});
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 4) != 0 && bits < 16) continue;  // a repair has a payload
    Bytes bytes = nothing;
    bytes[42] = static_cast<std::byte>(bits);
    repair(bytes);
    INFO("bits " << bits);
    const bool taken = bits < 16 && ((bits & 8) == 0 || (bits & 2) != 0);
    CHECK(decode_bytes(bytes) == (taken ? Drop::kNone : Drop::kMalformed));
  }
  for (const std::size_t at : {43, 44, 45}) {
    Bytes bytes = nothing;
    bytes[at] = std::byte{1};
    repair(bytes);
    CHECK(decode_bytes(bytes) == Drop::kMalformed);
  }
  TilePullHeader all{.op_seq = 1, .results = true, .all = true};
  CHECK(drop_of_pull(all) == Drop::kNone);
  all.grant = 1;
  CHECK(drop_of_pull(all) == Drop::kMalformed);
  all.first = 1;
  CHECK(drop_of_pull(all) == Drop::kMalformed);
  // Who has everything wants nothing again.
  all = {.op_seq = 1, .results = true, .repair = true, .all = true};
  all.wanted[0] = 1;
  CHECK(drop_of_pull(all) == Drop::kMalformed);
}

TEST_CASE("what went before does not show in the next packet") {
  Packet packet;
  REQUIRE(decode(sample_packet(kPull), packet) == Drop::kNone);
  REQUIRE(decode(make_pull({.op_seq = 1, .grant = 2}), packet) == Drop::kNone);
  const TilePullHeader want{.op_seq = 1, .grant = 2};
  CHECK(packet.tile_pull == want);
  REQUIRE(decode(sample_packet(kPiece), packet) == Drop::kNone);
  REQUIRE(decode(sample_packet(kCall), packet) == Drop::kNone);
  CHECK(packet.tile == sample_tile(kCall));
}

TEST_CASE("types know what they are of") {
  for (const PacketType type : kAllTypes) {
    const auto value = static_cast<int>(type);
    INFO("type " << value);
    CHECK(goes_to_any_rank(type) == (value >= 10));
    CHECK(is_of_transfer(type) == (value >= 13 && value <= 15));
    CHECK(is_of_tiles(type) == (value >= 16));
    CHECK(carries_chunk(type) == (value == 3 || value == 10 || value == 13 || value == 16));
    CHECK(wants_ack(type) == (value == 3 || value == 4));
  }
}
