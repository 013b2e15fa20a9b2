// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include "samples.h"

using namespace gradwire;
using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

// Made by a program that shares nothing with this one, from doc/protocol.md. If a change here makes
// these fail, the wire changed: that needs a new version number.
const std::map<PacketType, std::string> kGolden = {
    {PacketType::kData,
     "01030103a1b2c3d41122334455667788010203040506070800000000deadbeef"
     "11121314212223240003000503040000ac9dd5024f4dfbabf1f2f3f4f5f6f7f8"
     "010203040506"},
    {PacketType::kPing,
     "01040103a1b2c3d4112233445566778800000000000000000000000000000000"
     "000000000000000000000000000000000d0397a200000000f1f2f3f4f5f6f7f8"},
    {PacketType::kAck,
     "01050003a1b2c3d4112233445566778831323334353637384142434445464748"
     "515253546162636402000000000000009ef7ee1702172234f1f2f3f4f5f6f7f8"
     "0000000000000064000000000000010000000000000000070000000000000062"},
    {PacketType::kHello,
     "0101010300000000112233445566778800000000000000000000000000000000"
     "000000000000000000000000000000006dc5e1359fbc6a21f1f2f3f4f5f6f7f8"
     "71727374757677788182838491929394a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8"
     "00002000c1c2c3c40004000500060007d1d2d3d4d5d6d7d8e1e2e3e4e5e6e7e8"
     "00000000000000000000000000000000"},
    {PacketType::kHelloAck,
     "01020003a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000000c8f7ab270f9e621ff1f2f3f4f5f6f7f8"
     "71727374757677788182838491929394a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8"
     "00002000c1c2c3c40004000500060007d1d2d3d4d5d6d7d8e1e2e3e4e5e6e7e8"
     "0000000000000000"},
    {PacketType::kAbort,
     "01060103a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000000764994a32e09375ff1f2f3f4f5f6f7f8"
     "01000009000a00001718191a1b1c1d1e2728292a2b2c2d2e676f6e6500000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000000000000000000000000000000000000000000000000000"
     "000000000000000000000000000000000000000000000000"},
    {PacketType::kBye,
     "01070103a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000000e31b91a67a8c873df1f2f3f4f5f6f7f8"
     "3738393a3b3c3d3e"},
    {PacketType::kByeAck,
     "01080003a1b2c3d4112233445566778800000000000000000000000000000000"
     "000000000000000000000000000000007c4af40f7a8c873df1f2f3f4f5f6f7f8"
     "3738393a3b3c3d3e"},
    {PacketType::kProgressCheck,
     "01090103a1b2c3d4112233445566778800000000000000000000000000000000"
     "00000000000000000000000000000000757015c5fde993dff1f2f3f4f5f6f7f8"
     "414243444546474851525354555657580301000000000000"},
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
  refused(96, [&](auto out) { return encode_ack(out, common, sample_ack()); });
  refused(136, [&](auto out) {
    return encode_hello(out, PacketType::kHello, common, sample_hello(), 0);
  });
  refused(1500, [&](auto out) {
    return encode_hello(out, PacketType::kHelloAck, common, sample_hello(), 1500);
  });
  refused(248, [&](auto out) { return encode_abort(out, common, sample_abort()); });
  refused(72, [&](auto out) { return encode_bye(out, PacketType::kBye, common, kSampleBye); });
}

TEST_CASE("what lies behind an abort's text does not leave the machine") {
  AbortReason reason = sample_abort();
  std::memcpy(reason.detail + 5, "secret", 6);
  Bytes room(2048);
  const std::size_t length = encode_abort(room, sample_common(PacketType::kAbort), reason);
  room.resize(length);
  CHECK(to_hex(room) == kGolden.at(PacketType::kAbort));
}

TEST_CASE("the direction flag of one-way types is set whatever the caller says") {
  for (const PacketType type : {PacketType::kPing, PacketType::kData}) {
    CommonHeader common = sample_common(type);
    common.flags = 0;
    Bytes room(64);
    if (type == PacketType::kPing) {
      REQUIRE(encode_ping(room, common) == 64);
    } else {
      room = make_data(common, sample_data(), from_hex("010203040506"));
    }
    CHECK(room[2] == std::byte{kFlagFromUpstream});
  }
  CommonHeader common = sample_common(PacketType::kAck);
  common.flags = kFlagFromUpstream;
  Bytes room(96);
  REQUIRE(encode_ack(room, common, sample_ack()) == 96);
  CHECK(room[2] == std::byte{0});
}
