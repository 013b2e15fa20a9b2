// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <set>

#include "samples.h"

#include "support/seed.h"

using namespace gradwire;
using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

/// Whether its payload has whole elements, of the op's number: its length alone tells nothing else.
bool has_elements(PacketType type) {
  return type == PacketType::kData || type == PacketType::kContribution;
}
/// Whether only its receiver knows how long its payload is.
bool has_any_length(PacketType type) {
  return type == PacketType::kPiece || type == PacketType::kTilePiece;
}

}  // namespace

TEST_CASE("every type decodes to what was encoded") {
  for (const PacketType type : kAllTypes) {
    INFO("type " << static_cast<int>(type));
    const Bytes bytes = sample_packet(type);
    Packet packet;
    REQUIRE(decode(bytes, packet) == Drop::kNone);
    const CommonHeader common = sample_common(type);
    CHECK(packet.common.type == type);
    CHECK(packet.common.lane == common.lane);
    CHECK(packet.common.group_tag == common.group_tag);
    CHECK(packet.common.from_rank == common.from_rank);
    CHECK(packet.common.packet_number == common.packet_number);
    CHECK(packet.common.token == common.token);
    CHECK(packet.payload.size() == bytes.size() - kHeaderBytes);
    CHECK(payload_crc_ok(packet));
  }
}

TEST_CASE("a chunk's header decodes to what was encoded") {
  Packet packet;
  const Bytes bytes = sample_packet(PacketType::kData);
  REQUIRE(decode(bytes, packet) == Drop::kNone);
  const DataHeader want = sample_data();
  CHECK(packet.data.op_seq == want.op_seq);
  CHECK(packet.data.total_count == want.total_count);
  CHECK(packet.data.chunk == want.chunk);
  CHECK(packet.data.tag == want.tag);
  CHECK(packet.data.count == want.count);
  CHECK(packet.data.hop == want.hop);
  CHECK(packet.data.datatype == want.datatype);
  CHECK(packet.data.redop == want.redop);
  CHECK(to_hex(packet.payload) == "010203040506");
}

TEST_CASE("contributions, receipts and inquiries decode to what was encoded") {
  Packet packet;
  REQUIRE(decode(sample_packet(PacketType::kContribution), packet) == Drop::kNone);
  const DataHeader want = sample_data();
  CHECK(packet.data.op_seq == want.op_seq);
  CHECK(packet.data.total_count == want.total_count);
  CHECK(packet.data.chunk == want.chunk);
  CHECK(packet.data.tag == want.tag);
  CHECK(packet.data.hop == 0);
  CHECK(packet.data.step == kSampleStep);
  CHECK(packet.data.since == kSampleSince);
  CHECK(packet.data.datatype == want.datatype);
  CHECK(packet.data.redop == want.redop);
  CHECK(packet.receipt.entered == want.op_seq);
  CHECK(packet.receipt.received == want.op_seq - kSampleBelow);
  CHECK(packet.receipt.chunks == 0);
  for (const PacketType type : {PacketType::kReceipt, PacketType::kInquiry}) {
    REQUIRE(decode(sample_packet(type), packet) == Drop::kNone);
    const Receipt receipt = sample_receipt();
    CHECK(packet.receipt.entered == receipt.entered);
    CHECK(packet.receipt.received == receipt.received);
    CHECK(packet.receipt.chunks == receipt.chunks);
    CHECK(packet.receipt.echo == receipt.echo);
    CHECK(packet.receipt.delay_us == receipt.delay_us);
    CHECK_FALSE(packet.receipt.again);
    // More cannot have been received than has entered.
    CHECK(decode_changed(type, 24, 0x42) == Drop::kMalformed);
  }
}

TEST_CASE("questions alone say that they are asked again") {
  Receipt receipt = sample_receipt();
  receipt.again = true;
  Bytes room(256);
  room.resize(
      encode_receipt(room, PacketType::kInquiry, sample_common(PacketType::kInquiry), receipt));
  Packet packet;
  REQUIRE(decode(room, packet) == Drop::kNone);
  CHECK(packet.receipt.again);
  for (const PacketType type : kAllTypes) {
    const bool asks = type == PacketType::kInquiry || type == PacketType::kOffer ||
                      type == PacketType::kPull || type == PacketType::kTileCall ||
                      type == PacketType::kTilePull;
    CHECK(decode_changed(type, 2, 1) == (asks ? Drop::kNone : Drop::kMalformed));
    CHECK(decode_changed(type, 2, 2) == Drop::kMalformed);
  }
}

TEST_CASE("pieces and offers say what is transferred, and pulls what is wanted of it") {
  for (const PacketType type : {PacketType::kPiece, PacketType::kOffer}) {
    Packet packet;
    REQUIRE(decode(sample_packet(type), packet) == Drop::kNone);
    const OfferHeader want = sample_offer(type);
    CHECK(packet.offer.pair == want.pair);
    CHECK(packet.offer.sequence == want.sequence);
    CHECK(packet.offer.terms == want.terms);
    CHECK(packet.offer.chunk == want.chunk);
    CHECK(packet.offer.asks == want.asks);
    CHECK(packet.offer.done == want.done);
    CHECK(packet.offer.again == want.again);
    CHECK(packet.payload.size() == (type == PacketType::kPiece ? 6 : 0));
    CHECK(decode_changed(type, 44, 4) == Drop::kMalformed);     // no such call
    CHECK(decode_changed(type, 25, 0x01) == Drop::kMalformed);  // more than 2^48 bytes
    CHECK(decode_changed(type, 45, 4) == Drop::kMalformed);     // no such bit
  }
  CHECK(decode_changed(PacketType::kPiece, 45, 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kOffer, 32, 1) == Drop::kMalformed);
  Packet packet;
  REQUIRE(decode(sample_packet(PacketType::kPull), packet) == Drop::kNone);
  const PullHeader want = sample_pull();
  CHECK(packet.pull.pair == want.pair);
  CHECK(packet.pull.sequence == want.sequence);
  CHECK(packet.pull.wanted == want.wanted);
  CHECK(packet.pull.first == want.first);
  CHECK(packet.pull.echo == want.echo);
  CHECK(packet.pull.asks == want.asks);
  CHECK(packet.pull.complete == want.complete);
  CHECK(packet.pull.again == want.again);
  CHECK(decode_changed(PacketType::kPull, 44, 4) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kPull, 45, 1) == Drop::kMalformed);
}

TEST_CASE("a contribution says what was received up to 65,534 ops before it") {
  DataHeader data = sample_data();
  for (const std::uint64_t below : {0, 1, 65'534, 65'535, 1'000'000}) {
    Packet packet;
    const Bytes bytes = make_contribution(sample_common(PacketType::kContribution), data,
                                          data.op_seq - below, from_hex("0102"));
    REQUIRE(decode(bytes, packet) == Drop::kNone);
    CHECK(packet.receipt.received == (below < kWordSpan ? data.op_seq - below : 0));
  }
  // What lies above the op itself says no more than that all up to it is there.
  data.op_seq = 3;
  Packet packet;
  const Bytes bytes =
      make_contribution(sample_common(PacketType::kContribution), data, 9, from_hex("0102"));
  REQUIRE(decode(bytes, packet) == Drop::kNone);
  CHECK(packet.receipt.received == 3);
  CHECK(decode_changed(PacketType::kContribution, 44, kStepMax) == Drop::kNone);
  CHECK(decode_changed(PacketType::kContribution, 44, kStepMax + 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kData, 44, 1) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kData, 45, 1) == Drop::kMalformed);
  // An op before the first is none.
  for (const std::uint8_t since : {0, 3, 4}) {
    data.since = since;
    const Bytes told =
        make_contribution(sample_common(PacketType::kContribution), data, 3, from_hex("0102"));
    CHECK(decode(told, packet) == (since <= data.op_seq ? Drop::kNone : Drop::kMalformed));
  }
}

TEST_CASE("an acknowledgement decodes to what was encoded, up to the most ranges") {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kMaxAckRanges}) {
    AckHeader want = sample_ack();
    want.range_count = static_cast<std::uint8_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t last = ~std::uint64_t{0} - i * (std::uint64_t{1} << 40);
      want.ranges[i] = {.first = last - i, .last = last};
    }
    Bytes room(2048);
    room.resize(encode_ack(room, sample_common(PacketType::kAck), want));
    CHECK(room.size() == kHeaderBytes + 32 + 16 * count);
    Packet packet;
    REQUIRE(decode(room, packet) == Drop::kNone);
    CHECK(packet.ack.credit_chunks == want.credit_chunks);
    CHECK(packet.ack.posted_op_seq == want.posted_op_seq);
    CHECK(packet.ack.delay_ns == want.delay_ns);
    CHECK(packet.ack.ecn_ce_count == want.ecn_ce_count);
    CHECK(packet.ack.called == want.called);
    REQUIRE(packet.ack.range_count == count);
    for (std::size_t i = 0; i < count; ++i) CHECK(packet.ack.ranges[i] == want.ranges[i]);
  }
}

TEST_CASE("an acknowledgement says the format of what was called, if that is for such a call") {
  AckHeader want = sample_ack();
  want.called.format = WireFormat::kInt8;
  for (const RedOp redop : {RedOp::kAvg, RedOp::kMax}) {
    want.called.redop = redop;
    Bytes room(2048);
    room.resize(encode_ack(room, sample_common(PacketType::kAck), want));
    CHECK(std::to_integer<int>(room.at(94)) == 2);
    Packet packet;
    const bool is_sum = redop == RedOp::kAvg;
    REQUIRE(decode(room, packet) == (is_sum ? Drop::kNone : Drop::kMalformed));
    if (is_sum) CHECK(packet.ack.called == want.called);
  }
  CHECK(decode_changed(PacketType::kAck, 94, 3) == Drop::kMalformed);
  CHECK(decode_changed(PacketType::kAck, 95, 1) == Drop::kMalformed);
}

TEST_CASE("hello, abort and bye decode to what was encoded") {
  Packet packet;
  const Bytes hello = sample_packet(PacketType::kHello);
  REQUIRE(decode(hello, packet) == Drop::kNone);
  const HelloBody want = sample_hello();
  CHECK(packet.hello.key == want.key);
  CHECK(packet.hello.incarnation == want.incarnation);
  CHECK(packet.hello.table_digest == want.table_digest);
  CHECK(packet.hello.features == want.features);
  CHECK(packet.hello.payload_bytes == want.payload_bytes);
  CHECK(packet.hello.from_rank == want.from_rank);
  CHECK(packet.hello.to_rank == want.to_rank);
  CHECK(packet.hello.nranks == want.nranks);
  CHECK(packet.hello.lanes == want.lanes);
  CHECK(packet.hello.credit_chunks == want.credit_chunks);
  CHECK(packet.hello.posted_op_seq == want.posted_op_seq);
  CHECK(packet.hello.source == want.source);
  CHECK(packet.hello.heard_source == want.heard_source);
  CHECK(packet.hello.members == want.members);
  CHECK(packet.hello.folding_ranks == want.folding_ranks);

  const Bytes abort = sample_packet(PacketType::kAbort);
  REQUIRE(decode(abort, packet) == Drop::kNone);
  CHECK(describe(packet.abort) == describe(sample_abort()));
  CHECK(packet.abort.reporter_rank == 10);
  CHECK(packet.abort.duration_ns == sample_abort().duration_ns);

  const Bytes bye = sample_packet(PacketType::kBye);
  REQUIRE(decode(bye, packet) == Drop::kNone);
  CHECK(packet.bye.completed_op_seq == kSampleBye.completed_op_seq);
  CHECK(packet.bye.digest == kSampleBye.digest);
  CHECK(packet.bye.posted_by_all == kSampleBye.posted_by_all);

  REQUIRE(decode(sample_packet(PacketType::kPing), packet) == Drop::kNone);
  CHECK(packet.asked_op_seq == kSampleAsked);
}

TEST_CASE("a packet decodes at any address") {
  for (const PacketType type : kAllTypes) {
    const Bytes bytes = sample_packet(type);
    for (std::size_t shift = 1; shift < 8; ++shift) {
      Bytes moved(shift);
      moved.insert(moved.end(), bytes.begin(), bytes.end());
      Packet packet;
      CHECK(decode(std::span<const std::byte>(moved).subspan(shift), packet) == Drop::kNone);
      CHECK(payload_crc_ok(packet));
    }
  }
}

TEST_CASE("a packet cut at any length is dropped") {
  for (const PacketType type : kAllTypes) {
    const Bytes whole = sample_packet(type);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      INFO("type " << static_cast<int>(type) << " cut to " << length);
      // A copy of its own size: an address sanitizer then sees reads behind the end.
      Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      Packet packet;
      const Drop drop = decode(cut, packet);
      if (length < kHeaderBytes) {
        CHECK(drop == Drop::kShort);
      } else if (has_elements(type)) {
        // How many elements a chunk has its op says: here whole ones are right, but for the CRC.
        const std::size_t bytes = length - kHeaderBytes;
        CHECK(drop == (bytes < 2 ? Drop::kShort : bytes % 2 != 0 ? Drop::kMalformed : Drop::kNone));
        if (drop == Drop::kNone) CHECK_FALSE(payload_crc_ok(packet));
        continue;
      } else if (has_any_length(type)) {
        // Its transfer, or its op by tiles, says how long each piece is.
        CHECK(drop == (length == kHeaderBytes ? Drop::kShort : Drop::kNone));
        if (drop == Drop::kNone) CHECK_FALSE(payload_crc_ok(packet));
        continue;
      } else {
        CHECK(drop == Drop::kPayloadCrc);
      }
      // Were it an accident's CRC that fits, the length itself would tell.
      if (length < kHeaderBytes) continue;
      repair(cut);
      const bool only_padding_lost =
          type == PacketType::kHello && length >= kHeaderBytes + kHelloBodyBytes;
      CHECK(decode_bytes(cut) == (only_padding_lost ? Drop::kNone : Drop::kShort));
    }
  }
}

TEST_CASE("a packet longer than its fields say is dropped") {
  for (const PacketType type : kAllTypes) {
    INFO("type " << static_cast<int>(type));
    Bytes longer = sample_packet(type);
    longer.push_back(std::byte{0});
    repair(longer);
    const bool may_be_padded = type == PacketType::kHello || type == PacketType::kHelloAck;
    const bool any_length = may_be_padded || has_any_length(type);
    CHECK(decode_bytes(longer) == (any_length ? Drop::kNone : Drop::kMalformed));
  }
}

TEST_CASE("a flipped bit anywhere in a header is noticed") {
  for (const PacketType type : kAllTypes) {
    for (std::size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
      Bytes bytes = sample_packet(type);
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      INFO("type " << static_cast<int>(type) << " bit " << bit);
      CHECK(decode_bytes(bytes) == (bit < 8 ? Drop::kVersion : Drop::kHeaderCrc));
    }
  }
}

TEST_CASE("a flipped bit anywhere in a payload is noticed") {
  for (const PacketType type : kAllTypes) {
    const Bytes good = sample_packet(type);
    for (std::size_t bit = kHeaderBytes * 8; bit < good.size() * 8; ++bit) {
      Bytes bytes = good;
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      INFO("type " << static_cast<int>(type) << " bit " << bit);
      Packet packet;
      const Drop drop = decode(bytes, packet);
      if (carries_chunk(type)) {
        REQUIRE(drop == Drop::kNone);
        CHECK_FALSE(payload_crc_ok(packet));
      } else {
        CHECK(drop == Drop::kPayloadCrc);
      }
    }
  }
}

TEST_CASE("random bytes, and random changes with right CRCs, do no harm") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::size_t accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = sample_packet(kAllTypes[random() % kAllTypes.size()]);
    for (std::uint64_t changes = random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(kHeaderBytes + random() % 300);
    repair(bytes);
    Packet packet;
    if (decode(bytes, packet) != Drop::kNone) continue;
    ++accepted;
    REQUIRE(packet.common.lane < kMaxLanes);
    REQUIRE(packet.payload.data() == bytes.data() + kHeaderBytes);
    REQUIRE(packet.payload.size() == bytes.size() - kHeaderBytes);
    if (packet.common.type == PacketType::kData)
      REQUIRE(packet.payload.size() == packet.data.count * element_bytes(packet.data.datatype));
    if (packet.common.type == PacketType::kAck) REQUIRE(packet.ack.range_count <= kMaxAckRanges);
  }
  CHECK(accepted > 0);
}

TEST_CASE("every drop reason has a name of its own") {
  std::set<std::string> names;
  for (int i = 0; i < kDropCount; ++i) names.insert(name_of(static_cast<Drop>(i)));
  CHECK(names.size() == static_cast<std::size_t>(kDropCount));
  CHECK(names.count("drop?") == 0);
  CHECK(std::string(name_of(static_cast<Drop>(200))) == "drop?");
}
