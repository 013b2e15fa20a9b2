// SPDX-License-Identifier: BSD-3-Clause
// How shards of a ring find each other and leave: hellos, tokens, byes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "collective/shard.h"
#include "ring_sums.h"
#include "support/forger.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

TEST_CASE("ranks leave one after the other without an error; an op after that has one") {
  RingOptions options;
  options.nranks = 3;
  Sums sums(options);
  RingHarness& ring = sums.ring;
  sums.add(1000);
  sums.run();
  ring.leave(1);
  REQUIRE(ring.run_until([&] { return ring.closed(1); }, 1'000'000'000));
  ring.run_for(5'000'000'000);
  CHECK_FALSE(ring.aborted(0));
  CHECK_FALSE(ring.aborted(2));
  SECTION("the others leave too") {
    ring.leave(0);
    ring.leave(2);
    CHECK(ring.run_until([&] { return ring.closed(0) && ring.closed(2); }, 1'000'000'000));
  }
  SECTION("the others go on") {
    AllReduceCase next(3, 1, 1000, DataType::kFloat32, RedOp::kSum, 1, true);
    ring.post(0, next.spec(0, 2));
    REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(2); }));
    CHECK(ring.shard(0).reason().code == AbortCode::kPeerLeft);
    CHECK(ring.shard(0).reason().culprit_rank == 1);
    CHECK(ring.shard(2).reason().culprit_rank == 1);
  }
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a neighbor that is not there fails formation by its rank") {
  RingOptions options;
  options.nranks = 3;
  options.shard.timeouts.formation_ns = 500'000'000;
  RingHarness ring(options);
  ring.freeze(2);
  CHECK_FALSE(ring.form(2'000'000'000));
  CHECK(ring.aborted(1));
  CHECK(ring.shard(1).reason().code == AbortCode::kFormation);
  CHECK(ring.shard(1).reason().culprit_rank == 2);
}

TEST_CASE("a rank that comes late learns why there is no group, not that nobody answered") {
  RingOptions options;
  options.nranks = 3;
  RingHarness ring(options);
  ring.freeze(2);
  CHECK_FALSE(ring.form(10'000'000));
  AbortReason reason{.code = AbortCode::kClientAbort};
  ring.shard(0).abort(reason, ring.now());
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1); }, 1'000'000'000));
  ring.leave(0);
  ring.leave(1);
  ring.run_for(500'000'000);
  CHECK_FALSE(ring.closed(1));
  ring.freeze(2, false);
  REQUIRE(ring.run_until([&] { return ring.aborted(2); }, 1'000'000'000));
  CHECK(ring.shard(2).reason().code == AbortCode::kClientAbort);
  CHECK(ring.shard(2).reason().culprit_rank == 0);
  ring.leave(2);
  CHECK(ring.run_until([&] { return ring.closed(0) && ring.closed(1) && ring.closed(2); },
                       1'000'000'000));
}

TEST_CASE(
    "a rank that is formed hears hellos within its silence limit, though its answer was lost") {
  // As on lanes that run busy on cores of their own.
  constexpr TimeNs kMs = 1'000'000;
  RingOptions options;
  options.nranks = 3;
  options.shard.timeouts.silence_ns = 150 * kMs;
  options.shard.timeouts.ping_interval_ns = 15 * kMs;
  RingHarness ring(options);
  ring.freeze(2);
  CHECK_FALSE(ring.form(3'000 * kMs));
  // Rank 2 has heard rank 1, and rank 1 does not know it: what answers the first hello that goes
  // out from now on is lost, and so is what answers those that have waited for rank 2.
  int hellos = 0;
  int lost = 0;
  ring.lose([&](sim::HostId from, sim::HostId to, wire::PacketType type) {
    if (from == 1 && to == 2 && type == wire::PacketType::kHello) ++hellos;
    const bool loses = from == 2 && to == 1 && type == wire::PacketType::kHelloAck && hellos < 2;
    lost += loses ? 1 : 0;
    return loses;
  });
  ring.freeze(2, false);
  CHECK(ring.run_until([&] { return ring.formed(0) && ring.formed(1) && ring.formed(2); },
                       1'000 * kMs));
  ring.run_for(500 * kMs);
  CHECK(lost > 0);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    INFO("rank " << rank << ": " << ring.shard(rank).reason().detail);
    CHECK_FALSE(ring.aborted(rank));
  }
}

// What an attacker can send who has learned all of a group but what its table holds: each packet is
// right but for its token, and comes from the neighbor's address.
TEST_CASE("packets without the link's token are dropped, counted, and change nothing") {
  RingOptions options;
  options.nranks = 3;
  Sums sums(options);
  RingHarness& ring = sums.ring;
  sums.add(1000);
  sums.run();
  std::uint64_t forged = 0;
  for (const std::uint64_t wrong : {std::uint64_t{1}, std::uint64_t{1} << 63}) {
    for (const wire::PacketType type : kAllTypes) {
      for (const bool down : {true, false}) {
        if (!goes(type, down)) continue;
        INFO("type " << static_cast<int>(type) << ", down " << down);
        Forger(ring.shard(1), down, wrong).send(type, ring.now());
        CHECK(ring.drops(wire::Drop::kToken) == ++forged);
      }
    }
  }
  CHECK(forged == 24);
  ring.run_for(5'000'000'000);
  for (const std::uint16_t r : {0, 1, 2}) CHECK_FALSE(ring.aborted(r));
  AllReduceCase next(3, 1, 5000, DataType::kInt64, RedOp::kMax, 2, false);
  for (std::uint16_t r = 0; r < 3; ++r) ring.post(r, next.spec(r, 2));
  REQUIRE(ring.run_until([&] { return ring.done(0, 2) && ring.done(1, 2) && ring.done(2, 2); }));
  for (std::uint16_t r = 0; r < 3; ++r) CHECK(next.wrong(r) == "");
  CHECK(ring.drops(wire::Drop::kToken) == forged);
  // The same with the right token is believed, so the token is all that was wrong.
  Forger(ring.shard(1), true, 0).send(wire::PacketType::kAbort, ring.now());
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(1) && ring.aborted(2); }));
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("packets of tiles are foreign to a group without tiles, whatever else it has") {
  for (const bool off_ring : {false, true}) {
    INFO("direct ops and transfers " << off_ring);
    RingOptions options;
    options.nranks = 3;
    options.shard.direct.op_bytes = off_ring ? 4096 : 0;
    options.shard.transfers.pairs_max = off_ring ? 64 : 0;
    Sums sums(options);
    RingHarness& ring = sums.ring;
    sums.add(1000);
    sums.run();
    std::uint64_t sent = 0;
    for (const wire::PacketType type :
         {wire::PacketType::kTilePiece, wire::PacketType::kTileCall, wire::PacketType::kTilePull}) {
      for (const bool down : {true, false}) {
        Forger(ring.shard(1), down, 0).send(type, ring.now());
        CHECK(ring.drops(wire::Drop::kForeign) == ++sent);
      }
    }
    AllReduceCase next(3, 1, 5000, DataType::kInt64, RedOp::kMax, 2, false);
    for (std::uint16_t r = 0; r < 3; ++r) ring.post(r, next.spec(r, 2));
    REQUIRE(ring.run_until([&] { return ring.done(0, 2) && ring.done(1, 2) && ring.done(2, 2); }));
    for (std::uint16_t r = 0; r < 3; ++r) CHECK(next.wrong(r) == "");
    CHECK(ring.drops(wire::Drop::kForeign) == sent);
    CHECK(ring.leaked_mbufs() == 0);
  }
}

TEST_CASE("a hello that comes once more changes nothing") {
  RingOptions options;
  options.nranks = 3;
  Sums sums(options);
  RingHarness& ring = sums.ring;
  for (const bool down : {true, false}) {
    Forger(ring.shard(1), down, 0)
        .send(down ? wire::PacketType::kHello : wire::PacketType::kHelloAck, ring.now());
  }
  CHECK(ring.drops(wire::Drop::kState) == 0);
  sums.add(5000);
  sums.run();
}

TEST_CASE("a rank forms by its next rank's bye, which answers no hello any more") {
  RingOptions options;
  options.nranks = 3;
  RingHarness ring(options);
  ring.freeze(0);
  ring.freeze(2);
  CHECK_FALSE(ring.form(5'000'000));
  Forger(ring.shard(1), true, 0).send(wire::PacketType::kHello, ring.now());
  ring.run_for(5'000'000);
  CHECK_FALSE(ring.formed(1));
  Forger(ring.shard(1), false, 0).send(wire::PacketType::kBye, ring.now());
  ring.run_for(5'000'000);
  CHECK(ring.formed(1));
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a group that does not form says which neighbor speaks another version") {
  for (const std::uint16_t nranks : {2, 3}) {
    RingOptions options;
    options.nranks = nranks;
    options.shard.timeouts.formation_ns = 100'000'000;
    RingHarness ring(options);
    ring.freeze(1);
    collective::Shard& shard = ring.shard(0);
    CHECK_FALSE(ring.form(10'000'000));
    shard.on_other_version({.family = 4, .bytes = {10, 99, 99, 99}}, 7);
    shard.on_other_version(shard.config().downstream.ip, 1);
    REQUIRE(ring.run_until([&] { return ring.aborted(0); }));
    CHECK(shard.reason().code == AbortCode::kFormation);
    CHECK(shard.reason().culprit_rank == 1);
    const std::string detail = shard.reason().detail;
    INFO(detail);
    CHECK(detail.starts_with("rank 1 at 10."));
    CHECK(detail.find(" sends version 1 of the chunk protocol, rank 0 version 2;") !=
          std::string::npos);
    CHECK(ring.leaked_mbufs() == 0);
  }
}

TEST_CASE("a group that does not form says which neighbor joins another epoch of it") {
  RingOptions options;
  options.nranks = 3;
  options.shard.timeouts.formation_ns = 100'000'000;
  RingHarness ring(options);
  ring.freeze(1);
  collective::Shard& shard = ring.shard(0);
  CHECK_FALSE(ring.form(10'000'000));
  GroupKey key = shard.config().key;
  key.epoch += 1;
  shard.on_other_group({.family = 4, .bytes = {10, 99, 99, 99}}, key);
  CHECK_FALSE(shard.status(0).downstream_unfit.other_epoch);
  const GroupKey stranger{key.group_id + 1, key.epoch};
  shard.on_other_group(shard.config().downstream.ip, stranger);
  CHECK_FALSE(shard.status(0).downstream_unfit.other_epoch);
  shard.on_other_group(shard.config().downstream.ip, key);
  CHECK(shard.status(0).downstream_unfit.epoch == key.epoch);
  REQUIRE(ring.run_until([&] { return ring.aborted(0); }));
  CHECK(shard.reason().code == AbortCode::kFormation);
  CHECK(shard.reason().culprit_rank == 1);
  CHECK_THAT(shard.reason().detail, Catch::Contains("rank 1 at 10.") &&
                                        Catch::Contains("joins epoch ") &&
                                        Catch::Contains("; it did not answer our hello"));
}

TEST_CASE("an abort that names ranks which the group does not have is malformed") {
  for (const bool reporter : {false, true}) {
    RingOptions options;
    options.nranks = 2;
    RingHarness ring(options);
    REQUIRE(ring.form());
    Forger forger(ring.shard(0), true, 0);
    forger.names({.code = AbortCode::kClientAbort,
                  .culprit_rank = static_cast<std::uint16_t>(reporter ? 1 : 900),
                  .reporter_rank = static_cast<std::uint16_t>(reporter ? 2 : 1)});
    forger.send(wire::PacketType::kAbort, ring.now());
    ring.run_for(1'000'000);
    CHECK_FALSE(ring.aborted(0));
    CHECK(ring.drops(wire::Drop::kMalformed) == 1);
    forger.names({.code = AbortCode::kClientAbort, .culprit_rank = 1, .reporter_rank = 1});
    forger.send(wire::PacketType::kAbort, ring.now());
    CHECK(ring.run_until([&] { return ring.aborted(0); }));
  }
}

TEST_CASE("a hello with another table says what differs, and one that is no neighbor's is noted") {
  RingOptions options;
  options.nranks = 3;
  options.members = 2;
  options.shard.timeouts.formation_ns = 100'000'000;
  RingHarness ring(options);
  ring.freeze(0);
  ring.freeze(2);
  CHECK_FALSE(ring.form(5'000'000));
  collective::Shard& shard = ring.shard(1);
  shard.on_unfit_hello(shard.config().upstream.ip, 2);
  CHECK(shard.status(ring.now()).upstream_unfit.hello);
  CHECK(shard.status(ring.now()).upstream_unfit.says_rank == 2);
  CHECK_FALSE(shard.status(ring.now()).downstream_unfit.hello);
  shard.on_other_version(shard.config().downstream.ip, 1);
  CHECK(shard.status(ring.now()).downstream_unfit.version == 1);
  // The forger says nothing of members and another digest.
  Forger forger(shard, true, 0);
  forger.differs();
  forger.send(wire::PacketType::kHello, ring.now());
  REQUIRE(ring.run_until([&] { return ring.aborted(1); }));
  CHECK(shard.reason().code == AbortCode::kFormation);
  CHECK(std::string(shard.reason().detail) ==
        "its table of the group differs: members of each rank 0 there and 2 here");
}
