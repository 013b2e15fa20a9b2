// SPDX-License-Identifier: BSD-3-Clause
#include "transport/sender.h"

#include "sender_fixture.h"

using namespace gradwire;
using namespace gradwire::transport;
using namespace gradwire::transport::test;

TEST_CASE("numbers start at 1 and bytes in flight are counted") {
  Fixture f;
  f.send(0, 3);
  CHECK(f.sender->bytes_in_flight() == 3'000);
  CHECK(f.sender->packets_in_flight() == 3);
  CHECK(f.controller->sent_bytes == 3'000);
  const Outcome outcome = f.ack(50'000, {{1, 2}});
  CHECK(Fixture::list(outcome.acked) == Cookies{100, 200});
  CHECK(outcome.lost.empty());
  CHECK(f.sender->bytes_in_flight() == 1'000);
  CHECK(f.controller->acked_bytes == 2'000);
}

TEST_CASE("the window holds packets back, but never the only one") {
  Fixture f({}, 2'500);
  CHECK(f.sender->can_send(0, 2'500));
  CHECK(f.sender->can_send(0, 5'000));
  f.send(0, 2);
  CHECK(f.sender->window_bytes() == 2'500);
  CHECK(f.sender->can_send(0, 500));
  CHECK_FALSE(f.sender->can_send(0, 501));
  f.ack(1'000, {{1, 2}});
  CHECK(f.sender->can_send(1'000, 2'500));
}

TEST_CASE("pacing holds packets back, and probes do not ask") {
  Fixture f({.rate_bps = 80'000'000, .burst_bytes = 2'000});
  f.send(0, 2);
  CHECK_FALSE(f.sender->can_send(0, 1'000));
  CHECK(f.sender->pacing_time(0, 1'000) == 100'000);
  CHECK(f.sender->can_send(100'000, 1'000));
  f.send(0, 1);
  CHECK(f.sender->pacing_time(0, 1'000) == 200'000);
  f.sender->set_rate(0, 0);
  CHECK(f.sender->can_send(0, 1'000));
}

TEST_CASE("the last numbers are left to probes") {
  Fixture f({.max_packets_in_flight = 64});
  f.send(0, 64 - kProbeReserve - 1);
  CHECK(f.sender->can_send(0, 1'000));
  f.send(0, 1);
  CHECK_FALSE(f.sender->can_send(0, 1'000));
  CHECK(f.sender->has_room());
  f.send(0, kProbeReserve);
  CHECK_FALSE(f.sender->has_room());
  // The oldest decides: others that are acknowledged give no number back ...
  f.ack(1'000, {{2, 2}});
  CHECK_FALSE(f.sender->has_room());
  // ... and with the oldest all that follow it do.
  f.ack(2'000, {{1, 1}});
  f.send(2'000, 2);
  CHECK_FALSE(f.sender->has_room());
}

TEST_CASE("a malformed acknowledgement changes nothing") {
  Fixture f;
  f.send(0, 5);
  const auto refused = [&](wire::AckHeader ack) {
    ack.credit_chunks = 99;
    ack.posted_op_seq = 99;
    ack.ecn_ce_count = 9;
    const Outcome outcome = f.sender->on_ack(1'000, ack);
    CHECK(outcome.malformed);
    CHECK(outcome.acked.empty());
    CHECK(outcome.lost.empty());
    CHECK_FALSE(outcome.limits_changed);
    CHECK(f.sender->credit_chunks() == 0);
    CHECK(f.sender->posted_op_seq() == 0);
    CHECK(f.sender->packets_in_flight() == 5);
    CHECK_FALSE(f.sender->rtt().has_sample());
    CHECK(f.controller->acked_bytes == 0);
    CHECK(f.controller->ce_packets == 0);
  };
  refused(ack_of({{6, 6}}));  // never sent
  refused(ack_of({{1, 6}}));  // in part
  refused(ack_of({{1, ~std::uint64_t{0}}}));
  refused(ack_of({{0, 2}}));          // numbers start at 1
  refused(ack_of({{4, 3}}));          // upside down
  refused(ack_of({{4, 4}, {3, 3}}));  // adjacent
  refused(ack_of({{3, 4}, {1, 3}}));  // overlapping
  refused(ack_of({{1, 2}, {4, 5}}));  // ascending
  refused(ack_of({{1, 2}, {0, 0}}));
  wire::AckHeader many;
  many.range_count = 65;
  refused(many);
  CHECK_FALSE(f.ack(1'000, {{5, 5}, {1, 3}}).malformed);
}

TEST_CASE("limits go up only, whatever comes in what order") {
  Fixture f;
  wire::AckHeader ack;
  ack.credit_chunks = 10;
  ack.posted_op_seq = 3;
  CHECK(f.sender->on_ack(0, ack).limits_changed);
  CHECK_FALSE(f.sender->on_ack(0, ack).limits_changed);
  ack.credit_chunks = 5;
  ack.posted_op_seq = 4;
  CHECK(f.sender->on_ack(0, ack).limits_changed);
  CHECK(f.sender->credit_chunks() == 10);
  CHECK(f.sender->posted_op_seq() == 4);
  CHECK(f.sender->raise_limits(11, 0));
  CHECK_FALSE(f.sender->raise_limits(11, 4));
  CHECK(f.sender->credit_chunks() == 11);
}

TEST_CASE("the CE count is taken as a difference, over its wrap and past overtaken ones") {
  Fixture f;
  const auto report = [&](std::uint32_t count) {
    wire::AckHeader ack;
    ack.ecn_ce_count = count;
    f.sender->on_ack(0, ack);
    return f.controller->ce_packets;
  };
  CHECK(report(5) == 5);
  CHECK(report(5) == 5);
  CHECK(report(7) == 7);
  CHECK(report(6) == 7);  // overtaken
  CHECK(report(8) == 8);
  CHECK(report(0x7fffffff) == 0x7fffffff);
  CHECK(report(0xfffffffe) == 0xfffffffe);
  CHECK(report(3) == 0xfffffffeull + 5);  // wrapped
}

TEST_CASE("a ping is acknowledged or lost without a word") {
  Fixture f;
  f.sender->on_sent(0, 64, kNoCookie);
  f.sender->on_sent(0, 64, 7);
  CHECK(Fixture::list(f.ack(1'000, {{1, 2}}).acked) == Cookies{7});
  f.sender->on_sent(2'000, 64, kNoCookie);
  for (Cookie c = 1; c <= 3; ++c) f.sender->on_sent(2'000, 64, c);
  const Outcome outcome = f.ack(3'000, {{4, 6}, {1, 2}});
  CHECK(outcome.lost.empty());
  CHECK(f.sender->packets_lost() == 1);
}

TEST_CASE("an acknowledgement twice tells nothing twice") {
  Fixture f;
  f.send(0, 4);
  CHECK(f.ack(1'000, {{1, 4}}).acked.size() == 4);
  CHECK(f.ack(2'000, {{1, 4}}).acked.empty());
  CHECK(f.sender->bytes_in_flight() == 0);
}

TEST_CASE("the RTT is sampled from a new largest only, its delay within the agreed") {
  Fixture f({.max_ack_delay_ns = 10'000});
  f.send(0, 1);
  f.send(5'000, 1);
  f.ack(40'000, {{2, 2}});
  CHECK(f.sender->rtt().latest_ns() == 35'000);
  f.ack(90'000, {{1, 2}});  // the largest is not new
  CHECK(f.sender->rtt().latest_ns() == 35'000);
  f.send(100'000, 1);
  wire::AckHeader late = ack_of({{1, 3}});
  late.delay_ns = 1'000'000;
  f.sender->on_ack(200'000, late);
  CHECK(f.sender->rtt().smoothed_ns() == (7 * 35'000 + 90'000) / 8);
}

TEST_CASE("after the group ended nothing is waited for, and numbers go on") {
  Fixture f;
  f.send(0, 10);
  f.ack(1'000, {{8, 9}});
  f.sender->set_blocked(1'000);
  f.sender->forget_all();
  CHECK(f.sender->deadline() == kNever);
  CHECK(f.sender->bytes_in_flight() == 0);
  CHECK(f.sender->packets_in_flight() == 0);
  const Outcome outcome = f.ack(2'000, {{1, 10}});
  CHECK_FALSE(outcome.malformed);
  CHECK(outcome.acked.empty());
  f.send(3'000, 1);
  CHECK(f.last == 11);
  CHECK(f.ack(4'000, {{1, 11}}).acked.size() == 1);
}
