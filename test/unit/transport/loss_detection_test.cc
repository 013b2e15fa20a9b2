// SPDX-License-Identifier: BSD-3-Clause
#include "sender_fixture.h"

using namespace gradwire;
using namespace gradwire::transport;
using namespace gradwire::transport::test;

TEST_CASE("a packet is lost when one three later is acknowledged, and not before") {
  Fixture f;
  f.send(0, 10);
  Outcome outcome = f.ack(50'000, {{2, 3}});
  CHECK(outcome.lost.empty());
  outcome = f.ack(51'000, {{2, 4}});
  CHECK(Fixture::list(outcome.acked) == Cookies{400});
  CHECK(Fixture::list(outcome.lost) == Cookies{100});
  CHECK(f.sender->packets_lost() == 1);
  CHECK(f.controller->lost_bytes == 1'000);
  CHECK(f.sender->bytes_in_flight() == 6'000);
  CHECK(f.ack(52'000, {{2, 4}}).lost.empty());
}

TEST_CASE("holes between ranges are lost by the same rule") {
  Fixture f;
  f.send(0, 20);
  const Outcome outcome = f.ack(50'000, {{20, 20}, {12, 17}, {8, 10}, {1, 5}});
  CHECK(outcome.acked.size() == 15);
  CHECK(Fixture::list(outcome.lost) == Cookies{600, 700, 1'100});
  CHECK(f.sender->packets_in_flight() == 2);  // 18 and 19
  CHECK(f.sender->deadline() == 1 * kMs);
}

TEST_CASE("a packet is lost by time 9/8 RTT after it was sent") {
  Fixture f({.granularity_ns = 1'000});
  f.send(5'000, 1);
  f.send(10'000, 1);
  CHECK(f.ack(90'000, {{2, 2}}).lost.empty());  // RTT 80,000
  CHECK(f.sender->deadline() == 95'000);
  CHECK(f.sender->on_deadline(94'999).lost.empty());
  CHECK(Fixture::list(f.sender->on_deadline(95'000).lost) == Cookies{100});
  CHECK(f.sender->deadline() == kNever);
}

TEST_CASE("the time threshold is never below the granularity") {
  Fixture f({.granularity_ns = 500'000});
  f.send(0, 2);
  CHECK(f.ack(20'000, {{2, 2}}).lost.empty());
  CHECK(f.sender->deadline() == 500'000);
  CHECK(f.sender->on_deadline(499'999).lost.empty());
  CHECK(f.sender->deadline() == 500'000);
  CHECK(Fixture::list(f.sender->on_deadline(500'000).lost) == Cookies{100});
}

TEST_CASE("an acknowledgement long after finds what is lost by time at once") {
  Fixture f({.granularity_ns = 1'000});
  f.send(0, 1);
  f.send(10'000'000, 1);
  // The RTT of the second is 20 us; the first is 10 ms old.
  CHECK(Fixture::list(f.ack(10'020'000, {{2, 2}}).lost) == Cookies{100});
}

TEST_CASE("a late acknowledgement of a lost packet is told once, and counts nothing twice") {
  Fixture f;
  f.send(0, 4);
  CHECK(Fixture::list(f.ack(50'000, {{2, 4}}).lost) == Cookies{100});
  CHECK(f.sender->on_sent(51'000, 1'000, 100) == 5);  // sent again
  Outcome outcome = f.ack(60'000, {{1, 4}});
  CHECK(Fixture::list(outcome.acked) == Cookies{100});
  CHECK(f.sender->bytes_in_flight() == 1'000);
  CHECK(f.controller->acked_bytes == 3'000);
  outcome = f.ack(70'000, {{1, 5}});
  CHECK(Fixture::list(outcome.acked) == Cookies{100});
  CHECK(f.sender->bytes_in_flight() == 0);
  CHECK(f.sender->packets_lost() == 1);
}

TEST_CASE("a lost packet whose slot was used again is forgotten, not mistaken") {
  Fixture f({.max_packets_in_flight = 32});
  f.send(0, 4);
  CHECK(Fixture::list(f.ack(1'000, {{2, 4}}).lost) == Cookies{100});
  for (std::uint64_t n = 5; n <= 33; ++n) {
    f.send(2'000, 1);
    f.ack(3'000, {{n, n}});
  }
  // Number 33 has the place that number 1 had.
  CHECK(f.ack(4'000, {{1, 33}}).acked.empty());
  CHECK(f.sender->bytes_in_flight() == 0);
}

TEST_CASE("the PTO counts from the last packet, of the initial RTT before a sample") {
  Fixture f;
  CHECK(f.sender->deadline() == kNever);
  f.send(0, 1);
  // 10 ms + 4 x 5 ms + 1 ms
  CHECK(f.sender->deadline() == 31 * kMs);
  f.send(2 * kMs, 1);
  CHECK(f.sender->deadline() == 33 * kMs);
}

TEST_CASE("the PTO of a short RTT is the granularity and the acknowledgement's delay") {
  Fixture f;
  f.send(0, 2);
  f.ack(40'000, {{1, 1}});
  CHECK(f.sender->deadline() == 40'000 + 40'000 + 1 * kMs + 1 * kMs);
}

TEST_CASE("a PTO asks for probes, leaves all in flight, and backs off to its cap") {
  Fixture f;
  f.send(0, 3);
  f.ack(40'000, {{1, 1}});
  TimeNs now = 40'000;
  const TimeNs once = 2 * kMs + 40'000;
  TimeNs period = once;
  for (int i = 0; i < 12; ++i) {
    INFO("PTO " << i);
    REQUIRE(f.sender->deadline() == now + std::min(period, 200 * kMs));
    CHECK(f.sender->on_deadline(f.sender->deadline() - 1).probes == 0);
    now = f.sender->deadline();
    const Outcome outcome = f.sender->on_deadline(now);
    CHECK(outcome.probes == 2);
    CHECK(outcome.lost.empty());
    CHECK(f.sender->packets_in_flight() == 2);
    CHECK(f.sender->pto_count() == static_cast<std::uint32_t>(i + 1));
    CHECK(f.sender->deadline() > now);
    period *= 2;
  }
  // An acknowledgement ends the back-off.
  f.ack(now + 1'000, {{1, 2}});
  CHECK(f.sender->pto_count() == 0);
  CHECK(f.sender->deadline() < now + 1'000 + 50 * kMs + 4 * now);
}

TEST_CASE("one packet in flight is probed for once, and the probe's answer finds it lost") {
  Fixture f;
  f.send(0, 2);
  f.ack(40'000, {{1, 1}});
  const TimeNs now = f.sender->deadline();
  CHECK(f.sender->on_deadline(now).probes == 1);
  f.sender->on_sent(now, 64, kNoCookie);  // number 3, a ping
  const Outcome outcome = f.ack(now + 40'000, {{3, 3}, {1, 1}});
  CHECK(Fixture::list(outcome.lost) == Cookies{200});  // by time: it is older than 9/8 RTT
  CHECK(f.sender->deadline() == kNever);
}

TEST_CASE("the cap bounds the back-off and not the RTT") {
  Fixture f({.initial_rtt_ns = 100 * kMs, .max_pto_ns = 10 * kMs});
  f.send(0, 1);
  CHECK(f.sender->deadline() == 301 * kMs);
  f.sender->on_deadline(301 * kMs);
  CHECK(f.sender->deadline() == 602 * kMs);
}

TEST_CASE("a sender that is blocked with nothing in flight probes") {
  Fixture f;
  f.send(0, 1);
  f.ack(40'000, {{1, 1}});
  CHECK(f.sender->deadline() == kNever);
  f.sender->set_blocked(1 * kMs);
  const TimeNs at = 1 * kMs + 40'000 + 2 * kMs;
  CHECK(f.sender->deadline() == at);
  f.sender->set_blocked(2 * kMs);  // said again each round of the loop
  CHECK(f.sender->deadline() == at);
  CHECK(f.sender->on_deadline(at).probes == 1);
  CHECK(f.sender->deadline() > at);
  // An acknowledgement that brings nothing new ends it, too; the caller says it again if it holds.
  f.ack(at + 1'000, {{1, 1}});
  CHECK(f.sender->deadline() == kNever);
}

TEST_CASE("a full space of numbers gives up its oldest for probes at a PTO") {
  Fixture f({.max_packets_in_flight = 32});
  f.send(0, 32);
  CHECK_FALSE(f.sender->has_room());
  const TimeNs now = f.sender->deadline();
  const Outcome outcome = f.sender->on_deadline(now);
  CHECK(outcome.probes == 2);
  CHECK(Fixture::list(outcome.lost) == Cookies{100, 200});
  CHECK(f.sender->has_room());
  f.send(now, 2);
  CHECK_FALSE(f.sender->has_room());
  // Only the probes arrived: everything before them is lost, and the space is free again.
  const Outcome answer = f.ack(now + 40'000, {{33, 34}});
  CHECK(answer.acked.size() == 2);
  CHECK(answer.lost.size() == 30);
  CHECK(f.sender->bytes_in_flight() == 0);
  CHECK(f.sender->can_send(now + 40'000, 1'000));
}

TEST_CASE("a blackout of any length ends when the network does answer") {
  Fixture f({.max_packets_in_flight = 32});
  f.send(0, 24);
  TimeNs now = 0;
  for (int i = 0; i < 1'000; ++i) {
    REQUIRE(f.sender->deadline() > now);
    now = f.sender->deadline();
    const Outcome outcome = f.sender->on_deadline(now);
    REQUIRE(outcome.probes >= 1);
    for (std::uint32_t k = 0; k < outcome.probes; ++k) {
      REQUIRE(f.sender->has_room());
      f.last = f.sender->on_sent(now, 64, kNoCookie);
    }
  }
  f.ack(now + 50'000, {{f.last, f.last}});
  CHECK(f.sender->packets_in_flight() <= 2);
  CHECK(f.sender->can_send(now + 50'000, 1'000));
}

TEST_CASE("a jump of the clock fires a PTO once, and no deadline stays in the past") {
  Fixture f;
  f.send(0, 5);
  f.ack(40'000, {{1, 3}});
  TimeNs now = 3'600'000'000'000;
  int calls = 0;
  while (f.sender->deadline() <= now) {
    f.sender->on_deadline(now);
    REQUIRE(++calls < 3);
  }
  CHECK(calls == 1);
  CHECK(f.sender->pto_count() == 1);
  // The clock goes back, and then to its largest value.
  f.ack(50'000, {{1, 4}});
  now = kNever - 1;
  f.send(now, 1);
  CHECK(f.sender->deadline() == kNever);
  CHECK(f.sender->on_deadline(kNever).probes == 0);
  CHECK(Fixture::list(f.ack(kNever, {{1, 6}}).acked) == Cookies{500, 600});
  CHECK(f.sender->rtt().smoothed_ns() >= 0);
}

TEST_CASE("a loss found by the timer after a jump leaves the deadline in the future") {
  Fixture f;
  f.send(0, 3);
  f.ack(40'000, {{2, 2}});  // 1 waits for the time threshold, 3 for the PTO
  const TimeNs now = 5'000 * kMs;
  CHECK(Fixture::list(f.sender->on_deadline(now).lost) == Cookies{100});
  CHECK(f.sender->deadline() > now);
}

TEST_CASE("the packet threshold counts packets that want an acknowledgement, not numbers") {
  Fixture f;
  std::vector<std::uint64_t> numbers;
  for (Cookie cookie = 1; cookie <= 4; ++cookie) {
    numbers.push_back(f.sender->on_sent(kMs, 1'000, cookie));
    for (int i = 0; i < 5; ++i) static_cast<void>(f.numbers.take());
  }
  CHECK(numbers == std::vector<std::uint64_t>{1, 7, 13, 19});
  // The third is two behind, though six numbers lie between.
  Outcome outcome = f.ack(kMs + 1'000, {{13, 18}});
  CHECK(f.list(outcome.acked) == Cookies{3});
  CHECK(outcome.lost.empty());
  outcome = f.ack(kMs + 2'000, {{13, 19}});
  CHECK(f.list(outcome.acked) == Cookies{4});
  CHECK(f.list(outcome.lost) == Cookies{1});
  // The other numbers were sent, later ones were not.
  CHECK_FALSE(f.ack(kMs + 3'000, {{24, 24}}).malformed);
  CHECK(f.ack(kMs + 3'000, {{25, 25}}).malformed);
}

TEST_CASE("ranges of numbers with holes acknowledge just what they name") {
  Fixture f({.max_packets_in_flight = 32});
  std::vector<std::uint64_t> numbers;
  for (Cookie cookie = 0; cookie < 20; ++cookie) {
    numbers.push_back(f.sender->on_sent(kMs, 1'000, cookie));
    for (Cookie i = 0; i < cookie % 3; ++i) static_cast<void>(f.numbers.take());
  }
  const auto all_but = [&](std::size_t first, std::size_t last) {
    return f.ack(kMs + 500, {{numbers[last] + 1, numbers.back()}, {1, numbers[first] - 1}});
  };
  const Outcome outcome = all_but(4, 6);
  CHECK(outcome.acked.size() == 17);
  CHECK(f.list(outcome.lost) == Cookies{4, 5, 6});
  CHECK(f.sender->packets_in_flight() == 0);
  const Outcome late = f.ack(kMs + 600, {{numbers[5], numbers[5]}});
  CHECK(f.list(late.acked) == Cookies{5});
}

TEST_CASE("the round trip is that of the newest packet that wants an acknowledgement") {
  Fixture f;
  const std::uint64_t number = f.sender->on_sent(kMs, 1'000, 1);
  const std::uint64_t other = f.numbers.take();
  CHECK_FALSE(f.ack(2 * kMs, {{other, other}}).malformed);
  CHECK(f.sender->rtt().latest_ns() == 0);
  f.ack(3 * kMs, {{number, other}});
  CHECK(f.sender->rtt().latest_ns() == 2 * kMs);
}
