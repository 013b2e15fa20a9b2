// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "chosen_path.h"

namespace gradwire::collective::chosen_path {

TEST_CASE("a source port from which nothing arrives is left for one from which full packets do") {
  ChosenPath link(1, 32);
  link.run_from(kLimit, 0b1, 0b1, true);
  REQUIRE(link.end.source_of(0) == 0);
  CHECK(link.hellos == 0);
  CHECK(link.end.address().frame.source_port() == ChosenPath::kPort);
  const std::uint64_t number = link.end.numbers().next();
  link.run_from(kLimit / 4, ~0b1u, 1u << 20 | 1u << 6, true);
  CHECK(link.end.source_of(0) == 6);
  CHECK(link.end.address().frame.source_port() == wire::kSourcePortFirst + 6);
  CHECK(link.end.first_number() > number);
  link.run_from(10 * kLimit, ~0b1u, 1u << 20 | 1u << 6, true);
  CHECK(link.end.source_of(0) == 6);
  CHECK(link.away == 1);
}

TEST_CASE("a source port from which only short packets arrive is left") {
  ChosenPath link(1, 32);
  link.run_from(kLimit, ~0u, ~0b1u, true);
  CHECK(link.end.source_of(0) != 0);
  CHECK(link.away == 1);
}

TEST_CASE("a source port that is answered now and then is left for one that always is") {
  ChosenPath link(1, 32);
  link.run_from(kLimit, 0b1, 0b1, true);
  REQUIRE(link.end.source_of(0) == 0);
  // From here on its path loses most: each third hello is answered. Every other port is asked once.
  int asked = 0;
  for (const TimeNs until = link.now + kLimit / 4; link.now < until; link.now += kMillisecond) {
    link.choice.run(kMillisecond, link.now);
    for (auto way = link.choice.next_to_ask(); way.path != kNoPath && link.end.source_of(0) == 0;
         way = link.choice.next_to_ask()) {
      link.choice.asked(way);
      if (way.source == 0 && asked++ % 3 != 0) continue;
      link.choice.on_hello_ack(0, static_cast<std::uint8_t>(way.source + 1), 7);
    }
  }
  CHECK(asked >= 2);
  CHECK(link.end.source_of(0) != 0);
}

TEST_CASE("a source port that answers every hello is told from those that answered the first") {
  ChosenPath link(1, 32);
  link.run_from(kLimit, 0b1, 0b1, true);
  REQUIRE(link.end.source_of(0) == 0);
  // From here on nothing passes from most ports, from 1 and 2 the first hello, from 3 all.
  std::array<int, 32> asked{};
  for (const TimeNs until = link.now + kLimit / 4; link.now < until; link.now += kMillisecond) {
    link.choice.run(kMillisecond, link.now);
    for (auto way = link.choice.next_to_ask(); way.path != kNoPath && link.end.source_of(0) == 0;
         way = link.choice.next_to_ask()) {
      link.choice.asked(way);
      const bool first = asked.at(way.source)++ == 0;
      const bool arrives = way.source == 3 || (first && (way.source == 1 || way.source == 2));
      if (arrives) link.choice.on_hello_ack(0, static_cast<std::uint8_t>(way.source + 1), 7);
    }
  }
  CHECK(asked[3] >= 2);
  CHECK(link.end.source_of(0) == 3);
}

TEST_CASE("where the port is behind few hellos go, and a source port is left all the same") {
  ChosenPath link(1, 32);
  link.spare = false;
  SECTION("nothing comes back, wherever it lies") {
    link.run_from(kLimit, 0, 0, false);
    CHECK(link.hellos <= 16);
  }
  SECTION("the first port leads into a hole, and every other one") {
    std::uint32_t living = 0xaaaaaaaa;
    link.run_from(kLimit / 2, living, living, true);
    CHECK(link.hellos <= 8);
    CHECK(link.end.source_of(0) % 2 == 1);
  }
  CHECK(link.hellos > 0);
}

TEST_CASE("the source port in use is asked first") {
  ChosenPath link(1, 32);
  REQUIRE(link.end.take_source(0, 9));
  link.choice.run(kLimit / 8, link.now += kLimit / 8);
  REQUIRE(link.choice.next_to_ask().path == 0);
  CHECK(link.choice.next_to_ask().source == 9);
}

TEST_CASE("a link keeps its source port if none is answered, and if the way back was the bad one") {
  ChosenPath link(1, 32);
  link.run_from(5 * kLimit, 0, 0, true);
  CHECK(link.end.source_of(0) == 0);
  // All are answered at once, and acknowledgements come.
  link.run_from(5 * kLimit, ~0u, ~0u, true);
  CHECK(link.away == 0);
  for (int i = 0; i < 100; ++i) {
    // Hellos are answered from one port, acknowledgements come from another.
    link.ask_for(1, 7);
    CHECK(link.choice.heard_from(0) == (i < 3 ? 0 : 7));
  }
  CHECK(link.end.source_of(0) == 0);
}

TEST_CASE("the other rank is told of another source port when no answer comes from the first") {
  ChosenPath link(1, 32);
  link.ask_for(8, 7);
  CHECK(link.choice.heard_from(0) == 7);
  link.ask_for(4, 9);
  CHECK(link.choice.heard_from(0) == 9);
}

TEST_CASE("of a source port that is all right, and data that waits for a client, hellos get few") {
  ChosenPath link(1, 32);
  link.wait_for(10 * kLimit, ~0u, false);
  CHECK(link.end.source_of(0) == 0);
  CHECK(link.hellos < 200);
}

TEST_CASE("what was answered while data waited does not keep a source port that becomes bad") {
  ChosenPath link(1, 32);
  const TimeNs waits = GENERATE(kLimit * 3 / 8, kLimit * 11 / 10, kLimit * 23 / 20, 5 * kLimit);
  const TimeNs goes_on = GENERATE(0 * kMillisecond, 10 * kMillisecond, 100 * kMillisecond);
  link.wait_for(waits, ~0u, false);
  // Acknowledgements come: the port that the other rank has is good.
  CHECK(link.choice.heard_from(0) == 0);
  link.wait_for(goes_on, ~0u, true);
  REQUIRE(link.end.source_of(0) == 0);
  link.hellos = 0;
  SECTION("for all packets") {
    const TimeNs asked = kLimit / 8 + 2 * kMillisecond;
    link.run_from(asked, ~0b1u, ~0b1u, true);
    CHECK(link.hellos > 0);
    link.run_from(kLimit / 4 - asked, ~0b1u, ~0b1u, true);
  }
  SECTION("for full ones") { link.run_from(kLimit / 2, ~0u, ~0b1u, true); }
  CHECK(link.end.source_of(0) != 0);
  CHECK(link.away == 1);
}

TEST_CASE("a link begins anew if the other rank chose its source port") {
  ChosenPath link(1, 32);
  link.run_from(kLimit / 6, ~0b1u, ~0b1u, true);
  REQUIRE(link.hellos > 0);
  REQUIRE(link.end.source_of(0) == 0);
  REQUIRE(link.end.take_source(0, 5));
  link.choice.begin_anew(link.now);
  CHECK(link.choice.deadline() == kNever);
  CHECK(link.choice.next_to_ask().path == kNoPath);
  link.run_from(kLimit, ~0b1u, ~0b1u, true);
  CHECK(link.end.source_of(0) == 5);
}

TEST_CASE("a link goes home by another source port if its first path lost the one it had") {
  ChosenPath link(2, 32);
  link.run_for(kLimit / 2, 0b10);
  REQUIRE(link.end.path() == 1);
  for (int i = 0; i < 200 && link.end.path() == 1; ++i) {
    link.choice.run(10 * kMillisecond, link.now += 10 * kMillisecond);
    link.choice.on_acknowledged(link.end.numbers().take(), true);
    for (auto way = link.choice.next_to_ask(); way.path != kNoPath;
         way = link.choice.next_to_ask()) {
      link.choice.asked(way);
      if (way.path == 0 && way.source < 20) continue;
      link.choice.on_hello_ack(way.path, static_cast<std::uint8_t>(way.source + 1), 1);
    }
  }
  CHECK(link.end.path() == 0);
  CHECK(link.end.source_of(0) == 20);
}

TEST_CASE("many that ask a rank off the ring change its source port together, and count once") {
  ShardTimeouts timeouts = ChosenPath::config_of().timeouts;
  LinkEnd end(ChosenPath::address_of(1, 32));
  std::uint64_t moves = 0;
  std::uint64_t source_moves = 0;
  PathTally tally{moves, source_moves};
  end.count_in(tally);
  TimeNs now = kLimit;
  std::vector<int> tried;
  for (int look = 0; look < 6; ++look, now += timeouts.ping_interval_ns) {
    for (int pair = 0; pair < 64; ++pair) end.repeats(2 + look, timeouts, now);
    tried.push_back(end.source_of(0));
  }
  CHECK(tried == std::vector{1, 2, 3, 4, 5, 6});
  CHECK(source_moves == 1);
  now += kLimit;
  end.repeats(2, timeouts, now);
  CHECK(end.source_of(0) == 7);
  CHECK(source_moves == 2);
}

TEST_CASE("questions that waited in a queue change the source port of answers once") {
  const ShardTimeouts timeouts = ChosenPath::config_of().timeouts;
  LinkEnd end(ChosenPath::address_of(1, 32));
  TimeNs now = 10 * kLimit;
  for (int question = 0; question < 40; ++question) end.was_asked_again(timeouts, now += 1'000);
  CHECK(end.source_of(0) == 1);
  end.was_asked_again(timeouts, now += timeouts.ping_interval_ns);
  CHECK(end.source_of(0) == 2);
}

TEST_CASE("questions that waited while this rank stood still change no source port") {
  const ShardTimeouts timeouts = ChosenPath::config_of().timeouts;
  LinkEnd end(ChosenPath::address_of(1, 32));
  std::uint64_t moves = 0;
  std::uint64_t source_moves = 0;
  PathTally tally{moves, source_moves};
  end.count_in(tally);
  TimeNs now = 0;
  for (; now < kLimit; now += kMillisecond) tally.polled(now, timeouts.ping_interval_ns);
  now += kLimit / 2;
  end.was_asked_again(timeouts, now);  // The burst before its first round.
  tally.polled(now, timeouts.ping_interval_ns);
  end.was_asked_again(timeouts, now += kMillisecond);
  CHECK(end.source_of(0) == 0);
  for (int i = 0; i < 100; ++i) tally.polled(now += kMillisecond, timeouts.ping_interval_ns);
  end.was_asked_again(timeouts, now);
  CHECK(end.source_of(0) == 1);
  CHECK(source_moves == 1);
}

TEST_CASE("a frame that leads elsewhere keeps its link's source port") {
  ChosenPath link(1, 32);
  const wire::FrameTemplate moved = link.end.address().frame;
  REQUIRE(link.end.take_source(0, 3));
  CHECK_FALSE(link.end.take_source(0, 3));
  CHECK_FALSE(link.end.take_source(0, 32));
  link.end.lead_to(ip_of(0), moved);
  CHECK(link.end.address().frame.source_port() == wire::kSourcePortFirst + 3);
}

}  // namespace gradwire::collective::chosen_path
