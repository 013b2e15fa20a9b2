// SPDX-License-Identifier: BSD-3-Clause
// Frames over IPv6. The expected bytes were made by a program that shares nothing with this one.
#include <algorithm>

#include "samples.h"
#include "wire/frame.h"
#include "wire/internet_checksum.h"

using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

FrameAddresses ipv6_addresses() {
  FrameAddresses addresses;
  addresses.source_mac = {2, 0, 0, 0, 0, 1};
  addresses.destination_mac = {2, 0, 0, 0, 0, 2};
  addresses.source_ip = *parse_ip("fd00::1");
  addresses.destination_ip = *parse_ip("fd00::2");
  addresses.source_port = 0x1234;
  addresses.destination_port = 0x5678;
  addresses.dscp = 26;
  addresses.ecn = 2;
  return addresses;
}

/// 64 bytes in the header's place, 0 ... 63, and more behind them: an odd number in all.
Bytes sample_packet(std::size_t more = 37) {
  Bytes packet(64 + more, std::byte{0xaa});
  for (std::size_t i = 0; i < 64; ++i) packet[i] = static_cast<std::byte>(i);
  return packet;
}

bool complete(Bytes& frame, UdpSum by = UdpSum::kCpu, std::size_t ip = 14) {
  return complete_ipv6(std::span(frame).subspan(ip), by);
}

Bytes whole_frame() {
  Bytes frame = make_frame(ipv6_addresses(), sample_packet());
  REQUIRE(complete(frame));
  return frame;
}

Drop parse_changed(std::size_t at, int value) {
  Bytes frame = whole_frame();
  frame.at(at) = static_cast<std::byte>(value);
  FrameView view;
  return parse_frame(frame, view);
}

FrameKind kind_of(const Bytes& frame) {
  FrameView view;
  REQUIRE(parse_frame(frame, view) == Drop::kNone);
  return view.kind;
}

/// The checksum from scratch, word by word: 0xffff if it is right.
std::uint32_t udp_sum(const Bytes& frame, std::size_t ip = 14) {
  std::uint32_t sum = 0;
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(frame[i]); };
  for (std::size_t i = ip + 8; i < frame.size(); i += 2) {
    sum += byte(i) << 8 | (i + 1 < frame.size() ? byte(i + 1) : 0);
  }
  sum += 17 + static_cast<std::uint32_t>(frame.size() - ip - 40);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

}  // namespace

TEST_CASE("a frame over IPv6 is made of the specified bytes") {
  Bytes frame = make_frame(ipv6_addresses(), sample_packet());
  const std::string head =
      "02000000000202000000000186dd66a01234006d1140fd000000000000000000000000000001fd000000000000"
      "00000000000000000212345678006d";
  CHECK(to_hex(std::span(frame).first(62)) == head + "0000");
  REQUIRE(complete(frame));
  CHECK(to_hex(std::span(frame).first(62)) == head + "443e");
  CHECK(to_hex(std::span(frame).subspan(62 + 48, 4)) == "d1475b3d");
  CHECK(udp_sum(frame) == 0xffff);
}

TEST_CASE("with a VLAN tag everything lies 4 bytes later") {
  FrameAddresses addresses = ipv6_addresses();
  addresses.vlan_id = 100;
  Bytes frame = make_frame(addresses, sample_packet());
  REQUIRE(complete(frame, UdpSum::kCpu, 18));
  CHECK(to_hex(std::span(frame).subspan(12, 8)) == "8100006486dd66a0");
  Bytes plain = whole_frame();
  plain.insert(plain.begin() + 12, frame.begin() + 12, frame.begin() + 16);
  CHECK(frame == plain);
}

TEST_CASE("the UDP checksum over IPv6 is right for every length, and never 0") {
  for (std::size_t more = 0; more < 200; ++more) {
    Bytes packet = sample_packet(more);
    for (std::size_t i = 64; i < packet.size(); ++i) packet[i] = static_cast<std::byte>(i * 73);
    Bytes frame = make_frame(ipv6_addresses(), packet);
    REQUIRE(complete(frame));
    INFO(more);
    CHECK(udp_sum(frame) == 0xffff);
  }
  // Two bytes that bring the sum to where its complement is 0.
  Bytes frame = make_frame(ipv6_addresses(), sample_packet(2));
  frame[126] = frame[127] = std::byte{0};
  REQUIRE(complete(frame));
  std::copy(frame.begin() + 60, frame.begin() + 62, frame.begin() + 126);
  Bytes again = frame;
  again[60] = again[61] = std::byte{0};
  // Completing takes the addresses into the CRC, and a second time takes them out.
  REQUIRE(complete(again));
  REQUIRE(complete(again));
  CHECK(to_hex(std::span(again).subspan(60, 2)) == "ffff");
}

TEST_CASE("for a NIC that computes it the checksum is that of the pseudo-header") {
  Bytes frame = make_frame(ipv6_addresses(), sample_packet());
  // Its payload may be elsewhere.
  Bytes front(frame.begin(), frame.begin() + 62 + 64);
  REQUIRE(complete(front, UdpSum::kDevice));
  CHECK(to_hex(std::span(front).subspan(60, 2)) == "fa82");
  CHECK(to_hex(std::span(front).subspan(62 + 48, 4)) == "d1475b3d");
}

TEST_CASE("what is no datagram over IPv6 is left as it is") {
  for (const auto& [at, value] : {std::pair{14, 0x45}, std::pair{20, 58}, std::pair{20, 44}}) {
    Bytes frame = make_frame(ipv6_addresses(), sample_packet());
    frame[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    const Bytes before = frame;
    CHECK_FALSE(complete(frame));
    CHECK(frame == before);
  }
  Bytes small = make_frame(ipv6_addresses(), Bytes(63));
  CHECK_FALSE(complete(small));
}

TEST_CASE("a frame over IPv6 is read back") {
  const Bytes frame = whole_frame();
  FrameView view;
  REQUIRE(parse_frame(frame, view) == Drop::kNone);
  CHECK(view.kind == FrameKind::kUdp);
  CHECK(view.source_ip == *parse_ip("fd00::1"));
  CHECK(view.destination_ip == *parse_ip("fd00::2"));
  CHECK(view.source_port == 0x1234);
  CHECK(view.destination_port == 0x5678);
  CHECK(view.ecn == 2);
  CHECK(view.ip_offset == 14);
  CHECK(view.payload.size() == 101);
  CHECK(view.payload.data() == frame.data() + 62);
  // Ethernet's padding is cut off.
  Bytes padded = frame;
  padded.resize(frame.size() + 20);
  REQUIRE(parse_frame(padded, view) == Drop::kNone);
  CHECK(view.payload.size() == 101);
  for (int ecn = 0; ecn < 4; ++ecn) {
    Bytes marked = frame;
    marked[15] = static_cast<std::byte>(0x80 | ecn << 4);
    REQUIRE(parse_frame(marked, view) == Drop::kNone);
    CHECK(view.ecn == ecn);
  }
}

TEST_CASE("a frame over IPv6 that ends too early, or lies, is dropped") {
  const Bytes frame = whole_frame();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    FrameView view;
    CHECK(parse_frame(cut, view) == Drop::kShort);
  }
  CHECK(parse_changed(14, 0x46) == Drop::kMalformed);  // another version
  CHECK(parse_changed(18, 1) == Drop::kShort);         // 256 bytes longer
  CHECK(parse_changed(58, 1) == Drop::kShort);         // the datagram is
  CHECK(parse_changed(59, 7) == Drop::kMalformed);     // shorter than its header
  CHECK(parse_changed(21, 1) == Drop::kNone);          // a hop limit is not looked at
}

TEST_CASE("a datagram over IPv6 without a checksum is refused") {
  Bytes frame = whole_frame();
  frame[60] = frame[61] = std::byte{0};
  FrameView view;
  CHECK(parse_frame(frame, view) == Drop::kMalformed);
}

TEST_CASE("extension headers, fragments among them, and other protocols are none of ours") {
  for (const int protocol : {0, 6, 43, 44, 50, 60, 59}) {
    Bytes frame = whole_frame();
    frame[20] = static_cast<std::byte>(protocol);
    INFO(protocol);
    CHECK(kind_of(frame) == FrameKind::kOther);
  }
}

TEST_CASE("ICMPv6 is told apart, discovery only if no router forwarded it") {
  const auto icmp = [](int type, int code, int hops, std::size_t bytes) {
    Bytes frame = from_hex(
        "02000000000102000000000286dd6000000000003a40fd000000000000000000000000000002fd0000000000"
        "00000000000000000001");
    frame[19] = static_cast<std::byte>(bytes);
    frame[21] = static_cast<std::byte>(hops);
    frame.resize(frame.size() + bytes);
    frame[54] = static_cast<std::byte>(type);
    if (bytes > 1) frame[55] = static_cast<std::byte>(code);
    return frame;
  };
  CHECK(kind_of(icmp(128, 0, 64, 8)) == FrameKind::kIcmpEcho);
  CHECK(kind_of(icmp(128, 1, 64, 8)) == FrameKind::kOther);
  CHECK(kind_of(icmp(129, 0, 64, 8)) == FrameKind::kOther);
  CHECK(kind_of(icmp(2, 0, 64, 8)) == FrameKind::kIcmpTooBig);
  CHECK(kind_of(icmp(135, 0, 255, 24)) == FrameKind::kDiscovery);
  CHECK(kind_of(icmp(136, 0, 255, 24)) == FrameKind::kDiscovery);
  CHECK(kind_of(icmp(135, 0, 254, 24)) == FrameKind::kOther);
  CHECK(kind_of(icmp(136, 0, 64, 24)) == FrameKind::kOther);
  CHECK(kind_of(icmp(136, 1, 255, 24)) == FrameKind::kOther);
  // A router's advertisement and a redirect are never read.
  CHECK(kind_of(icmp(134, 0, 255, 40)) == FrameKind::kOther);
  CHECK(kind_of(icmp(137, 0, 255, 40)) == FrameKind::kOther);
  FrameView view;
  CHECK(parse_frame(icmp(135, 0, 255, 23), view) == Drop::kShort);
  CHECK(parse_frame(icmp(128, 0, 255, 7), view) == Drop::kShort);
}

TEST_CASE("addresses of two families make no frame") {
  FrameAddresses addresses = ipv6_addresses();
  addresses.destination_ip = *parse_ip("10.0.0.2");
  CHECK_FALSE(FrameTemplate::make(addresses).has_value());
  addresses.destination_ip = {};
  CHECK_FALSE(FrameTemplate::make(addresses).has_value());
}

TEST_CASE("a header's CRC covers the addresses over IPv6") {
  Bytes packet(kHeaderBytes);
  REQUIRE(encode_ping(packet, sample_common(PacketType::kPing)) == kHeaderBytes);
  Bytes frame = make_frame(ipv6_addresses(), packet);
  REQUIRE(complete(frame));
  FrameView view;
  const auto read = [&] {
    REQUIRE(parse_frame(frame, view) == Drop::kNone);
    Packet out;
    return decode_header(view.payload, out, address_crc(view.source_ip, view.destination_ip));
  };
  CHECK(read() == Drop::kNone);
  for (std::size_t at = 22; at < 54; ++at) {
    frame[at] ^= std::byte{4};
    CHECK(read() == Drop::kHeaderCrc);
    frame[at] ^= std::byte{4};
  }
  CHECK(read() == Drop::kNone);
  CHECK(address_crc(*parse_ip("10.0.0.1"), *parse_ip("10.0.0.2")) == 0);
}
