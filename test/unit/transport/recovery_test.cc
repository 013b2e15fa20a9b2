// SPDX-License-Identifier: BSD-3-Clause
// Sender and receiver over a lossy, reordering, duplicating link in virtual time: every cookie
// arrives whatever is lost, and at the end the sender counts the right bytes in flight.
#include <map>
#include <random>
#include <set>

#include "sender_fixture.h"
#include "support/seed.h"
#include "transport/receiver.h"

using namespace gradwire;
using namespace gradwire::transport;
using namespace gradwire::transport::test;

namespace {

struct Link {
  double loss = 0;
  double duplication = 0;
  TimeNs delay_ns = 20'000;
  TimeNs jitter_ns = 0;
};

struct Run {
  Link link;
  std::mt19937_64 random;
  Fixture f{SenderConfig{.max_packets_in_flight = 64}, 40'000};
  Receiver receiver{ReceiverConfig{}};
  std::multimap<TimeNs, std::pair<std::uint64_t, Cookie>> down{};
  std::multimap<TimeNs, wire::AckHeader> up{};
  std::set<Cookie> arrived{};
  std::set<Cookie> acked{};
  std::vector<Cookie> again{};
  TimeNs now = 0;
  Cookie next = 0;  ///< first sent of all

  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; }
  template <class Map, class Value>
  void transmit(Map& map, const Value& value) {
    const int copies = chance(link.loss) ? 0 : chance(link.duplication) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const TimeNs jitter =
          link.jitter_ns == 0
              ? 0
              : static_cast<TimeNs>(random() % static_cast<std::uint64_t>(link.jitter_ns));
      map.emplace(now + link.delay_ns + jitter, value);
    }
  }
  void send(Cookie cookie) {
    const std::uint64_t number = f.sender->on_sent(now, 1'000, cookie);
    transmit(down, std::pair(number, cookie));
  }
  void take(const Outcome& outcome) {
    REQUIRE_FALSE(outcome.malformed);
    for (const Cookie c : outcome.acked) {
      REQUIRE(arrived.count(c) == 1);
      acked.insert(c);
    }
    for (const Cookie c : outcome.lost) again.push_back(c);
    for (std::uint32_t i = 0; i < outcome.probes; ++i) {
      REQUIRE(f.sender->has_room());
      send(kNoCookie);
    }
  }

  /// @return whether `count` cookies were acknowledged within `rounds` events.
  bool carry(Cookie count, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      if (f.sender->deadline() <= now) take(f.sender->on_deadline(now));
      REQUIRE(f.sender->deadline() > now);
      while (f.sender->can_send(now, 1'000)) {
        if (!again.empty()) {
          const Cookie cookie = again.back();
          again.pop_back();
          if (acked.count(cookie) == 0) send(cookie);
        } else if (next < count) {
          send(next++);
        } else {
          break;
        }
      }
      if (acked.size() == count && f.sender->packets_in_flight() == 0) return true;
      step();
    }
    return false;
  }

  void step() {
    TimeNs event_at = std::min(f.sender->deadline(), receiver.deadline());
    if (!down.empty()) event_at = std::min(event_at, down.begin()->first);
    if (!up.empty()) event_at = std::min(event_at, up.begin()->first);
    REQUIRE(event_at != kNever);
    now = std::max(now, event_at);
    while (!down.empty() && down.begin()->first <= now) {
      const auto [number, cookie] = down.begin()->second;
      down.erase(down.begin());
      if (receiver.check(number) != Receiver::Verdict::kNew) {
        receiver.on_duplicate(now);
        continue;
      }
      receiver.accept(now, number, false);
      if (cookie != kNoCookie) arrived.insert(cookie);
    }
    if (receiver.ack_due(now, down.empty() || down.begin()->first > now + 5'000)) {
      wire::AckHeader ack;
      receiver.write_ack(now, ack);
      transmit(up, ack);
    }
    while (!up.empty() && up.begin()->first <= now) {
      const wire::AckHeader ack = up.begin()->second;
      up.erase(up.begin());
      take(f.sender->on_ack(now, ack));
    }
  }
};

}  // namespace

TEST_CASE("a clean link loses nothing and resends nothing") {
  Run run{.link = {}, .random = std::mt19937_64(1)};
  REQUIRE(run.carry(5'000, 100'000));
  CHECK(run.f.sender->packets_lost() == 0);
  CHECK(run.receiver.packets_accepted() == 5'000);
  CHECK(run.f.sender->rtt().min_ns() == 40'000);
}

TEST_CASE("everything arrives over links that lose, duplicate and reorder") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  for (const double loss : {0.001, 0.02, 0.2, 0.5}) {
    for (const TimeNs jitter_ns : {TimeNs{0}, TimeNs{3'000}, TimeNs{200'000}}) {
      INFO("loss " << loss << " jitter " << jitter_ns);
      Run run{.link = {.loss = loss, .duplication = 0.05, .jitter_ns = jitter_ns},
              .random = std::mt19937_64(seed)};
      REQUIRE(run.carry(2'000, 2'000'000));
      CHECK(run.arrived.size() == 2'000);
      CHECK(run.f.sender->bytes_in_flight() == 0);
      CHECK(run.f.controller->sent_bytes >= 2'000'000);
    }
  }
}

TEST_CASE("a link that is dead for a second carries on where it was") {
  Run run{.link = {}, .random = std::mt19937_64(2)};
  run.link.loss = 1;
  CHECK_FALSE(run.carry(100, 50));
  CHECK(run.now > 200 * kMs);
  CHECK(run.acked.empty());
  run.link.loss = 0;
  REQUIRE(run.carry(100, 10'000));
}
