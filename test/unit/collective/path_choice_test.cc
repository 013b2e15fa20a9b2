// SPDX-License-Identifier: BSD-3-Clause
#include "collective/path_choice.h"

#include <catch2/catch.hpp>
#include <string>

namespace gradwire::collective {
namespace {

constexpr TimeNs kMillisecond = 1'000'000;
constexpr TimeNs kLimit = 1'600 * kMillisecond;

wire::IpAddress ip_of(int rail) {
  return wire::parse_ip("10." + std::to_string(rail) + ".0.2").value();
}

/// An end with as many paths as wanted, and its choice, in rounds of a millisecond.
struct Fixture {
  explicit Fixture(int rails) : end(address_of(rails)), choice(config_of(), end) {}

  static LinkAddress address_of(int rails) {
    LinkAddress address;
    address.gets_data = true;
    address.ip = ip_of(0);
    for (int rail = 1; rail < rails; ++rail) {
      address.others.push_back({ip_of(rail), {}, static_cast<std::uint16_t>(rail)});
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
      if ((living >> end.path() & 1) != 0) choice.on_acknowledged(number);
      for (PathIndex path = choice.next_to_ask(); path != kNoPath; path = choice.next_to_ask()) {
        choice.asked(path);
        if ((living >> path & 1) != 0) choice.on_hello_ack(path);
      }
    }
  }

  LinkEnd end;
  PathChoice choice;
  TimeNs now = kMillisecond;
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
    link.choice.on_acknowledged(old);
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

TEST_CASE("answers go back by the path of the newest packet that its sender chose") {
  Fixture link(2);
  CHECK(link.end.path_from(ip_of(1)) == 1);
  CHECK(link.end.path_from(ip_of(2)) == kNoPath);
  link.end.came_by(1, 10);
  CHECK(link.end.back() == 1);
  CHECK(link.end.path_from(ip_of(0)) == 0);
  link.end.came_by(0, 9);  // It was overtaken.
  CHECK(link.end.back() == 1);
  link.end.came_by(0, 11);
  CHECK(link.end.back() == 0);
}

}  // namespace gradwire::collective
