// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/network.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace gradwire;
using namespace gradwire::sim;

namespace {

struct Net {
  explicit Net(const LinkProfile& link, const PortProfile& port = {}, std::uint64_t seed = 1)
      : random(seed), network(3, link, port, random, events, trace) {}

  void send(TimeNs now, HostId from, HostId to, std::uint8_t mark, std::uint32_t bytes = 100) {
    const std::vector<std::byte> frame(bytes, std::byte{mark});
    network.send(now, from, to, frame, bytes);
  }
  struct Arrival {
    TimeNs time;
    HostId to;
    std::uint8_t mark;
    bool ce;
  };
  std::vector<Arrival> arrivals() {
    std::vector<Arrival> all;
    while (!events.empty()) {
      const QueuedEvent event = events.pop();
      const std::uint32_t index = event.kind == QueuedEvent::Kind::kPort
                                      ? network.take_port(static_cast<HostId>(event.index))
                                      : event.index;
      const Flight& flight = network.flight(index);
      all.push_back(
          {event.time, flight.to, static_cast<std::uint8_t>(flight.bytes[0]), flight.marked});
      network.release(index);
    }
    return all;
  }

  Random random;
  EventQueue events;
  Trace trace;
  Network network;
};

}  // namespace

TEST_CASE("a frame arrives once, after the delay, in order") {
  Net net({.delay_ns = 500});
  net.send(1000, 0, 1, 7);
  net.send(1001, 2, 1, 8);
  const auto arrivals = net.arrivals();
  REQUIRE(arrivals.size() == 2);
  CHECK(arrivals[0].time == 1500);
  CHECK(arrivals[0].mark == 7);
  CHECK(arrivals[1].time == 1501);
  CHECK(arrivals[1].to == 1);
}

TEST_CASE("a port takes its time, marks above its threshold and drops above its queue") {
  Net net({.delay_ns = 0}, {.rate_bps = 8'000'000'000, .queue_bytes = 500, .mark_bytes = 200});
  for (std::uint8_t i = 0; i < 8; ++i) net.send(0, 0, 1, i);
  const auto arrivals = net.arrivals();
  REQUIRE(arrivals.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(arrivals[i].time == static_cast<TimeNs>(100 * (i + 1)));
    CHECK(arrivals[i].ce == (i >= 2));
  }
  CHECK(net.network.stats().overflow == 3);
  CHECK(net.network.most_queued_bytes(1) == 500);
}

TEST_CASE("cross traffic takes room and time from a port") {
  Net net({.delay_ns = 0}, {.rate_bps = 8'000'000'000, .queue_bytes = 1000});
  net.network.cross_traffic(0, 1, 900);
  CHECK(net.network.queued_bytes(1, 0) == 900);
  net.send(0, 0, 1, 1);
  net.send(0, 0, 1, 2);
  const auto arrivals = net.arrivals();
  REQUIRE(arrivals.size() == 1);
  CHECK(arrivals[0].time == 1000);
}

TEST_CASE("what is cut is gone one way only, until it is healed") {
  Net net({.delay_ns = 10});
  net.network.set_down(0, 1, true);
  net.send(0, 0, 1, 1);
  net.send(0, 1, 0, 2);
  net.network.heal();
  net.send(100, 0, 1, 3);
  const auto arrivals = net.arrivals();
  REQUIRE(arrivals.size() == 2);
  CHECK(arrivals[0].mark == 2);
  CHECK(arrivals[1].mark == 3);
  CHECK(net.network.stats().cut == 1);
}

TEST_CASE("a clogged way lets go everything at once") {
  Net net({.delay_ns = 10});
  net.network.clog(0, 1, 5000);
  net.send(0, 0, 1, 1);
  net.send(100, 0, 1, 2);
  net.send(6000, 0, 1, 3);
  const auto arrivals = net.arrivals();
  REQUIRE(arrivals.size() == 3);
  CHECK(arrivals[0].time == 5000);
  CHECK(arrivals[1].time == 5000);
  CHECK(arrivals[2].time == 6010);
}

TEST_CASE("chances come out as they were set, and the same for a seed") {
  const LinkProfile link{.delay_ns = 10,
                         .loss = 0.3,
                         .duplication = 0.2,
                         .corruption = 0.1,
                         .reorder = 0.1,
                         .reorder_ns = 1'000'000};
  Net one(link, {}, 5);
  Net same(link, {}, 5);
  Net other(link, {}, 6);
  for (Net* net : {&one, &same, &other}) {
    for (int i = 0; i < 10'000; ++i) net->send(i * 100, 0, 1, 1);
  }
  const NetworkStats& stats = one.network.stats();
  CHECK(stats.lost == Approx(3000).margin(200));
  CHECK(stats.duplicated == Approx(1400).margin(150));
  CHECK(stats.corrupted == Approx(840).margin(120));
  CHECK(stats.late == Approx(840).margin(120));
  CHECK(one.trace.hash() == same.trace.hash());
  CHECK(one.trace.hash() != other.trace.hash());
  TimeNs last = 0;
  std::size_t corrupt = 0;
  for (const auto& arrival : one.arrivals()) {
    CHECK(arrival.time >= last);
    last = arrival.time;
    corrupt += arrival.mark != 1 ? 1u : 0u;
  }
  CHECK(corrupt > 0);
}

TEST_CASE("a burst loses everything for a while") {
  Net net({.delay_ns = 10, .burst_start = 0.01, .burst_ns = 50'000});
  int longest = 0;
  int run = 0;
  std::uint64_t lost = 0;
  for (int i = 0; i < 20'000; ++i) {
    net.send(i * 1000, 0, 1, 1);
    const bool gone = net.network.stats().lost > lost;
    lost = net.network.stats().lost;
    run = gone ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  CHECK(lost > 2'000);
  CHECK(longest > 60);
}
