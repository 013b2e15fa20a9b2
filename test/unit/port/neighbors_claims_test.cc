// SPDX-License-Identifier: BSD-3-Clause
// What others say of a neighbor that is known, and of the port's own address.
#include <algorithm>
#include <catch2/catch.hpp>

#include "neighbors_known.h"

using namespace gradwire;
using namespace gradwire::port;
using namespace gradwire::port::test;

TEST_CASE("whatever others say, a living neighbor stays where it is") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  auto request = kTheirRequest;
  for (std::size_t i = 0; i < 6; ++i) request[6 + i] = request[22 + i] = std::byte{kNewMac[i]};
  int moments = 0;
  for (TimeNs now = 0; now < 60'000 * kMs; now += kMs) {
    neighbors.on_frame(reply_by(kNewMac), now);
    neighbors.on_frame(request, now);
    neighbors.poll(now);
    // What it was asked, it answers.
    for (auto frame = taken(neighbors); !frame.empty(); frame = taken(neighbors)) {
      if (frame[21] == std::byte{1} && frame[5] == std::byte{2})
        neighbors.on_frame(kReplyFrame, now);
    }
    moments += neighbors.lookup(ip) == kOldMac ? 1 : 0;
  }
  CHECK(moments == 60'000);
  CHECK(neighbors.counters().moved == 0);
  CHECK(neighbors.counters().claims == 120'000);
  // It is reported from time to time, not for each frame.
  int said = 0;
  while (is_event(neighbors, NeighborEvent::Type::kClaimed)) ++said;
  CHECK(said == 6);
}

TEST_CASE("who answered before it was asked goes after who did not, whichever came first") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  const auto pusher = mac("02:66:66:66:66:66");
  neighbors.on_frame(reply_by(pusher), kMs);
  neighbors.suspect(ip, 10 * kMs);
  neighbors.poll(110 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(reply_by(pusher), 111 * kMs);
  CHECK(neighbors.lookup(ip) == kOldMac);
  SECTION("there is another one") {
    neighbors.on_frame(reply_by(kNewMac), 112 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("there is none") {
    neighbors.poll(210 * kMs);
    CHECK(neighbors.lookup(ip) == pusher);
    // Packets to it are lost; then the right host is back.
    neighbors.suspect(ip, 1'000 * kMs);
    CHECK(asked(neighbors) == To::kAll);
    neighbors.on_frame(reply_by(pusher), 1'001 * kMs);
    neighbors.on_frame(reply_by(kNewMac), 1'002 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
}

TEST_CASE("among a flood of claims everybody is asked three times before a claim is believed") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  const auto pusher = mac("02:66:66:66:66:66");
  for (int i = 0; i < 20; ++i) neighbors.on_frame(reply_by(pusher), kMs);
  neighbors.suspect(ip, 10 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  // The right one's answers to the first two questions are lost.
  for (const int ms : {110, 210}) {
    neighbors.poll(ms * kMs);
    CHECK(neighbors.lookup(ip) == kOldMac);
    CHECK(asked(neighbors) == To::kAll);
    neighbors.on_frame(reply_by(pusher), ms * kMs);
  }
  neighbors.poll(310 * kMs);
  CHECK(asked(neighbors) == To::kAll);
  SECTION("the third is answered") {
    neighbors.on_frame(reply_by(pusher), 311 * kMs);
    neighbors.on_frame(reply_by(kNewMac), 312 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("nobody else is there") {
    neighbors.on_frame(reply_by(pusher), 311 * kMs);
    neighbors.poll(410 * kMs);
    CHECK(neighbors.lookup(ip) == pusher);
  }
}

TEST_CASE("another host with the port's own address is noticed, at the start and later") {
  Neighbors neighbors(config());
  neighbors.on_link_up(0);
  neighbors.poll(0);
  const auto probe = taken(neighbors);
  REQUIRE(probe.size() == 60);
  CHECK(probe[0] == std::byte{0xff});
  CHECK(
      std::all_of(probe.begin() + 28, probe.begin() + 32, [](auto b) { return b == std::byte{}; }));
  CHECK(std::equal(probe.begin() + 38, probe.begin() + 42, kRequestFrame.begin() + 28));
  for (TimeNs now = 0; now < 1'000 * kMs; now += 100 * kMs) neighbors.poll(now);
  int probes = 0;
  while (asked(neighbors) == To::kAll) ++probes;
  CHECK(probes == 3 - 1);

  auto answer = kReplyFrame;
  answer[31] = std::byte{1};  // 10.0.0.1 is at 02:00:00:00:00:02
  CHECK_FALSE(neighbors.duplicate());
  neighbors.on_frame(answer, 1);
  neighbors.on_frame(answer, 2);
  CHECK(neighbors.duplicate() == kOldMac);
  CHECK(neighbors.counters().duplicates == 2);
  CHECK(is_event(neighbors, NeighborEvent::Type::kDuplicate));
  NeighborEvent none;
  CHECK_FALSE(neighbors.take_event(none));
  // The port's own frame that comes back is none.
  for (std::size_t i = 0; i < 6; ++i) answer[22 + i] = std::byte{config().mac[i]};
  neighbors.on_frame(answer, 3);
  CHECK(neighbors.counters().duplicates == 2);
}
