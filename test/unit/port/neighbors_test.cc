// SPDX-License-Identifier: BSD-3-Clause
#include "port/neighbors.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <vector>

using namespace gradwire;
using namespace gradwire::port;

namespace {

constexpr TimeNs kMs = 1'000'000;

wire::IpAddress address(const char* text) { return *wire::parse_ip(text); }
wire::MacAddress mac(const char* text) { return *wire::parse_mac(text); }

NeighborsConfig config() {
  NeighborsConfig out;
  out.mac = mac("02:00:00:00:00:01");
  out.ip = address("10.0.0.1");
  out.prefix_bits = 24;
  out.retry_ns = 100 * kMs;
  out.attempts = 3;
  out.lifetime_ns = 60'000 * kMs;
  return out;
}

std::vector<std::byte> bytes(std::initializer_list<int> values, std::size_t padded = 60) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  out.resize(std::max(out.size(), padded));
  return out;
}

// RFC 826, as it was seen on a network: 10.0.0.1 asks who has 10.0.0.2.
const auto kRequestFrame =
    bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           1,    2,    0,    0,    0,    0,    1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2});
// 10.0.0.2 answers with 02:00:00:00:00:02.
const auto kReplyFrame = bytes({2, 0, 0, 0, 0, 1, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                                2, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1});
// 10.0.0.2 asks who has 10.0.0.1.
const auto kTheirRequest =
    bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           1,    2,    0,    0,    0,    0,    2, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1});

std::vector<std::byte> taken(Neighbors& neighbors) {
  NeighborFrame frame;
  if (!neighbors.take_frame(frame)) return {};
  return {frame.view().begin(), frame.view().end()};
}

}  // namespace

TEST_CASE("a request is the one of RFC 826 and a reply resolves") {
  Neighbors neighbors(config());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kUnknown);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(taken(neighbors) == kRequestFrame);
  CHECK(taken(neighbors).empty());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kResolving);
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
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kResolving);
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

TEST_CASE("an answer grows old, is renewed by unicast, and fails if nobody answers") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  neighbors.on_frame(kReplyFrame, 0);
  CHECK(neighbors.deadline() == 45'000 * kMs);
  neighbors.poll(45'000 * kMs);
  const auto renewal = taken(neighbors);
  REQUIRE(renewal.size() == 60);
  CHECK(renewal[5] == std::byte{2});  // to 02:00:00:00:00:02, not to everybody
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);

  SECTION("answered") {
    neighbors.on_frame(kReplyFrame, 45'001 * kMs);
    CHECK(neighbors.deadline() == 90'001 * kMs);
    neighbors.poll(60'000 * kMs);
    CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
  }
  SECTION("not answered") {
    TimeNs now = 45'000 * kMs;
    while (neighbors.deadline() != kNever && now < 100'000 * kMs) {
      now = neighbors.deadline();
      neighbors.poll(now);
    }
    CHECK(now == 60'000 * kMs);
    CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kFailed);
  }
}

TEST_CASE("after the link was down what was learnt is asked for anew") {
  Neighbors neighbors(config());
  neighbors.add_static(address("10.0.0.3"), mac("02:00:00:00:00:03"));
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(taken(neighbors) == kRequestFrame);
  neighbors.on_frame(kReplyFrame, 1);
  REQUIRE(neighbors.lookup(address("10.0.0.2")));
  neighbors.forget_learnt();
  CHECK_FALSE(neighbors.lookup(address("10.0.0.2")));
  CHECK(neighbors.lookup(address("10.0.0.3")) == mac("02:00:00:00:00:03"));
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 2));
  CHECK(taken(neighbors) == kRequestFrame);
}

TEST_CASE("who asks for us gets an answer, and teaches only what was asked for") {
  Neighbors neighbors(config());
  neighbors.on_frame(kTheirRequest, 0);
  const auto reply = taken(neighbors);
  const auto expected = bytes({2, 0, 0, 0, 0, 2, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                               2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2});
  CHECK(reply == expected);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kUnknown);

  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  neighbors.on_frame(kTheirRequest, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

TEST_CASE("what is not for us, not whole, or not ARP is ignored") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  const auto ignored = [&](std::vector<std::byte> frame) {
    neighbors.on_frame(frame, 1);
    return neighbors.state(address("10.0.0.2")) == NeighborState::kResolving &&
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

TEST_CASE("an address off the network and IPv6 are refused by name; static entries stay") {
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

TEST_CASE("strangers get so many answers, whoever floods, and neighbours theirs all the same") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  neighbors.on_frame(kReplyFrame, 0);
  while (!taken(neighbors).empty()) {
  }
  auto stranger = kTheirRequest;
  stranger[31] = std::byte{77};  // 10.0.0.77
  int answers = 0;
  for (int i = 0; i < 100'000; ++i) {
    neighbors.on_frame(stranger, i * 10'000);  // for a second
    while (!taken(neighbors).empty()) ++answers;
  }
  CHECK(answers >= 1'000);
  CHECK(answers <= 1'000 + static_cast<int>(ReplyLimit::kBurst));
  neighbors.on_frame(kTheirRequest, 1'000 * kMs);
  CHECK_FALSE(taken(neighbors).empty());
}

TEST_CASE("the table and the answers are bounded") {
  auto small = config();
  small.max_entries = 1;
  Neighbors neighbors(small);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(neighbors.resolve(address("10.0.0.3"), 0).error().code == ErrorCode::kResourceExhausted);

  for (int i = 0; i < 10'000; ++i) neighbors.on_frame(kTheirRequest, i * kMs);
  int frames = 0;
  while (!taken(neighbors).empty()) ++frames;
  CHECK(frames == 256);
}

namespace {

wire::IpAddress made_up(unsigned i) {
  wire::IpAddress ip = address("10.0.0.0");
  ip.bytes[2] = static_cast<std::uint8_t>(i / 256);
  ip.bytes[3] = static_cast<std::uint8_t>(i % 256);
  return ip;
}

/// A reply from `ip`, whose MAC address ends like its number.
std::vector<std::byte> reply_from(const wire::IpAddress& ip) {
  auto frame = kReplyFrame;
  for (std::size_t i = 0; i < 4; ++i) frame[28 + i] = std::byte{ip.bytes[i]};
  return frame;
}

/// Asked for, and nobody answers: until all have failed.
void ask_in_vain(Neighbors& neighbors, unsigned first, unsigned count, TimeNs& now) {
  for (unsigned i = first; i < first + count; ++i) REQUIRE(neighbors.resolve(made_up(i), now));
  for (int i = 0; i < 20; ++i) {
    neighbors.poll(now += 100 * kMs);
    while (!taken(neighbors).empty()) {
    }
  }
}

NeighborsConfig wide(std::size_t max_entries) {
  auto out = config();
  out.ip = address("10.0.0.1");
  out.prefix_bits = 16;
  out.max_entries = max_entries;
  return out;
}

}  // namespace

TEST_CASE("addresses that nobody has keep no neighbour out") {
  Neighbors neighbors(wide(1024));
  TimeNs now = 0;
  ask_in_vain(neighbors, 256, 1024, now);
  CHECK(neighbors.size() == 1024);
  const wire::IpAddress real = address("10.0.0.2");
  REQUIRE(neighbors.resolve(real, now));
  neighbors.on_frame(kReplyFrame, now);
  CHECK(neighbors.lookup(real));
  CHECK(neighbors.size() == 1024);
  CHECK(neighbors.counters().evicted == 1);
  // The one that was asked for first went.
  CHECK(neighbors.state(made_up(256)) == NeighborState::kUnknown);
  CHECK(neighbors.state(made_up(257)) == NeighborState::kFailed);

  // However many more are made up, the neighbour that lives stays.
  for (int i = 1; i < 10; ++i) ask_in_vain(neighbors, 256 + 1024u * i, 1023, now);
  CHECK(neighbors.lookup(real));
  CHECK(neighbors.size() == 1024);
}

TEST_CASE("a full table keeps what is static, used by a group, or waited for") {
  Neighbors neighbors(wide(4));
  neighbors.add_static(address("10.0.0.7"), mac("02:00:00:00:00:07"));
  TimeNs now = 0;
  const wire::IpAddress used = address("10.0.0.2");
  REQUIRE(neighbors.resolve(used, now));
  neighbors.on_frame(kReplyFrame, now);
  REQUIRE(neighbors.hold(used));
  CHECK_FALSE(neighbors.hold(address("10.0.0.99")));
  // It is used still, though it answers no more and the link was down.
  neighbors.forget_learnt();
  ask_in_vain(neighbors, 256, 1, now);

  const wire::IpAddress waited = address("10.0.0.3");
  REQUIRE(neighbors.resolve(waited, now));
  now += 999 * kMs;
  REQUIRE(neighbors.resolve(address("10.0.0.4"), now));  // in the made-up one's place
  CHECK(neighbors.counters().evicted == 1);
  const auto none = neighbors.resolve(address("10.0.0.5"), now);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::kResourceExhausted);
  CHECK(none.error().message.find("the table of neighbours is full") != std::string::npos);
  CHECK(neighbors.state(waited) == NeighborState::kResolving);

  neighbors.release(used);
  REQUIRE(neighbors.resolve(address("10.0.0.5"), now));
  CHECK(neighbors.state(used) == NeighborState::kUnknown);
  CHECK(neighbors.state(waited) == NeighborState::kResolving);
  CHECK(neighbors.lookup(address("10.0.0.7")));
}

// A router that answers for every address (proxy ARP) makes each of them look alive.
TEST_CASE("addresses that answer but that no group uses go last, and do go") {
  Neighbors neighbors(wide(3));
  TimeNs now = 0;
  for (unsigned i = 2; i < 4; ++i) {
    REQUIRE(neighbors.resolve(made_up(i), now + i));
    neighbors.on_frame(reply_from(made_up(i)), now + i);
    REQUIRE(neighbors.lookup(made_up(i)));
  }
  ask_in_vain(neighbors, 256, 1, now);
  REQUIRE(neighbors.resolve(made_up(4), now));
  CHECK(neighbors.state(made_up(256)) == NeighborState::kUnknown);
  CHECK(neighbors.lookup(made_up(2)));
  REQUIRE(neighbors.resolve(made_up(5), now));
  CHECK(neighbors.state(made_up(2)) == NeighborState::kUnknown);
  CHECK(neighbors.lookup(made_up(3)));
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
           neighbors.state(address("10.0.0.2")) == NeighborState::kResolving;
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
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kResolving);
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
