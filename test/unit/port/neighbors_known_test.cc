// SPDX-License-Identifier: BSD-3-Clause
// A neighbor that is known: how it is asked again, moves, and is found where it went.
#include <algorithm>
#include <catch2/catch.hpp>

#include "neighbors_known.h"

using namespace gradwire;
using namespace gradwire::port;
using namespace gradwire::port::test;

TEST_CASE("an answer that no group needs grows old, and is asked for when somebody wants it") {
  Neighbors neighbors(config());
  const auto ip = address("10.0.0.2");
  REQUIRE(neighbors.resolve(ip, 0));
  (void)taken(neighbors);
  neighbors.on_frame(kReplyFrame, 0);
  CHECK(neighbors.deadline() == 30'000 * kMs);
  neighbors.poll(30'000 * kMs);
  CHECK(neighbors.state(ip) == NeighborState::kStale);
  CHECK_FALSE(neighbors.lookup(ip));
  CHECK(neighbors.deadline() == kNever);
  CHECK(asked(neighbors) == To::kNobody);

  REQUIRE(neighbors.resolve(ip, 40'000 * kMs));
  CHECK(neighbors.state(ip) == NeighborState::kProbe);
  CHECK(asked(neighbors) == To::kOld);
  SECTION("it answers") {
    neighbors.on_frame(kReplyFrame, 40'001 * kMs);
    CHECK(neighbors.lookup(ip) == kOldMac);
  }
  SECTION("another one does, but only when all are asked") {
    neighbors.on_frame(reply_by(kNewMac), 40'001 * kMs);
    CHECK_FALSE(neighbors.lookup(ip));
    neighbors.poll(41'000 * kMs);
    CHECK(asked(neighbors) == To::kAll);
    neighbors.on_frame(reply_by(kNewMac), 41'001 * kMs);
    neighbors.poll(42'000 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("nobody does") {
    TimeNs now = 40'000 * kMs;
    int questions = 0;
    while (neighbors.deadline() != kNever) {
      neighbors.poll(now = neighbors.deadline());
      questions += asked(neighbors) == To::kAll ? 1 : 0;
    }
    CHECK(questions == 3);
    CHECK(neighbors.state(ip) == NeighborState::kFailed);
  }
}

TEST_CASE("a neighbor in use is asked for when nothing confirms it, and never dropped for that") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  // As long as the transport confirms it, nobody asks.
  TimeNs now = 0;
  for (; now < 10'000 * kMs; now += 100 * kMs) {
    neighbors.confirm(ip, now);
    neighbors.poll(now);
  }
  CHECK(neighbors.state(ip) == NeighborState::kReachable);
  CHECK(asked(neighbors) == To::kNobody);

  now = neighbors.deadline();
  neighbors.poll(now);
  CHECK(neighbors.state(ip) == NeighborState::kDelay);
  CHECK(asked(neighbors) == To::kNobody);
  neighbors.poll(now += 100 * kMs);
  CHECK(neighbors.state(ip) == NeighborState::kProbe);
  CHECK(asked(neighbors) == To::kOld);
  CHECK(neighbors.lookup(ip) == kOldMac);
  SECTION("it answers") {
    neighbors.on_frame(kReplyFrame, now);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
  }
  SECTION("its packets do") {
    neighbors.confirm(ip, now);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
  }
  SECTION("all answers are lost: a bounded number of questions, and it stays where it is") {
    int old = 1;
    int all = 0;
    const TimeNs end = now + 20'000 * kMs;
    for (; now < end; now += 10 * kMs) {
      neighbors.poll(now);
      for (To to = asked(neighbors); to != To::kNobody; to = asked(neighbors)) {
        ++(to == To::kAll ? all : old);
      }
      CHECK(neighbors.lookup(ip) == kOldMac);
    }
    // 3 + 3 questions, then rests of 1, 2, 4, 8 and 16 s.
    CHECK(old == 5 * 3);
    CHECK(all == 5 * 3);
    CHECK(neighbors.counters().unanswered == 5);
    neighbors.on_frame(kReplyFrame, now);
    CHECK(neighbors.lookup(ip) == kOldMac);
  }
}

TEST_CASE("a neighbor that was known and answered no more is found again by whoever asks next") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.suspect(ip, 10 * kMs);
  neighbors.release(ip);
  TimeNs now = 10 * kMs;
  while (neighbors.state(ip) == NeighborState::kProbe) neighbors.poll(now = neighbors.deadline());
  CHECK(neighbors.state(ip) == NeighborState::kFailed);
  REQUIRE(neighbors.resolve(ip, now));
  neighbors.on_frame(kReplyFrame, now + kMs);
  CHECK(neighbors.lookup(ip) == kOldMac);
}

TEST_CASE("a neighbor that is silent is asked at once, and found where it is now") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.suspect(ip, 10 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  neighbors.suspect(ip, 20 * kMs);
  CHECK(asked(neighbors) == To::kNobody);
  neighbors.on_frame(reply_by(kNewMac), 30 * kMs);  // too early: it has not been given time
  CHECK(neighbors.lookup(ip) == kOldMac);
  neighbors.poll(110 * kMs);
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(reply_by(kNewMac), 111 * kMs);
  neighbors.poll(210 * kMs);  // it had been too early: others go first
  CHECK(neighbors.lookup(ip) == kNewMac);
  CHECK(neighbors.counters().moved == 1);
  CHECK(neighbors.counters().claims == 1);
  CHECK(is_event(neighbors, NeighborEvent::Type::kClaimed));
  CHECK(is_event(neighbors, NeighborEvent::Type::kMoved));
}

TEST_CASE("without a sign of silence the known address's answer has time to come") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  TimeNs now = 0;
  To to = To::kNobody;
  for (; to != To::kAll; now += 10 * kMs) {
    neighbors.poll(now);
    to = asked(neighbors);
  }
  neighbors.on_frame(reply_by(kNewMac), now);
  CHECK(neighbors.lookup(ip) == kOldMac);
  SECTION("it comes") {
    neighbors.on_frame(kReplyFrame, now + 1);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
    neighbors.poll(now + 100 * kMs);
    CHECK(neighbors.lookup(ip) == kOldMac);
  }
  SECTION("it does not") {
    neighbors.poll(now + 100 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
}

TEST_CASE(
    "where nothing goes a neighbor is asked before packets go there, under its address first") {
  Neighbors neighbors(quick());
  const auto ip = address("10.0.0.2");
  neighbors.check(ip, 0);
  CHECK(asked(neighbors) == To::kNobody);
  REQUIRE(neighbors.resolve(ip, 0));
  (void)taken(neighbors);
  neighbors.check(ip, 0);
  CHECK(asked(neighbors) == To::kNobody);
  neighbors.on_frame(kReplyFrame, 0);
  // It answered a short time ago.
  neighbors.check(ip, 399 * kMs);
  CHECK(asked(neighbors) == To::kNobody);
  neighbors.check(ip, 400 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  SECTION("it answers, and whoever says to be it changes nothing") {
    neighbors.on_frame(reply_by(kNewMac), 401 * kMs);
    neighbors.on_frame(kReplyFrame, 402 * kMs);
    CHECK(neighbors.lookup(ip) == kOldMac);
    neighbors.check(ip, 403 * kMs);
    CHECK(asked(neighbors) == To::kNobody);
    CHECK(neighbors.counters().claims == 1);
    CHECK(neighbors.counters().moved == 0);
  }
  SECTION("it is elsewhere: the first answer to a question to everybody") {
    // Further calls do not begin anew.
    for (int i = 1; i < 3; ++i) {
      neighbors.check(ip, (400 + i * 100) * kMs);
      neighbors.poll((400 + i * 100) * kMs);
      CHECK(asked(neighbors) == To::kOld);
    }
    neighbors.poll(700 * kMs);
    CHECK(asked(neighbors) == To::kAll);
    neighbors.on_frame(reply_by(kNewMac), 701 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
    CHECK(neighbors.counters().moved == 1);
  }
}

TEST_CASE("one that answers questions but takes no packets gives way to another one's answer") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.suspect(ip, 10 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  neighbors.on_frame(kReplyFrame, 11 * kMs);
  CHECK(neighbors.state(ip) == NeighborState::kReachable);
  neighbors.suspect(ip, 12 * kMs);
  CHECK(asked(neighbors) == To::kNobody);  // not at once
  neighbors.suspect(ip, 200 * kMs);
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(kReplyFrame, 201 * kMs);
  SECTION("there is another one") {
    neighbors.on_frame(reply_by(kNewMac), 202 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("there is none") {
    neighbors.poll(300 * kMs);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
    CHECK(neighbors.lookup(ip) == kOldMac);
    // Asked less and less often, as long as the silence lasts.
    int questions = 0;
    for (TimeNs now = 300 * kMs; now < 10'000 * kMs; now += 10 * kMs) {
      neighbors.suspect(ip, now);
      neighbors.poll(now);
      while (asked(neighbors) != To::kNobody) {
        ++questions;
        neighbors.on_frame(kReplyFrame, now);
      }
    }
    CHECK(questions < 25);
    neighbors.confirm(ip, 10'000 * kMs);
    neighbors.suspect(ip, 10'001 * kMs);
    CHECK(asked(neighbors) == To::kOld);
  }
}

TEST_CASE("a link that comes back: neighbors in use are asked at once, and kept until then") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.forget_learnt();
  CHECK(neighbors.lookup(ip) == kOldMac);
  neighbors.on_link_up(5 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  neighbors.poll(105 * kMs);
  CHECK(asked(neighbors) == To::kAll);  // whether the own address is taken
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(reply_by(kNewMac), 106 * kMs);
  CHECK(neighbors.lookup(ip) == kNewMac);
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
