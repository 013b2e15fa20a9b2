// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include "samples.h"

using namespace gradwire;
using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

// Made by a program that shares nothing with this one, from doc/protocol. If a change here makes
// these fail, the wire changed: that needs a new version number.
const std::map<PacketType, std::string> kGolden = {
    {PacketType::kData,
     "02030003a1b2c3d4112233445566778801020304050607089192deadbeef0005"
     "11121314212223240304000000000102523efde34f4dfbabf1f2f3f4f5f6f7f8"
     "010203040506"},
    {PacketType::kPing,
     "02040003a1b2c3d4112233445566778891929394959697980000000000000000"
     "000000000000000000000000000001021937f97c00000000f1f2f3f4f5f6f7f8"},
    {PacketType::kAck,
     "02050003a1b2c3d4112233445566778831323334353637384142434445464748"
     "515253546162636402000000000001027be05724da505ca8f1f2f3f4f5f6f7f8"
     "212223242526272801020304050607080a0b0c0d0e0f08086162636423040000"
     "0000000000000064000000000000010000000000000000070000000000000062"},
    {PacketType::kHello,
     "02010003a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000102f7356adae0f353a1f1f2f3f4f5f6f7f8"
     "71727374757677788182838491929394a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8"
     "00002000000000000004000500060007d1d2d3d4d5d6d7d8e1e2e3e4e5e6e7e8"
     "111718191a1b00000000000000000000"},
    {PacketType::kHelloAck,
     "02020003a1b2c3d4112233445566778800000000000000000000000000000000"
     "000000000000000000000000000001025eb086199d716338f1f2f3f4f5f6f7f8"
     "71727374757677788182838491929394a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8"
     "00002000000000000004000500060007d1d2d3d4d5d6d7d8e1e2e3e4e5e6e7e8"
     "111718191a1b0000"},
    {PacketType::kAbort,
     "02060003a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000102685383362e09375ff1f2f3f4f5f6f7f8"
     "01000009000a00001718191a1b1c1d1e2728292a2b2c2d2e676f6e6500000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "000000000000000000000000000000000000000000000000"},
    {PacketType::kBye,
     "02070003a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000102eb37939592413577f1f2f3f4f5f6f7f8"
     "3738393a3b3c3d3e4748494a4b4c4d4e2748494a4b4c4d4e"},
    {PacketType::kByeAck,
     "02080003a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000102c11328c892413577f1f2f3f4f5f6f7f8"
     "3738393a3b3c3d3e4748494a4b4c4d4e2748494a4b4c4d4e"},
    {PacketType::kProgressCheck,
     "02090003a1b2c3d4112233445566778800000000000000000000000000000000"
     "000000000000000000000000000001026b6a0250fde993dff1f2f3f4f5f6f7f8"
     "414243444546474851525354555657580301000000000000"},
    {PacketType::kContribution,
     "020a0003a1b2c3d4112233445566778801020304050607089192deadbeef0005"
     "111213142122232403040000071901022528cf324f4dfbabf1f2f3f4f5f6f7f8"
     "010203040506"},
    {PacketType::kReceipt,
     "020b0003a1b2c3d4112233445566778841424344454647483132333435363738"
     "515253545556575861627172737401021d34fec300000000f1f2f3f4f5f6f7f8"},
    {PacketType::kInquiry,
     "020c0003a1b2c3d4112233445566778841424344454647483132333435363738"
     "5152535455565758616271727374010290f05ecf00000000f1f2f3f4f5f6f7f8"},
    {PacketType::kPiece,
     "020d0003a1b2c3d4112233445566778801020304050607080000000031323334"
     "111213142122232481829192030001028c091d874f4dfbabf1f2f3f4f5f6f7f8"
     "010203040506"},
    {PacketType::kOffer,
     "020e0103a1b2c3d4112233445566778801020304050607080000000031323334"
     "000000002122232481829192030101025aa8940b00000000f1f2f3f4f5f6f7f8"},
    {PacketType::kPull,
     "020f0103a1b2c3d4112233445566778801020304050607085152535455565758"
     "111213147172737481829192020001028b5af71200000000f1f2f3f4f5f6f7f8"},
    {PacketType::kTilePiece,
     "02100003a1b2c3d4112233445566778801020304050607089192deadbeef0000"
     "11121314212223242301080822000102824726e04f4dfbabf1f2f3f4f5f6f7f8"
     "010203040506"},
    {PacketType::kTileCall,
     "02110103a1b2c3d4112233445566778801020304050607089192deadbeef0000"
     "71727374212223242301080821190102c312459400000000f1f2f3f4f5f6f7f8"},
    {PacketType::kTilePull,
     "02120103a1b2c3d4112233445566778801020304050607081112131411121413"
     "31323334717273744142050000000102d155564e1bfc7864f1f2f3f4f5f6f7f8"
     "0000000000000000000000000000008000000000000000004000000000000001"},
};

}  // namespace

TEST_CASE("a packet of every type is made of the specified bytes") {
  for (const PacketType type : kAllTypes) {
    INFO("type " << static_cast<int>(type));
    CHECK(to_hex(sample_packet(type)) == kGolden.at(type));
  }
}

TEST_CASE("nothing is written where there is no room") {
  const CommonHeader common = sample_common(PacketType::kPing);
  Bytes room(2048, std::byte{0xee});
  const auto refused = [&](std::size_t needed, auto&& encode) {
    const std::span<std::byte> all(room);
    std::fill(room.begin(), room.end(), std::byte{0xee});
    CHECK(encode(all.first(needed - 1)) == 0);
    CHECK(std::all_of(room.begin(), room.end(), [](std::byte b) { return b == std::byte{0xee}; }));
    CHECK(encode(all.first(needed)) == needed);
    CHECK(room[needed] == std::byte{0xee});
  };
  refused(64, [&](auto out) { return encode_ping(out, common); });
  refused(128, [&](auto out) { return encode_ack(out, common, sample_ack()); });
  refused(136, [&](auto out) {
    return encode_hello(out, PacketType::kHello, common, sample_hello(), 0);
  });
  refused(1500, [&](auto out) {
    return encode_hello(out, PacketType::kHelloAck, common, sample_hello(), 1500);
  });
  refused(248, [&](auto out) { return encode_abort(out, common, sample_abort()); });
  refused(88, [&](auto out) { return encode_bye(out, PacketType::kBye, common, kSampleBye); });
}

TEST_CASE("what lies behind an abort's text does not leave the machine") {
  AbortReason reason = sample_abort();
  std::memcpy(reason.detail + 5, "secret", 6);
  Bytes room(2048);
  const std::size_t length = encode_abort(room, sample_common(PacketType::kAbort), reason);
  room.resize(length);
  CHECK(to_hex(room) == kGolden.at(PacketType::kAbort));
}

TEST_CASE("the digest of calls is the specified hash of the one before, and of number and call") {
  // SipHash-2-4 of the calls as they travel, by a program of its own.
  SaidCall barrier{.op_seq = 1, .tag = 7, .datatype = DataType::kUint8};
  barrier.collective = Collective::kBarrier;
  const SaidCall largest{
      .op_seq = 2, .count = 5, .tag = 9, .datatype = DataType::kInt32, .redop = RedOp::kMax};
  const SaidCall product{.op_seq = 3,
                         .count = 6,
                         .datatype = DataType::kBfloat16,
                         .redop = RedOp::kProd,
                         .collective = Collective::kReduce,
                         .root = 2};
  const std::uint64_t first = digest_of(0, barrier);
  const std::uint64_t second = digest_of(first, largest);
  CHECK(first == 0x5603c731500936eb);
  CHECK(second == 0x062e07851635402f);
  CHECK(digest_of(second, product) == 0xe8d83c96f4c0f986);
}

TEST_CASE("the tag of a group is the specified hash of its id and epoch") {
  // SipHash-2-4 under key zero, by a program of its own.
  CHECK(group_tag({0, 0}) == 0x7fdf4ce0);
  CHECK(group_tag({0x7172737475767778, 0x81828384}) == 0xf0053e6d);
}
