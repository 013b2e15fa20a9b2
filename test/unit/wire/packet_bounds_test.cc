// SPDX-License-Identifier: BSD-3-Clause
// Packets whose fields say what may not be said: each is dropped.
#include "samples.h"

using namespace gradwire;
using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

Drop decode_ack_ranges(std::initializer_list<AckRange> ranges) {
  AckHeader ack;
  for (const AckRange& range : ranges) ack.ranges[ack.range_count++] = range;
  Bytes room(2048);
  room.resize(encode_ack(room, sample_common(PacketType::kAck), ack));
  return decode_bytes(room);
}

}  // namespace

TEST_CASE("what every header says is checked") {
  CHECK(decode_changed(PacketType::kPing, 0, 1) == Drop::kVersion);
  CHECK(decode_changed(PacketType::kPing, 0, 3) == Drop::kVersion);
  CHECK(decode_changed(PacketType::kPing, 1, 0) == Drop::kType);
  CHECK(decode_changed(PacketType::kPing, 1, 19) == Drop::kType);
  for (int flag = 1; flag < 256; flag *= 2) {
    CHECK(decode_changed(PacketType::kPing, 2, flag) == Drop::kMalformed);
  }
  CHECK(decode_changed(PacketType::kPing, 3, kMaxLanes - 1) == Drop::kNone);
  CHECK(decode_changed(PacketType::kPing, 3, kMaxLanes) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kPing, 63, 1) ==
        Drop::kNone);  // whose token it is, a shard knows
  // And whose rank, and group.
  for (const std::size_t at : {4, 7, 46, 47})
    CHECK(decode_changed(PacketType::kPing, at, 0xff) == Drop::kNone);
  // The first 8 of a ping's are the op of which it asks.
  for (std::size_t at = 24; at < 46; ++at)
    CHECK(decode_changed(PacketType::kPing, at, 1) == Drop::kMalformed);
}

TEST_CASE("what an acknowledgement says of a call is checked") {
  const std::size_t at = kHeaderBytes;
  CHECK(decode_changed(PacketType::kAck, at, 0xff) == Drop::kMalformed);  // above what is posted
  CHECK(decode_changed(PacketType::kAck, at + 28, 0xf0) == Drop::kMalformed);  // collective
  CHECK(decode_changed(PacketType::kAck, at + 28, 6 << 4) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAck, at + 28, 0x2f) == Drop::kMalformed);  // datatype
  CHECK(decode_changed(PacketType::kAck, at + 28, 0x03) == Drop::kMalformed);  // with a root
  CHECK(decode_changed(PacketType::kAck, at + 29, 99) == Drop::kMalformed);    // redop
  CHECK(decode_changed(PacketType::kAck, at + 30, 1) == Drop::kMalformed);     // reserved
  // Of no op nothing else is said.
  AckHeader nothing = sample_ack();
  nothing.called = {};
  Bytes room(2048);
  room.resize(encode_ack(room, sample_common(PacketType::kAck), nothing));
  CHECK(decode_bytes(room) == Drop::kNone);
  room[at + 24] = std::byte{1};
  repair(room);
  CHECK(decode_bytes(room) == Drop::kMalformed);
}

TEST_CASE("packet numbers start at 1 and end at 2^62, whatever the type") {
  for (const PacketType type : kAllTypes) {
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, kLastPacketNumber,
                                       kLastPacketNumber + 1, ~std::uint64_t{0}}) {
      INFO("type " << static_cast<int>(type) << " number " << number);
      Bytes bytes = sample_packet(type);
      for (std::size_t i = 0; i < 8; ++i)
        bytes[8 + i] = static_cast<std::byte>(number >> (56 - 8 * i));
      repair(bytes);
      const bool fits = number == 1 || number == kLastPacketNumber;
      CHECK(decode_bytes(bytes) == (fits ? Drop::kNone : Drop::kMalformed));
    }
  }
}

TEST_CASE("a header tells whose a packet is, whatever comes behind it") {
  Bytes bytes = sample_packet(PacketType::kHello);
  bytes[kHeaderBytes] ^= std::byte{1};
  Packet packet;
  CHECK(decode_header(bytes, packet) == Drop::kNone);
  CHECK(packet.common.group_tag == 0xa1b2c3d4);
  CHECK(packet.common.from_rank == 0x0102);
  CHECK(packet.common.token == 0xf1f2f3f4f5f6f7f8);
  CHECK(decode_body(bytes, packet) == Drop::kPayloadCrc);
  bytes[0] = std::byte{1};
  CHECK(decode_header(bytes, packet) == Drop::kVersion);
  CHECK(version_of(bytes) == 1);
  CHECK(version_of({}) == 0);
}

TEST_CASE("a chunk's bounds are checked") {
  const auto drop_of = [](auto change, std::size_t payload_bytes) {
    DataHeader data = sample_data();
    change(data);
    return decode_bytes(make_data(sample_common(PacketType::kData), data, Bytes(payload_bytes)));
  };
  CHECK(drop_of([](DataHeader&) {}, 6) == Drop::kNone);
  CHECK(drop_of([](DataHeader& d) { d.op_seq = 0; }, 6) == Drop::kMalformed);
  CHECK(drop_of([](DataHeader&) {}, 0) == Drop::kShort);
  CHECK(drop_of([](DataHeader& d) { d.total_count = 2; }, 6) == Drop::kMalformed);
  CHECK(drop_of([](DataHeader& d) { d.total_count = 3; }, 6) == Drop::kNone);
  CHECK(drop_of([](DataHeader& d) { d.hop = 2045; }, 6) == Drop::kNone);
  CHECK(drop_of([](DataHeader& d) { d.hop = 2046; }, 6) == Drop::kMalformed);
  CHECK(drop_of([](DataHeader& d) { d.datatype = static_cast<DataType>(8); }, 6) ==
        Drop::kMalformed);
  CHECK(drop_of([](DataHeader& d) { d.redop = static_cast<RedOp>(kRedOpCount); }, 6) ==
        Drop::kMalformed);
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    const auto set = [&](DataHeader& d) { d.datatype = type; };
    CHECK(drop_of(set, 3 * element_bytes(type)) == Drop::kNone);
    CHECK(drop_of(set, element_bytes(type)) == Drop::kNone);
    CHECK(drop_of(set, element_bytes(type) - 1) == Drop::kShort);
    if (element_bytes(type) == 1) continue;
    CHECK(drop_of(set, 3 * element_bytes(type) - 1) == Drop::kMalformed);
    CHECK(drop_of(set, 3 * element_bytes(type) + 1) == Drop::kMalformed);
  }
  for (const std::size_t at : {42, 43, 44, 45})
    CHECK(decode_changed(PacketType::kData, at, 1) == Drop::kMalformed);
}

TEST_CASE("ranges that are not descending and apart are refused") {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  CHECK(decode_ack_ranges({{10, 10}, {8, 8}}) == Drop::kNone);
  CHECK(decode_ack_ranges({{0, kMax}}) == Drop::kNone);
  CHECK(decode_ack_ranges({{2, 5}, {0, 0}}) == Drop::kNone);
  CHECK(decode_ack_ranges({{11, 10}}) == Drop::kMalformed);
  CHECK(decode_ack_ranges({{10, 10}, {9, 9}}) == Drop::kMalformed);
  CHECK(decode_ack_ranges({{10, 10}, {10, 10}}) == Drop::kMalformed);
  CHECK(decode_ack_ranges({{5, 10}, {4, 7}}) == Drop::kMalformed);
  CHECK(decode_ack_ranges({{5, 10}, {20, 30}}) == Drop::kMalformed);
  CHECK(decode_ack_ranges({{1, 5}, {0, 0}}) == Drop::kMalformed);
  CHECK(decode_ack_ranges({{0, 5}, {kMax, kMax}}) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAck, 40, kMaxAckRanges + 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAck, 40, 3) == Drop::kShort);
  CHECK(decode_changed(PacketType::kAck, 40, 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAck, 41, 1) == Drop::kMalformed);
}

TEST_CASE("a hello's bounds are checked") {
  const auto drop_of = [](auto change) {
    HelloBody body = sample_hello();
    change(body);
    Bytes room(2048);
    room.resize(encode_hello(room, PacketType::kHello, sample_common(PacketType::kHello), body, 0));
    return decode_bytes(room);
  };
  CHECK(drop_of([](HelloBody&) {}) == Drop::kNone);
  CHECK(drop_of([](HelloBody& b) { b.from_rank = 6; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.to_rank = 6; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.to_rank = b.from_rank; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.nranks = kMaxRanks; }) == Drop::kNone);
  CHECK(drop_of([](HelloBody& b) { b.nranks = kMaxRanks + 1; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.lanes = 0; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.lanes = kMaxLanes + 1; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.payload_bytes = 0; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.source = kSourcePortsMax; }) == Drop::kNone);
  CHECK(drop_of([](HelloBody& b) { b.source = kSourcePortsMax + 1; }) == Drop::kMalformed);
  CHECK(drop_of([](HelloBody& b) { b.heard_source = kSourcePortsMax + 1; }) == Drop::kMalformed);
  for (const std::size_t at : {36, 39, 70, 71})
    CHECK(decode_changed(PacketType::kHello, kHeaderBytes + at, 1) == Drop::kMalformed);
}

TEST_CASE("an abort's bounds are checked and its text made fit for a terminal") {
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes, 0) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes, 10) == Drop::kNone);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes, 11) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes + 1, 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes + 2, kMaxRanks >> 8) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes + 4, kMaxRanks >> 8) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes + 6, 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAbort, kHeaderBytes + 183, 'x') == Drop::kMalformed);

  const auto text_of = [](std::string_view text) {
    Bytes bytes = sample_packet(PacketType::kAbort);
    std::memset(bytes.data() + kHeaderBytes + 24, 0, 160);
    std::memcpy(bytes.data() + kHeaderBytes + 24, text.data(), text.size());
    repair(bytes);
    Packet packet;
    REQUIRE(decode(bytes, packet) == Drop::kNone);
    return std::string(packet.abort.detail);
  };
  CHECK(text_of("op \x1b[31m\nred\x7f") == "op ?[31m?red?");
  CHECK(text_of("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\x80") ==
        "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\x80");
  CHECK(text_of("a\xc3") == "a?");                         // cut
  CHECK(text_of("a\xc0\xaf z") == "a?? z");                // overlong
  CHECK(text_of("a\xed\xa0\x80 z") == "a??? z");           // surrogate
  CHECK(text_of("a\xf4\x90\x80\x80 z") == "a???? z");      // above U+10FFFF
  CHECK(text_of(std::string(159, '\xe2')).size() == 159);  // only lead bytes
  CHECK(text_of(std::string_view("a\0b", 3)) == "a");
}
