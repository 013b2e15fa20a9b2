// SPDX-License-Identifier: BSD-3-Clause
// What was found out about one frame, or one packet, is said of another only if parse_frame() and
// decode() would say the same of that.
#include "wire/alike.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "wire/layout.h"

using namespace gradwire;
using namespace gradwire::wire;

namespace {

constexpr std::size_t kPayloadBytes = 96;

struct DataFields {
  CommonHeader common{.type = PacketType::kData,
                      .lane = 3,
                      .group_tag = 0xa1b2c3d4,
                      .packet_number = 77,
                      .from_rank = 5,
                      .token = 0xf1f2f3f4f5f6f7f8};
  DataHeader data{.op_seq = 9, .total_count = 5'000, .chunk = 12, .tag = 4, .hop = 1};
  std::uint32_t payload_crc = 0x01020304;
};

std::vector<std::byte> packet_of(const DataFields& fields, std::size_t payload = kPayloadBytes) {
  std::vector<std::byte> bytes(kHeaderBytes + payload, std::byte{7});
  encode_data(std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes), fields.common,
              fields.data, fields.payload_crc);
  return bytes;
}

/// So that a change elsewhere in the header is not found by the CRC.
void sign(std::span<std::byte> packet) {
  layout::Big32 crc;
  crc.set(layout::header_crc(packet.data()));
  std::memcpy(packet.data() + offsetof(layout::Header, header_crc), &crc, sizeof(crc));
}

bool same_but_place(const Packet& a, const Packet& b) {
  DataHeader data = b.data;
  data.chunk = a.data.chunk;
  data.hop = a.data.hop;
  return a.common.type == b.common.type && a.common.lane == b.common.lane &&
         a.common.group_tag == b.common.group_tag && a.common.from_rank == b.common.from_rank &&
         a.common.token == b.common.token && data == a.data && a.payload.size() == b.payload.size();
}

bool same_view(const FrameView& a, const FrameView& b) {
  return a.kind == b.kind && a.source_mac == b.source_mac &&
         a.destination_mac == b.destination_mac && a.vlan_id == b.vlan_id &&
         a.source_ip == b.source_ip && a.destination_ip == b.destination_ip &&
         a.source_port == b.source_port && a.destination_port == b.destination_port &&
         a.ecn == b.ecn && a.ip_offset == b.ip_offset;
}

FrameAddresses addresses_of(int family, bool vlan) {
  FrameAddresses addresses;
  addresses.source_mac = {2, 0, 0, 0, 0, 1};
  addresses.destination_mac = {2, 0, 0, 0, 0, 2};
  if (vlan) addresses.vlan_id = 12;
  addresses.source_ip = *parse_ip(family == 4 ? "10.0.0.1" : "fd00::1");
  addresses.destination_ip = *parse_ip(family == 4 ? "10.0.0.2" : "fd00::2");
  addresses.source_port = 49'160;
  addresses.destination_port = 18'515;
  return addresses;
}

}  // namespace

TEST_CASE("data that differs in its place alone is read without being decoded") {
  DataFields fields;
  DataMemory memory;
  DataPlace place;
  memory.remember(packet_of(fields));
  fields.common.packet_number = kLastPacketNumber;
  fields.data.chunk = 0xfffffffe;
  fields.data.hop = kHopsMax - 1;
  fields.payload_crc = 0xdeadbeef;
  REQUIRE(memory.read(packet_of(fields).data(), 0, place));
  CHECK(place.packet_number == kLastPacketNumber);
  CHECK(place.chunk == 0xfffffffe);
  CHECK(place.hop == kHopsMax - 1);
  CHECK(place.payload_crc == 0xdeadbeef);

  SECTION("over IPv6 the header's CRC has the addresses in it") {
    CHECK_FALSE(memory.read(packet_of(fields).data(), 0x1234, place));
  }
  SECTION("a number, or a hop, beyond the last") {
    fields.common.packet_number = GENERATE(std::uint64_t{0}, kLastPacketNumber + 1, ~0ull);
    CHECK_FALSE(memory.read(packet_of(fields).data(), 0, place));
    fields.common.packet_number = 1;
    CHECK(memory.read(packet_of(fields).data(), 0, place));
    fields.data.hop = kHopsMax;
    CHECK_FALSE(memory.read(packet_of(fields).data(), 0, place));
  }
}

TEST_CASE("data that is read is what decode() makes of it") {
  std::mt19937_64 random(20261127);
  DataMemory memory;
  const std::vector<std::byte> kept = packet_of({});
  memory.remember(kept);
  Packet like;
  REQUIRE(decode(kept, like) == Drop::kNone);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> packet = kept;
    for (std::uint64_t change = random() % 4; change > 0; --change) {
      packet[random() % kHeaderBytes] ^= static_cast<std::byte>(1u << random() % 8);
    }
    if (random() % 4 != 0) sign(packet);
    DataPlace place;
    if (!memory.read(packet.data(), 0, place)) {
      ++refused;
      continue;
    }
    ++read;
    Packet decoded;
    const bool right = decode(packet, decoded) == Drop::kNone && same_but_place(decoded, like) &&
                       decoded.common.packet_number == place.packet_number &&
                       decoded.data.chunk == place.chunk && decoded.data.hop == place.hop &&
                       decoded.payload_crc == place.payload_crc;
    if (!right) FAIL("change " << i);
  }
  CHECK(read > 20'000);
  CHECK(refused > 20'000);
}

TEST_CASE("a frame that is alike is what parse_frame() makes of it") {
  const int family = GENERATE(4, 6);
  const bool vlan = GENERATE(false, true);
  const auto header = FrameTemplate::make(addresses_of(family, vlan));
  REQUIRE(header);
  // 20 bytes more, as Ethernet pads.
  std::vector<std::byte> kept(header->bytes() + kPayloadBytes + 20, std::byte{7});
  header->write(kept.data(), kPayloadBytes);
  if (family == 6) kept[header->bytes() - 1] = std::byte{1};  // a UDP checksum
  FrameView like;
  REQUIRE(parse_frame(kept, like) == Drop::kNone);
  FrameMemory memory;
  CHECK_FALSE(memory.is_alike(kept));
  memory.remember(kept, like);
  CHECK(memory.is_alike(kept));
  CHECK_FALSE(memory.is_alike(std::span(kept).first(kept.size() - 1)));
  std::mt19937_64 random(7);
  int alike = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> frame = kept;
    const std::size_t most = random() % 2 == 0 ? frame.size() : header->bytes();
    for (std::uint64_t change = random() % 3; change > 0; --change) {
      frame[random() % most] ^= static_cast<std::byte>(1u << random() % 8);
    }
    if (!memory.is_alike(frame)) continue;
    ++alike;
    FrameView view;
    const bool right = parse_frame(frame, view) == Drop::kNone && same_view(view, like) &&
                       view.payload.data() == memory.payload_of(frame.data()) &&
                       view.payload.size() == memory.payload_bytes();
    if (!right) FAIL("change " << i);
  }
  CHECK(alike > 30'000);
  memory.forget();
  CHECK_FALSE(memory.is_alike(kept));
}

TEST_CASE("over IPv6 a frame without a UDP checksum is like none") {
  const auto header = FrameTemplate::make(addresses_of(6, false));
  std::vector<std::byte> frame(header->bytes() + kPayloadBytes, std::byte{7});
  header->write(frame.data(), kPayloadBytes);
  frame[header->bytes() - 2] = std::byte{1};
  FrameView view;
  REQUIRE(parse_frame(frame, view) == Drop::kNone);
  FrameMemory memory;
  memory.remember(frame, view);
  CHECK(memory.is_alike(frame));
  frame[header->bytes() - 2] = std::byte{0};
  CHECK_FALSE(memory.is_alike(frame));
}

TEST_CASE("of frames with options, and of what is no datagram, nothing is remembered") {
  const auto header = FrameTemplate::make(addresses_of(4, false));
  std::vector<std::byte> frame(header->bytes() + kPayloadBytes, std::byte{7});
  header->write(frame.data(), kPayloadBytes);
  FrameView view;
  REQUIRE(parse_frame(frame, view) == Drop::kNone);
  FrameMemory memory;
  view.kind = FrameKind::kOther;
  memory.remember(frame, view);
  CHECK_FALSE(memory.is_alike(frame));
  view.kind = FrameKind::kUdp;
  view.payload = view.payload.subspan(40);  // as 40 bytes of options would have it
  memory.remember(frame, view);
  CHECK_FALSE(memory.is_alike(frame));
}
