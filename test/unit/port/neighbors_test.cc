// SPDX-License-Identifier: BSD-3-Clause
// Looking for a neighbor, answering one, and what frames are taken at all.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "neighbors_support.h"
#include "port/echo.h"

using namespace gradwire;
using namespace gradwire::port;
using namespace gradwire::port::test;

TEST_CASE("a request is the one of RFC 826 and a reply resolves") {
  Neighbors neighbors(config());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kUnknown);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(taken(neighbors) == kRequestFrame);
  CHECK(taken(neighbors).empty());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
  CHECK_FALSE(neighbors.lookup(address("10.0.0.2")));

  neighbors.on_frame(kReplyFrame, 1 * kMs);
  REQUIRE(neighbors.lookup(address("10.0.0.2")));
  CHECK(*neighbors.lookup(address("10.0.0.2")) == mac("02:00:00:00:00:02"));
  CHECK(taken(neighbors).empty());
}

TEST_CASE("an unanswered request is repeated so many times, then the address failed") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK_FALSE(taken(neighbors).empty());
  CHECK(neighbors.deadline() == 100 * kMs);
  neighbors.poll(99 * kMs);
  CHECK(taken(neighbors).empty());
  neighbors.poll(100 * kMs);
  CHECK(taken(neighbors) == kRequestFrame);
  neighbors.poll(200 * kMs);
  CHECK(taken(neighbors) == kRequestFrame);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
  neighbors.poll(300 * kMs);
  CHECK(taken(neighbors).empty());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kFailed);
  CHECK(neighbors.deadline() == kNever);

  // Asked for again, it is tried again; a late answer helps.
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 400 * kMs));
  CHECK(taken(neighbors) == kRequestFrame);
  neighbors.on_frame(kReplyFrame, 401 * kMs);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

TEST_CASE("who asks for us gets an answer, and teaches nothing") {
  Neighbors neighbors(config());
  neighbors.on_frame(kTheirRequest, 0);
  const auto reply = taken(neighbors);
  const auto expected = bytes({2, 0, 0, 0, 0, 2, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                               2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2});
  CHECK(reply == expected);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kUnknown);

  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  // Nor by a question: whoever asks can claim any address.
  neighbors.on_frame(kTheirRequest, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
}

TEST_CASE("what is not for us, not whole, or not ARP is ignored") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  const auto ignored = [&](std::vector<std::byte> frame) {
    neighbors.on_frame(frame, 1);
    return neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete &&
           taken(neighbors).empty();
  };
  for (std::size_t size = 0; size < 42; ++size) {
    CHECK(ignored({kReplyFrame.begin(), kReplyFrame.begin() + static_cast<std::ptrdiff_t>(size)}));
  }
  const auto with = [&](std::size_t at, int value) {
    auto frame = kReplyFrame;
    frame[at] = static_cast<std::byte>(value);
    return frame;
  };
  CHECK(ignored(with(41, 9)));     // for 10.0.0.9
  CHECK(ignored(with(15, 2)));     // not Ethernet
  CHECK(ignored(with(17, 1)));     // not IPv4
  CHECK(ignored(with(18, 8)));     // address length
  CHECK(ignored(with(21, 3)));     // neither request nor reply
  CHECK(ignored(with(22, 1)));     // multicast sender
  CHECK(ignored(with(31, 1)));     // says that it has our address
  CHECK(ignored(with(13, 0x07)));  // another EtherType
}

TEST_CASE("an address off the network, or of IPv6, is refused by name; static entries stay") {
  Neighbors neighbors(config());
  const auto off = neighbors.resolve(address("10.0.1.2"), 0);
  REQUIRE_FALSE(off);
  CHECK(off.error().message.find("10.0.1.2") != std::string::npos);
  CHECK(off.error().message.find("10.0.0.1/24") != std::string::npos);
  CHECK_FALSE(neighbors.resolve(address("fe80::1"), 0));

  neighbors.add_static(address("10.0.0.7"), mac("02:00:00:00:00:07"));
  REQUIRE(neighbors.resolve(address("10.0.0.7"), 0));
  CHECK(taken(neighbors).empty());
  neighbors.poll(3'600'000 * kMs);
  CHECK(*neighbors.lookup(address("10.0.0.7")) == mac("02:00:00:00:00:07"));
}

TEST_CASE("ARP from a group of hosts, or a reply to one, is refused and counted") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  const auto refused = [&](std::vector<std::byte> frame, std::size_t at, int value) {
    const std::uint64_t before = neighbors.counters().refused;
    frame[at] = static_cast<std::byte>(value);
    neighbors.on_frame(frame, 1);
    return neighbors.counters().refused == before + 1 && taken(neighbors).empty() &&
           neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete;
  };
  CHECK(refused(kReplyFrame, 0, 0xff));    // to many
  CHECK(refused(kReplyFrame, 6, 3));       // by a group, on Ethernet
  CHECK(refused(kReplyFrame, 22, 3));      // by a group, in ARP
  CHECK(refused(kTheirRequest, 6, 0xff));  // an answer would go to all
  CHECK(refused(kTheirRequest, 22, 0xff));
  neighbors.on_frame(kReplyFrame, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

TEST_CASE("on a VLAN, frames carry the tag and those without are ignored") {
  auto tagged = config();
  tagged.vlan_id = 7;
  Neighbors neighbors(tagged);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  auto expected = kRequestFrame;
  const auto tag = bytes({0x81, 0, 0, 7}, 4);
  expected.insert(expected.begin() + 12, tag.begin(), tag.end());
  expected.resize(60);
  CHECK(taken(neighbors) == expected);
  neighbors.on_frame(kReplyFrame, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
  auto reply = kReplyFrame;
  reply.insert(reply.begin() + 12, tag.begin(), tag.end());
  neighbors.on_frame(reply, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

TEST_CASE("an echo request becomes its reply in place") {
  // 10.0.0.2 pings 10.0.0.1, identifier 0x1234, sequence 1, 4 bytes of data.
  auto frame = bytes({2, 0,  0, 0, 0, 1, 2,    0,    0,    0,    0,    2,    8,    0,   0x45, 0,
                      0, 32, 0, 1, 0, 0, 64,   1,    0x66, 0xda, 10,   0,    0,    2,   10,   0,
                      0, 1,  8, 0, 0, 0, 0x12, 0x34, 0,    1,    0x61, 0x62, 0x63, 0x64});
  // Checksum of the ICMP part: 0x0800 + 0x1234 + 0x0001 + 0x6162 + 0x6364 = 0xdefb.
  frame[36] = std::byte{0x21};
  frame[37] = std::byte{0x04};
  wire::FrameView view;
  REQUIRE(wire::parse_frame(frame, view) == wire::Drop::kNone);
  REQUIRE(view.kind == wire::FrameKind::kIcmpEcho);
  const auto before = frame;

  SECTION("answered") {
    REQUIRE(answer_echo(frame, view));
    CHECK(std::equal(frame.begin(), frame.begin() + 6, before.begin() + 6));
    CHECK(std::equal(frame.begin() + 6, frame.begin() + 12, before.begin()));
    CHECK(std::equal(frame.begin() + 26, frame.begin() + 30, before.begin() + 30));
    CHECK(std::equal(frame.begin() + 30, frame.begin() + 34, before.begin() + 26));
    CHECK(frame[34] == std::byte{0});
    CHECK(frame[36] == std::byte{0x29});
    CHECK(frame[37] == std::byte{0x04});
    CHECK(std::equal(frame.begin() + 38, frame.end(), before.begin() + 38));
  }
  SECTION("from nobody who could be answered") {
    const auto left_alone = [&](const char* source_mac, const char* source_ip) {
      view.source_mac = mac(source_mac);
      view.source_ip = address(source_ip);
      return !answer_echo(frame, view) && frame == before;
    };
    CHECK(left_alone("ff:ff:ff:ff:ff:ff", "10.0.0.2"));
    CHECK(left_alone("01:00:5e:00:00:01", "10.0.0.2"));
    CHECK(left_alone("02:00:00:00:00:02", "255.255.255.255"));
    CHECK(left_alone("02:00:00:00:00:02", "224.0.0.1"));
    CHECK(left_alone("02:00:00:00:00:02", "127.0.0.1"));
    CHECK(left_alone("02:00:00:00:00:02", "0.0.0.0"));
    CHECK(left_alone("02:00:00:00:00:02", "10.0.0.1"));
  }
  SECTION("a wrong checksum is left alone") {
    frame[45] ^= std::byte{1};
    const auto wrong = frame;
    CHECK_FALSE(answer_echo(frame, view));
    CHECK(frame == wrong);
  }
}
