// SPDX-License-Identifier: BSD-3-Clause
#include "wire/frame.h"

#include "samples.h"

using namespace gradwire::wire;
using namespace gradwire::wire::test;

namespace {

FrameAddresses sample_addresses() {
  FrameAddresses addresses;
  addresses.source_mac = {2, 0, 0, 0, 0, 1};
  addresses.destination_mac = {2, 0, 0, 0, 0, 2};
  addresses.source_ip = *parse_ip("10.0.0.1");
  addresses.destination_ip = *parse_ip("10.0.0.2");
  addresses.source_port = 0x1234;
  addresses.destination_port = 0x5678;
  addresses.dscp = 26;
  addresses.ecn = 2;
  return addresses;
}

Drop parse_bytes(const Bytes& frame) {
  FrameView view;
  return parse_frame(frame, view);
}

/// The IP header's checksum computed from scratch, so that a test gets past that check.
void repair_ip(Bytes& frame, std::size_t ip) {
  const std::size_t words = (std::to_integer<std::size_t>(frame[ip]) & 15) * 2;
  frame[ip + 10] = frame[ip + 11] = std::byte{0};
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < words; ++i)
    sum += std::to_integer<std::uint32_t>(frame[ip + 2 * i]) * 256 +
           std::to_integer<std::uint32_t>(frame[ip + 2 * i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  frame[ip + 10] = static_cast<std::byte>(~sum >> 8);
  frame[ip + 11] = static_cast<std::byte>(~sum);
}

Bytes changed(std::size_t at, int value) {
  Bytes frame = make_frame(sample_addresses(), Bytes(100));
  frame.at(at) = static_cast<std::byte>(value);
  repair_ip(frame, 14);
  return frame;
}

}  // namespace

// Both made by a program that shares nothing with this one; the checksums are RFC 1071's from
// scratch, not incremental.
TEST_CASE("a frame is made of the specified bytes") {
  Bytes frame = make_frame(sample_addresses(), Bytes(100));
  frame.resize(42);
  CHECK(to_hex(frame) ==
        "0200000000020200000000010800456a008000004000401126010a0000010a00"
        "000212345678006c0000");
}

TEST_CASE("a frame with a VLAN tag is made of the specified bytes") {
  FrameAddresses addresses = sample_addresses();
  addresses.vlan_id = 100;
  Bytes frame = make_frame(addresses, Bytes(8960));
  frame.resize(46);
  CHECK(to_hex(frame) ==
        "020000000002020000000001810000640800456a231c00004000401103650a00"
        "00010a0000021234567823080000");
}

TEST_CASE("the incremental checksum is right for every length") {
  const auto frame_template = FrameTemplate::make(sample_addresses());
  REQUIRE(frame_template.has_value());
  Bytes frame(frame_template->bytes());
  for (std::size_t length = 0; length <= 65507; ++length) {
    frame_template->write(frame.data(), length);
    Bytes want = frame;
    repair_ip(want, 14);
    REQUIRE(frame == want);
  }
}

TEST_CASE("a frame parses to what it was made of") {
  for (const bool vlan : {false, true}) {
    FrameAddresses addresses = sample_addresses();
    if (vlan) addresses.vlan_id = 4094;
    const Bytes payload = from_hex("c0ffee0102");
    Bytes frame = make_frame(addresses, payload);
    frame.resize(64, std::byte{0xaa});  // as Ethernet pads it
    FrameView view;
    REQUIRE(parse_frame(frame, view) == Drop::kNone);
    CHECK(view.kind == FrameKind::kUdp);
    CHECK(view.source_mac == addresses.source_mac);
    CHECK(view.destination_mac == addresses.destination_mac);
    CHECK(view.vlan_id == addresses.vlan_id);
    CHECK(view.source_ip == addresses.source_ip);
    CHECK(view.destination_ip == addresses.destination_ip);
    CHECK(view.source_port == addresses.source_port);
    CHECK(view.destination_port == addresses.destination_port);
    CHECK(view.ecn == 2);
    CHECK(view.ip_offset == (vlan ? 18u : 14u));
    CHECK(to_hex(view.payload) == "c0ffee0102");
    CHECK(view.payload.data() == frame.data() + view.ip_offset + 28);
  }
}

TEST_CASE("a frame cut at any length is dropped") {
  const Bytes whole = make_frame(sample_addresses(), Bytes(20));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    INFO("cut to " << length);
    CHECK(parse_bytes(cut) == Drop::kShort);
  }
}

TEST_CASE("a flipped bit anywhere in the IP header is noticed") {
  const Bytes good = make_frame(sample_addresses(), Bytes(20));
  for (std::size_t bit = 14 * 8; bit < 34 * 8; ++bit) {
    Bytes frame = good;
    frame[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    INFO("bit " << bit);
    // One of them makes the header longer than the frame.
    CHECK(parse_bytes(frame) == (bit == 14 * 8 + 3 ? Drop::kShort : Drop::kMalformed));
  }
}

TEST_CASE("IP and UDP fields are checked") {
  CHECK(parse_bytes(changed(14, 0x45)) == Drop::kNone);
  CHECK(parse_bytes(changed(14, 0x65)) == Drop::kMalformed);  // version 6 under IPv4's type
  CHECK(parse_bytes(changed(14, 0x44)) == Drop::kMalformed);  // 16 bytes of header
  CHECK(parse_bytes(changed(16, 0x40)) == Drop::kShort);      // total length beyond the frame
  Bytes tiny = changed(17, 19);
  tiny[16] = std::byte{0};
  repair_ip(tiny, 14);
  CHECK(parse_bytes(tiny) == Drop::kMalformed);             // total length within the header
  CHECK(parse_bytes(changed(20, 0x20)) == Drop::kForeign);  // more fragments
  CHECK(parse_bytes(changed(21, 0x01)) == Drop::kForeign);  // a later fragment
  CHECK(parse_bytes(changed(20, 0x00)) == Drop::kNone);     // may be cut, is whole
  CHECK(parse_bytes(changed(39, 7)) == Drop::kMalformed);   // UDP length below its header
  CHECK(parse_bytes(changed(39, 109)) == Drop::kShort);     // UDP length beyond IP's
}

TEST_CASE("UDP's length cuts the payload too, and options are skipped") {
  FrameView view;
  const Bytes shorter = changed(39, 58);
  REQUIRE(parse_frame(shorter, view) == Drop::kNone);
  CHECK(view.payload.size() == 50);

  // Four bytes of options: the first payload bytes become UDP's header.
  Bytes options = make_frame(sample_addresses(), from_hex("0000000012345678000800001122"));
  options.erase(options.begin() + 34, options.begin() + 42);
  options[14] = std::byte{0x46};
  options[17] = static_cast<std::byte>(24 + 8);
  repair_ip(options, 14);
  REQUIRE(parse_frame(options, view) == Drop::kNone);
  CHECK(view.kind == FrameKind::kUdp);
  CHECK(view.destination_port == 0x5678);
  CHECK(view.payload.empty());
}

TEST_CASE("ARP, ICMP echo and the rest are told apart") {
  FrameView view;
  Bytes arp = from_hex("ffffffffffff0200000000010806");
  arp.resize(14 + 28);
  REQUIRE(parse_frame(arp, view) == Drop::kNone);
  CHECK(view.kind == FrameKind::kArp);
  CHECK(view.payload.size() == 28);
  arp.pop_back();
  CHECK(parse_bytes(arp) == Drop::kShort);

  Bytes echo = changed(23, 1);  // ICMP
  echo[34] = std::byte{8};
  echo[35] = std::byte{0};
  REQUIRE(parse_frame(echo, view) == Drop::kNone);
  CHECK(view.kind == FrameKind::kIcmpEcho);
  CHECK(view.payload.size() == 108);
  CHECK(view.source_ip == *parse_ip("10.0.0.1"));
  echo[34] = std::byte{0};  // a reply
  REQUIRE(parse_frame(echo, view) == Drop::kNone);
  CHECK(view.kind == FrameKind::kOther);

  for (const char* type : {"88cc", "88a8"}) {  // LLDP, a second VLAN tag
    Bytes other = from_hex(std::string("ffffffffffff020000000001") + type);
    other.resize(100);
    REQUIRE(parse_frame(other, view) == Drop::kNone);
    CHECK(view.kind == FrameKind::kOther);
  }
  Bytes two_tags = from_hex("ffffffffffff0200000000018100000181000002");
  two_tags.resize(100);
  REQUIRE(parse_frame(two_tags, view) == Drop::kNone);
  CHECK(view.kind == FrameKind::kOther);

  CHECK(parse_bytes(changed(23, 6)) == Drop::kNone);  // TCP is somebody else's
}

TEST_CASE("a priority tag is no VLAN") {
  FrameAddresses addresses = sample_addresses();
  addresses.vlan_id = 0;
  Bytes frame = make_frame(addresses, Bytes(64));
  frame[14] = std::byte{0xa0};  // priority 5
  FrameView view;
  REQUIRE(parse_frame(frame, view) == Drop::kNone);
  CHECK_FALSE(view.vlan_id.has_value());
  CHECK(view.kind == FrameKind::kUdp);
}

TEST_CASE("addresses that do not fit together give no template") {
  const auto made = [](auto change) {
    FrameAddresses addresses = sample_addresses();
    change(addresses);
    return FrameTemplate::make(addresses).has_value();
  };
  CHECK(made([](FrameAddresses&) {}));
  CHECK_FALSE(made([](FrameAddresses& a) { a.source_ip = {}; }));
  CHECK_FALSE(made([](FrameAddresses& a) { a.destination_ip = *parse_ip("fd00::1"); }));
  CHECK_FALSE(made([](FrameAddresses& a) { a.dscp = 64; }));
  CHECK_FALSE(made([](FrameAddresses& a) { a.ecn = 4; }));
  CHECK_FALSE(made([](FrameAddresses& a) { a.vlan_id = 4095; }));
}

TEST_CASE("the payload that fits an MTU") {
  CHECK(max_payload_bytes(1500, 4) == 1408);
  CHECK(max_payload_bytes(1500, 6) == 1344);
  CHECK(max_payload_bytes(9000, 4) == 8896);
  CHECK(max_payload_bytes(92 + 64, 4) == 64);
  CHECK(max_payload_bytes(92 + 63, 4) == 0);
  CHECK(max_payload_bytes(0, 4) == 0);
  CHECK(max_payload_bytes(1'000'000, 4) == max_payload_bytes(65535, 4));
  CHECK(max_payload_bytes(1500, 0) == 0);
}
