// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/path_choice.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace gradwire::collective {
namespace {

constexpr TimeNs kMillisecond = 1'000'000;
constexpr TimeNs kLimit = 1'600 * kMillisecond;

wire::IpAddress ip_of(int rail) {
  return wire::parse_ip("10." + std::to_string(rail) + ".0.2").value();
}

/// An end with as many paths as wanted, and its choice, in rounds of a millisecond.
struct Fixture {
  explicit Fixture(int rails, std::uint8_t sources = 1)
      : end(address_of(rails, sources)), choice(config_of(), end) {}

  static LinkAddress address_of(int rails, std::uint8_t sources) {
    LinkAddress address;
    address.gets_data = true;
    address.ip = ip_of(0);
    address.sources = {sources, true};
    if (sources > 1) {
      wire::FrameAddresses frame;
      frame.source_ip = frame.destination_ip = ip_of(0);
      frame.source_port = kPort;
      address.frame = *wire::FrameTemplate::make(frame);
    }
    for (int rail = 1; rail < rails; ++rail) {
      address.others.push_back({ip_of(rail), address.frame, static_cast<std::uint16_t>(rail)});
    }
    return address;
  }
  static ShardConfig config_of() {
    ShardConfig config;
    config.timeouts.silence_ns = kLimit;
    config.timeouts.ping_interval_ns = 10 * kMillisecond;
    return config;
  }
  /// @param living  paths whose hellos are answered, a bit each; data by them is acknowledged.
  void run_for(TimeNs duration, unsigned living) {
    for (const TimeNs until = now + duration; now < until; now += kMillisecond) {
      const PathChoice::Move move = choice.run(kMillisecond, now);
      if (move == PathChoice::Move::kAway) ++away;
      if (move == PathChoice::Move::kBack) ++back;
      const std::uint64_t number = end.numbers().take();
      if ((living >> end.path() & 1) != 0) choice.on_acknowledged(number, true);
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        if ((living >> way.path & 1) != 0) choice.on_hello_ack(way.path, way.source + 1, 1);
      }
    }
  }
  /// Of one path.
  /// @param living  source ports from which packets arrive, a bit each
  /// @param long_ones  those from which full packets do
  /// @param answers  whether what the other rank sends arrives
  void run_from(TimeNs duration, std::uint32_t living, std::uint32_t long_ones, bool answers) {
    for (const TimeNs until = now + duration; now < until; now += kMillisecond) {
      if (choice.run(kMillisecond, now, spare) == PathChoice::Move::kSource) ++away;
      const std::uint64_t number = end.numbers().take();
      const auto arrives = [&](std::uint32_t from, std::uint8_t source) {
        return answers && (from >> source & 1) != 0;
      };
      if (arrives(living, end.source_of(0)))
        choice.on_acknowledged(number, arrives(long_ones, end.source_of(0)));
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        ++hellos;
        if (arrives(long_ones, way.source)) {
          choice.on_hello_ack(0, static_cast<std::uint8_t>(way.source + 1), 7);
        }
      }
    }
  }

  /// Pings pass, and hellos from source ports, of one path, are answered.
  /// @param data  is acknowledged
  void wait_for(TimeNs duration, std::uint32_t answered, bool data) {
    for (const TimeNs until = now + duration; now < until; now += kMillisecond) {
      choice.run(kMillisecond, now);
      choice.on_acknowledged(end.numbers().take(), data);
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        ++hellos;
        if ((answered >> way.source & 1) == 0) continue;
        choice.on_hello_ack(way.path, static_cast<std::uint8_t>(way.source + 1), 7);
      }
    }
  }

  /// Nothing is acknowledged, and every hello answered from one source port of the other rank's.
  void ask_for(int rounds, std::uint8_t from_source) {
    for (; rounds > 0; --rounds) {
      choice.run(kLimit / 32, now += kLimit / 32);
      for (auto way = choice.next_to_ask(); way.path != kNoPath; way = choice.next_to_ask()) {
        choice.asked(way);
        choice.on_hello_ack(0, static_cast<std::uint8_t>(way.source + 1), from_source);
      }
    }
  }

  static constexpr std::uint16_t kPort = 18'515;

  LinkEnd end;
  PathChoice choice;
  TimeNs now = kMillisecond;
  bool spare = true;  ///< the port is not behind
  int hellos = 0;
  int away = 0;
  int back = 0;
};

}  // namespace

TEST_CASE("a silent path is left after a quarter of the limit, and taken again when it answers") {
  Fixture link(2);
  link.run_for(kLimit, 0b11);
  CHECK(link.end.path() == 0);
  link.run_for(kLimit / 4 - 5 * kMillisecond, 0b10);
  CHECK(link.end.path() == 0);
  link.run_for(10 * kMillisecond, 0b10);
  CHECK(link.end.path() == 1);
  CHECK(link.end.address().port == 1);
  const std::uint64_t number = link.end.numbers().next();
  link.run_for(10 * kLimit, 0b10);
  CHECK(link.end.path() == 1);
  CHECK(link.end.numbers().next() > number);
  link.run_for(kLimit, 0b11);
  CHECK(link.end.path() == 0);
  CHECK(link.away == 1);
  CHECK(link.back == 1);
}

TEST_CASE("a link takes no path that does not answer") {
  Fixture link(3);
  link.run_for(2 * kLimit, 0b000);
  CHECK(link.end.path() == 0);
  link.run_for(kLimit / 8, 0b100);
  CHECK(link.end.path() == 2);
  CHECK(link.away == 1);
}

TEST_CASE("what was acknowledged of the old path says nothing of the new one") {
  Fixture link(2);
  link.run_for(kLimit, 0b11);
  const std::uint64_t old = link.end.numbers().next() - 1;
  link.run_for(kLimit / 2, 0b10);
  REQUIRE(link.end.path() == 1);
  CHECK(old < link.end.first_number());
  for (TimeNs ms = 0; ms < kLimit / kMillisecond; ++ms) {
    link.choice.on_acknowledged(old, true);
    link.run_for(kMillisecond, 0b01 & ~(1u << link.end.path()));
    if (link.end.path() == 0) break;
  }
  CHECK(link.end.path() == 0);
}

TEST_CASE("a path that comes and goes has to answer longer each time") {
  Fixture link(2);
  TimeNs before = 0;
  for (int i = 0; i < 3; ++i) {
    link.run_for(kLimit, 0b10);
    REQUIRE(link.end.path() == 1);
    const TimeNs mended = link.now;
    while (link.end.path() != 0 && link.now < mended + 10 * kLimit)
      link.run_for(kMillisecond, 0b11);
    const TimeNs took = link.now - mended;
    CHECK(took > before + kLimit / 8);
    before = took;
  }
}

TEST_CASE("a source port from which nothing arrives is left for one from which full packets do") {
  Fixture link(1, 32);
  link.run_from(kLimit, 0b1, 0b1, true);
  REQUIRE(link.end.source_of(0) == 0);
  CHECK(link.hellos == 0);
  CHECK(link.end.address().frame.source_port() == Fixture::kPort);
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
  Fixture link(1, 32);
  link.run_from(kLimit, ~0u, ~0b1u, true);
  CHECK(link.end.source_of(0) != 0);
  CHECK(link.away == 1);
}

TEST_CASE("a source port that is answered now and then is left for one that always is") {
  Fixture link(1, 32);
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

TEST_CASE("where the port is behind few hellos go, and a source port is left all the same") {
  Fixture link(1, 32);
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
  Fixture link(1, 32);
  REQUIRE(link.end.take_source(0, 9));
  link.choice.run(kLimit / 8, link.now += kLimit / 8);
  REQUIRE(link.choice.next_to_ask().path == 0);
  CHECK(link.choice.next_to_ask().source == 9);
}

TEST_CASE("a link keeps its source port if none is answered, and if the way back was the bad one") {
  Fixture link(1, 32);
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
  Fixture link(1, 32);
  link.ask_for(8, 7);
  CHECK(link.choice.heard_from(0) == 7);
  link.ask_for(4, 9);
  CHECK(link.choice.heard_from(0) == 9);
}

TEST_CASE("of a source port that is all right, and data that waits for a client, hellos get few") {
  Fixture link(1, 32);
  link.wait_for(10 * kLimit, ~0u, false);
  CHECK(link.end.source_of(0) == 0);
  CHECK(link.hellos < 200);
}

TEST_CASE("what was answered while data waited does not keep a source port that becomes bad") {
  Fixture link(1, 32);
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

TEST_CASE("a path is left as soon where data waited for a client before") {
  Fixture link(2, 32);
  link.wait_for(kLimit * 11 / 10, ~0u, false);
  link.wait_for(10 * kMillisecond, ~0u, true);
  link.run_for(kLimit / 4 + kLimit / 32 + 5 * kMillisecond, 0b10);
  CHECK(link.end.path() == 1);
}

TEST_CASE("a link begins anew if the other rank chose its source port") {
  Fixture link(1, 32);
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
  Fixture link(2, 32);
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
  ShardTimeouts timeouts = Fixture::config_of().timeouts;
  LinkEnd end(Fixture::address_of(1, 32));
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
  const ShardTimeouts timeouts = Fixture::config_of().timeouts;
  LinkEnd end(Fixture::address_of(1, 32));
  TimeNs now = 10 * kLimit;
  for (int question = 0; question < 40; ++question) end.was_asked_again(timeouts, now += 1'000);
  CHECK(end.source_of(0) == 1);
  end.was_asked_again(timeouts, now += timeouts.ping_interval_ns);
  CHECK(end.source_of(0) == 2);
}

TEST_CASE("questions that waited while this rank stood still change no source port") {
  const ShardTimeouts timeouts = Fixture::config_of().timeouts;
  LinkEnd end(Fixture::address_of(1, 32));
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
  Fixture link(1, 32);
  const wire::FrameTemplate moved = link.end.address().frame;
  REQUIRE(link.end.take_source(0, 3));
  CHECK_FALSE(link.end.take_source(0, 3));
  CHECK_FALSE(link.end.take_source(0, 32));
  link.end.lead_to(ip_of(0), moved);
  CHECK(link.end.address().frame.source_port() == wire::kSourcePortFirst + 3);
}

}  // namespace gradwire::collective
