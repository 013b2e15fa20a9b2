// SPDX-License-Identifier: BSD-3-Clause
// Neighbors over IPv6: the frames, and that the table's rules hold for them. What ARP and
// discovery have in common is in the other tests. The expected bytes were made by a program that
// shares nothing with this one.
#include "port/neighbors/neighbor_discovery.h"

#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <string_view>

#include "neighbors_support.h"
#include "port/echo.h"
#include "wire/internet_checksum.h"

using namespace gradwire;
using namespace gradwire::port;
using namespace gradwire::port::test;

namespace {

using Frame = std::vector<std::byte>;

Frame hex(std::string_view text) {
  Frame out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

NeighborsConfig config6() {
  NeighborsConfig out = config();
  out.ip = address("fd00::1");
  out.prefix_bits = 64;
  return out;
}

const auto kTheirs = address("fd00::2");
const auto kTheirMac = mac("02:00:00:00:00:02");
// fd00::1 asks all for fd00::2, then it alone.
const Frame kQuestion =
    hex("3333ff00000202000000000186dd6000000000203afffd000000000000000000000000000001ff020000000000"
        "000000"
        "0001ff00000287007d9700000000fd0000000000000000000000000000020101020000000001");
const Frame kQuestionToOne =
    hex("02000000000202000000000186dd6000000000203afffd000000000000000000000000000001fd000000000000"
        "000000"
        "00000000000287007e9b00000000fd0000000000000000000000000000020101020000000001");
const Frame kDuplicateQuestion =
    hex("3333ff00000102000000000186dd6000000000183aff00000000000000000000000000000000ff020000000000"
        "000000"
        "0001ff00000187007da500000000fd000000000000000000000000000001");
// fd00::2 answers with 02:00:00:00:00:02, and asks who has fd00::1.
const Frame kTheirAnswer =
    hex("02000000000102000000000286dd6000000000203afffd000000000000000000000000000002fd000000000000"
        "000000"
        "00000000000188001c9a60000000fd0000000000000000000000000000020201020000000002");
const Frame kTheirQuestion =
    hex("3333ff00000102000000000286dd6000000000203afffd000000000000000000000000000002ff020000000000"
        "000000"
        "0001ff00000187007d9700000000fd0000000000000000000000000000010101020000000002");
const Frame kOurAnswer =
    hex("02000000000202000000000186dd6000000000203afffd000000000000000000000000000001fd000000000000"
        "000000"
        "00000000000288001c9c60000000fd0000000000000000000000000000010201020000000001");
const Frame kOurAnswerToAll =
    hex("33330000000102000000000186dd6000000000203afffd000000000000000000000000000001ff020000000000"
        "000000"
        "00000000000188005a9b20000000fd0000000000000000000000000000010201020000000001");
const Frame kReport =
    hex("33330000001602000000000186dd600000000024000100000000000000000000000000000000ff020000000000"
        "000000"
        "0000000000163a000502000001008f006f890000000104000000ff0200000000000000000001ff000001");

/// With its checksum made right again.
Frame repaired(Frame frame) {
  wire::FrameView view;
  REQUIRE(wire::parse_frame(frame, view) == wire::Drop::kNone);
  const auto at = static_cast<std::size_t>(view.payload.data() - frame.data());
  wire::put_icmpv6_sum(view.source_ip, view.destination_ip,
                       std::span(frame).subspan(at, view.payload.size()));
  return frame;
}

Frame with(Frame frame, std::size_t at, std::initializer_list<int> values) {
  for (const int value : values) frame[at++] = static_cast<std::byte>(value);
  return repaired(std::move(frame));
}

bool resolves_by(const Frame& frame) {
  Neighbors neighbors(config6());
  REQUIRE(neighbors.resolve(kTheirs, 0));
  (void)taken(neighbors);
  neighbors.on_frame(frame, 1);
  return neighbors.state(kTheirs) == NeighborState::kReachable;
}

}  // namespace

TEST_CASE("a question over IPv6 goes to the address's group and an answer resolves") {
  Neighbors neighbors(config6());
  REQUIRE(neighbors.resolve(kTheirs, 0));
  CHECK(taken(neighbors) == kQuestion);
  CHECK(taken(neighbors).empty());
  neighbors.on_frame(kTheirAnswer, 1 * kMs);
  REQUIRE(neighbors.lookup(kTheirs));
  CHECK(*neighbors.lookup(kTheirs) == kTheirMac);
  // It is asked under its address once it has been silent for long.
  REQUIRE(neighbors.hold(kTheirs));
  neighbors.suspect(kTheirs, 2 * kMs);
  CHECK(taken(neighbors) == kQuestionToOne);
}

TEST_CASE("texts name what an address is found by") {
  CHECK(protocol_name(kTheirs) == std::string_view("neighbor discovery"));
  CHECK(protocol_name(address("10.0.0.2")) == std::string_view("ARP"));
}

TEST_CASE("unanswered questions over IPv6 are bounded") {
  Neighbors neighbors(config6());
  REQUIRE(neighbors.resolve(kTheirs, 0));
  CHECK(taken(neighbors) == kQuestion);
  for (int i = 1; i < 20; ++i) neighbors.poll(i * 100 * kMs);
  CHECK(taken(neighbors) == kQuestion);
  CHECK(taken(neighbors) == kQuestion);
  CHECK(taken(neighbors).empty());
  CHECK(neighbors.state(kTheirs) == NeighborState::kFailed);
}

TEST_CASE("who asks over IPv6 gets an answer, and teaches nothing") {
  Neighbors neighbors(config6());
  neighbors.on_frame(kTheirQuestion, 0);
  CHECK(taken(neighbors) == kOurAnswer);
  CHECK(neighbors.state(kTheirs) == NeighborState::kUnknown);
  // For another address.
  neighbors.on_frame(with(kTheirQuestion, 77, {9}), 0);
  CHECK(taken(neighbors).empty());
}

TEST_CASE("a router that asks from its link-local address is heard while strangers flood") {
  Neighbors neighbors(config6());
  REQUIRE(neighbors.resolve(kTheirs, 0));
  neighbors.on_frame(kTheirAnswer, 1);
  while (!taken(neighbors).empty()) {
  }
  constexpr std::size_t kSourceIp = 22;
  // From fe80::2: of the router, and of somebody with another MAC address in header and option.
  const Frame router = with(kTheirQuestion, kSourceIp, {0xfe, 0x80});
  const Frame stranger = with(with(router, 11, {9}), router.size() - 1, {9});
  std::size_t answered = 0;
  for (int i = 0; i < 1'000; ++i) neighbors.on_frame(stranger, 1);
  while (!taken(neighbors).empty()) ++answered;
  CHECK(answered == ReplyLimit::kBurst);
  neighbors.on_frame(router, 1);
  CHECK_FALSE(taken(neighbors).empty());
}

TEST_CASE("at the start the port asks whether its address is free, and tells switches its group") {
  Neighbors neighbors(config6());
  neighbors.on_link_up(0);
  for (int i = 0; i < 3; ++i) {
    CHECK(neighbors.deadline() == i * 100 * kMs);
    neighbors.poll(i * 100 * kMs);
    CHECK(taken(neighbors) == kDuplicateQuestion);
    CHECK(taken(neighbors) == kReport);
    CHECK(taken(neighbors).empty());
  }
  // From then on the report alone, for ever.
  CHECK(neighbors.deadline() == 60'200 * kMs);
  neighbors.poll(60'200 * kMs);
  CHECK(taken(neighbors) == kReport);
  CHECK(neighbors.counters().duplicates == 0);
}

TEST_CASE("a duplicate address over IPv6 is noticed and named") {
  const auto duplicate_by = [](const Frame& frame) {
    Neighbors neighbors(config6());
    neighbors.on_frame(frame, 0);
    NeighborEvent event;
    return neighbors.take_event(event) && event.type == NeighborEvent::Type::kDuplicate &&
           event.other == kTheirMac && neighbors.duplicate() == kTheirMac;
  };
  CHECK_FALSE(duplicate_by(kTheirAnswer));
  // It says to all that fd00::1 is its own.
  const Frame claims = with(kOurAnswerToAll, 6, {2, 0, 0, 0, 0, 2});
  CHECK(duplicate_by(with(claims, 80, {2, 0, 0, 0, 0, 2})));
  // It asks whether the address is free, and is told by all that it is not.
  const Frame asks = with(kDuplicateQuestion, 6, {2, 0, 0, 0, 0, 2});
  CHECK(duplicate_by(asks));
  Neighbors neighbors(config6());
  neighbors.on_frame(asks, 0);
  CHECK(taken(neighbors) == kOurAnswerToAll);
  // Its own frame, come back, is no duplicate.
  CHECK_FALSE(duplicate_by(kDuplicateQuestion));
}

TEST_CASE("an answer that no host may send over IPv6 resolves nothing") {
  CHECK(resolves_by(kTheirAnswer));
  Frame forwarded = kTheirAnswer;
  forwarded[21] = std::byte{254};
  CHECK_FALSE(resolves_by(forwarded));
  Frame corrupt = kTheirAnswer;
  corrupt[85] ^= std::byte{1};
  CHECK_FALSE(resolves_by(corrupt));
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 79, {0})));     // an option of no length
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 79, {2})));     // one beyond the message
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 80, {3})));     // a group's MAC address
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 6, {3})));      // from one
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 0, {0x33})));   // to one
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 62, {0xff})));  // about a group
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 77, {3})));     // about another address
  CHECK_FALSE(resolves_by(with(kTheirAnswer, 53, {9})));     // to another host
  // Without the option its Ethernet address counts; other options are skipped.
  CHECK(resolves_by(with(kTheirAnswer, 78, {14})));
  for (std::size_t size = 0; size < kTheirAnswer.size(); ++size) {
    CHECK_FALSE(resolves_by(
        {kTheirAnswer.begin(), kTheirAnswer.begin() + static_cast<std::ptrdiff_t>(size)}));
  }
}

TEST_CASE("an unasked advertisement over IPv6 moves nobody, whatever its flags say") {
  Neighbors neighbors(config6());
  REQUIRE(neighbors.resolve(kTheirs, 0));
  neighbors.on_frame(kTheirAnswer, 1);
  REQUIRE(neighbors.hold(kTheirs));
  for (const int flags : {0, 0x20, 0x40, 0x60, 0xe0}) {
    neighbors.on_frame(with(with(kTheirAnswer, 58, {flags}), 80, {2, 0, 0, 0, 0, 0x66}), 2);
    CHECK(*neighbors.lookup(kTheirs) == kTheirMac);
  }
  CHECK(neighbors.counters().claims == 5);
  CHECK(neighbors.counters().moved == 0);
}

TEST_CASE("whatever comes over IPv6, a living neighbor stays where it is and answers are bounded") {
  Neighbors neighbors(config6());
  REQUIRE(neighbors.resolve(kTheirs, 0));
  neighbors.on_frame(kTheirAnswer, 1);
  REQUIRE(neighbors.hold(kTheirs));
  (void)taken(neighbors);
  std::mt19937 random(7);
  const std::array<const Frame*, 5> seeds = {&kQuestion, &kTheirAnswer, &kTheirQuestion,
                                             &kOurAnswerToAll, &kDuplicateQuestion};
  std::size_t answered = 0;
  for (int i = 0; i < 50'000; ++i) {
    Frame frame = *seeds[random() % seeds.size()];
    for (auto changes = random() % 4; changes > 0; --changes) {
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    }
    wire::FrameView view;
    if (random() % 8 != 0 && wire::parse_frame(frame, view) == wire::Drop::kNone &&
        view.kind == wire::FrameKind::kDiscovery) {
      frame = repaired(std::move(frame));
    }
    neighbors.on_frame(frame, 2 * kMs);
    while (!taken(neighbors).empty()) ++answered;
  }
  CHECK(*neighbors.lookup(kTheirs) == kTheirMac);
  CHECK(neighbors.size() == 1);
  CHECK(neighbors.counters().claims > 500);
  // Two limits, of a burst each.
  CHECK(answered <= 2 * ReplyLimit::kBurst);
  CHECK(answered > ReplyLimit::kBurst);
}

TEST_CASE("neighbors over IPv6 are on the port's network, and routers may be link-local") {
  Neighbors neighbors(config6());
  const auto off = neighbors.resolve(address("fd00:0:0:1::2"), 0);
  REQUIRE_FALSE(off);
  CHECK(off.error().message.find("fd00::1/64") != std::string::npos);
  CHECK_FALSE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(neighbors.resolve(address("fe80::1"), 0));
  Neighbors over_ipv4(config());
  CHECK_FALSE(over_ipv4.resolve(address("fe80::1"), 0));
}

TEST_CASE("a discovery message on IPv4's port, and ARP on IPv6's, say nothing") {
  Neighbors over_ipv4(config());
  over_ipv4.on_frame(kTheirQuestion, 0);
  CHECK(taken(over_ipv4).empty());
  Neighbors over_ipv6(config6());
  over_ipv6.on_frame(kTheirRequest, 0);
  CHECK(taken(over_ipv6).empty());
}

TEST_CASE("on a VLAN, discovery carries the tag") {
  auto tagged = config6();
  tagged.vlan_id = 7;
  Neighbors neighbors(tagged);
  REQUIRE(neighbors.resolve(kTheirs, 0));
  Frame expected = kQuestion;
  const auto tag = bytes({0x81, 0, 0, 7}, 4);
  expected.insert(expected.begin() + 12, tag.begin(), tag.end());
  CHECK(taken(neighbors) == expected);
  neighbors.on_frame(kTheirAnswer, 1);
  CHECK(neighbors.state(kTheirs) == NeighborState::kIncomplete);
  Frame answer = kTheirAnswer;
  answer.insert(answer.begin() + 12, tag.begin(), tag.end());
  neighbors.on_frame(answer, 1);
  CHECK(neighbors.state(kTheirs) == NeighborState::kReachable);
}

TEST_CASE("an echo request over IPv6 becomes its reply in place") {
  const Frame request = hex(
      "02000000000102000000000286dd60000000000d3a37fd000000000000000000000000000002fd00000000000000"
      "0000000000000001800049b7123400016162636465");
  const Frame reply = hex(
      "02000000000202000000000186dd60000000000d3a40fd000000000000000000000000000001fd00000000000000"
      "0000000000000002810048b7123400016162636465");
  Frame frame = request;
  wire::FrameView view;
  REQUIRE(wire::parse_frame(frame, view) == wire::Drop::kNone);
  REQUIRE(answer_echo(frame, view));
  CHECK(frame == reply);

  const auto left_alone = [&](Frame from) {
    const Frame before = from;
    REQUIRE(wire::parse_frame(from, view) == wire::Drop::kNone);
    return !answer_echo(from, view) && from == before;
  };
  Frame corrupt = request;
  corrupt.back() ^= std::byte{1};
  CHECK(left_alone(corrupt));
  CHECK(left_alone(with(request, 22, {0xff, 2})));  // from a group
  CHECK(left_alone(with(request, 22, {0})));        // from ::2
  CHECK(left_alone(with(request, 37, {1})));        // from ourselves
  CHECK(left_alone(with(request, 6, {3})));         // a group's MAC address
}
