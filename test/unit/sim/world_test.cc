// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/world.h"

#include <catch2/catch.hpp>
#include <vector>

#include "sim/reference/reference.h"

using namespace gradwire;
using namespace gradwire::sim;

namespace {

struct Events final : Observer {
  void on_formed(GroupId, std::uint16_t) override { ++formed; }
  void on_done(GroupId, std::uint16_t, std::uint64_t) override { ++done; }
  void on_failed(GroupId, std::uint16_t, const AbortReason&) override { ++failed; }
  void on_quiet(GroupId, std::uint16_t) override { ++quiet; }
  int formed = 0;
  int done = 0;
  int failed = 0;
  int quiet = 0;
};

GroupOptions group_of(std::uint16_t hosts, std::uint8_t lanes = 1) {
  GroupOptions group;
  for (HostId host = 0; host < hosts; ++host) group.hosts.push_back(host);
  group.lanes = lanes;
  group.shard.payload_bytes = 64;
  group.shard.max_chunks = 4096;
  group.shard.timeouts.silence_ns = 200'000'000;
  group.shard.timeouts.ping_interval_ns = 5'000'000;
  return group;
}

constexpr TimeNs kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("two groups share hosts, each with its own ops") {
  Events events;
  Trace trace;
  World world({.hosts = 3, .groups_per_host = 2}, trace, events);
  GroupOptions options = group_of(3, 2);
  const GroupId first = world.add_group(options);
  options.key.group_id = 5;
  options.hosts = {2, 0, 1};
  const GroupId second = world.add_group(options);
  AllReduceCase a(3, 1, {.count = 700, .seed = 1});
  AllReduceCase b(3, 1, {.count = 300, .datatype = DataType::kInt64, .seed = 2});
  for (std::uint16_t r = 0; r < 3; ++r) {
    world.start(first, r);
    world.start(second, r);
  }
  REQUIRE(world.run_until([&] { return events.formed == 6; }, kSecond));
  for (std::uint16_t r = 0; r < 3; ++r) {
    world.post(first, r, a.spec(r, 1));
    world.post(second, r, b.spec(r, 1));
  }
  REQUIRE(world.run_until([&] { return events.done == 6; }, kSecond));
  for (std::uint16_t r = 0; r < 3; ++r) {
    CHECK(a.wrong(r) == "");
    CHECK(b.wrong(r) == "");
  }
  CHECK(world.pool_failures() == 0);
  CHECK(world.leaked_mbufs() == 0);
}

TEST_CASE("clocks may stand and go as they like") {
  Events events;
  Trace trace;
  World world({.hosts = 3}, trace, events);
  world.profile(0).clock_offset_ns = 3'600 * kSecond;
  world.profile(1).clock_offset_ns = -900'000'000;
  world.profile(1).clock_ppm = -500;
  world.profile(2).clock_ppm = 500;
  const GroupId group = world.add_group(group_of(3));
  for (std::uint16_t r = 0; r < 3; ++r) world.start(group, r);
  REQUIRE(world.run_until([&] { return events.formed == 3; }, kSecond));
  world.run_for(10 * kSecond);
  CHECK(events.failed == 0);
  AllReduceCase op(3, 1, {.count = 700, .seed = 1});
  for (std::uint16_t r = 0; r < 3; ++r) world.post(group, r, op.spec(r, 1));
  REQUIRE(world.run_until([&] { return events.done == 3; }, kSecond));
}

TEST_CASE("an idle group costs little: polls come at deadlines, not at every round") {
  Events events;
  Trace trace;
  World world({.hosts = 2}, trace, events);
  const GroupId group = world.add_group(group_of(2));
  for (std::uint16_t r = 0; r < 2; ++r) world.start(group, r);
  REQUIRE(world.run_until([&] { return events.formed == 2; }, kSecond));
  const std::uint64_t before = world.polls();
  world.run_for(10 * kSecond);
  CHECK(world.polls() - before < 60'000);
  CHECK(events.failed == 0);
}

TEST_CASE("a daemon that died is missed by the others, and by its old packets nobody is met") {
  Events events;
  Trace trace;
  World world({.hosts = 3}, trace, events);
  const GroupId group = world.add_group(group_of(3, 2));
  for (std::uint16_t r = 0; r < 3; ++r) world.start(group, r);
  world.record(3);
  REQUIRE(world.run_until([&] { return events.formed == 3; }, kSecond));
  world.crash(1);
  CHECK_FALSE(world.alive(1));
  REQUIRE(world.run_until([&] { return events.quiet == 2; }, kSecond));
  for (const std::uint16_t r : {0, 2}) {
    CHECK(world.rank(group, r).reason.code == AbortCode::kSilence);
    CHECK(world.rank(group, r).reason.culprit_rank == 1);
    world.leave(group, r);
  }
  world.restart(1);
  REQUIRE(world.run_until([&] { return world.closed(group, 0) && world.closed(group, 2); },
                          3 * kSecond));
  world.remove_group(group);
  GroupOptions next = group_of(3, 2);
  next.key.epoch = 8;
  const GroupId again = world.add_group(next);
  for (std::uint16_t r = 0; r < 3; ++r) world.start(again, r);
  REQUIRE(world.run_until([&] { return events.formed == 6; }, kSecond));
  const std::uint64_t unknown = world.unknown_packets();
  CHECK(world.replay() == 3);
  world.run_for(1'000'000);
  CHECK(world.unknown_packets() == unknown + 3);
  CHECK(events.failed == 2);
  CHECK(world.leaked_mbufs() == 0);
}

TEST_CASE("a pause shorter than the limit is nothing, and packets wait in the ring meanwhile") {
  Events events;
  Trace trace;
  World world({.hosts = 2}, trace, events);
  const GroupId group = world.add_group(group_of(2));
  for (std::uint16_t r = 0; r < 2; ++r) world.start(group, r);
  REQUIRE(world.run_until([&] { return events.formed == 2; }, kSecond));
  AllReduceCase op(2, 1, {.count = 200, .seed = 1});
  for (std::uint16_t r = 0; r < 2; ++r) world.post(group, r, op.spec(r, 1));
  const TimeNs until = world.now() + 100'000'000;
  world.pause(1, until);
  REQUIRE(world.run_until([&] { return events.done == 2; }, kSecond));
  CHECK(world.now() >= until);
  CHECK(events.failed == 0);
  CHECK(op.wrong(0) == "");
}
