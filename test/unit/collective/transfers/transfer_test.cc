// SPDX-License-Identifier: BSD-3-Clause
// Transfers between processes: shards of a simulated world, no loss unless a case says so.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/seeds/scenario.h"
#include "sim/seeds/transfer_job.h"
#include "sim/world/world.h"
#include "transfer_stand.h"

using namespace gradwire;
using namespace gradwire::sim;

TEST_CASE("bytes go from any process to any other, of every size, whoever posts first") {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{256}, std::size_t{513}, std::size_t{256 * 64},
        std::size_t{256 * 300 + 17}}) {
    for (const std::uint8_t lanes : {1, 3}) {
      for (const bool send_first : {true, false}) {
        INFO(count << " bytes, " << int{lanes} << " lanes, send first: " << send_first);
        Stand stand(5, 1, lanes);
        auto from = bytes(count, 1);
        std::vector<std::byte> to(count);
        if (send_first) stand.send(1, 1, {1, 3}, from);
        if (!send_first) stand.recv(2, 3, {1, 3}, to);
        stand.world().run_for(10'000'000);
        CHECK_FALSE(stand.has(1));
        CHECK_FALSE(stand.has(2));
        if (!send_first) stand.send(1, 1, {1, 3}, from);
        if (send_first) stand.recv(2, 3, {1, 3}, to);
        REQUIRE(stand.run_until_done(2));
        CHECK(to == from);
        CHECK(stand.failed().empty());
      }
    }
  }
}

TEST_CASE("a small send whose receive is posted takes one way") {
  Stand stand(4);
  auto from = bytes(64, 1);
  std::vector<std::byte> to(64);
  stand.recv(2, 2, {0, 2}, to);
  stand.world().run_for(1'000'000);
  const TimeNs before = stand.world().now();
  stand.send(1, 0, {0, 2}, from);
  REQUIRE(stand.world().run_until([&] { return stand.has(2); }, kSecond));
  CHECK(stand.world().now() - before < 10'000);  // one way takes 5 us, and a round 2
  CHECK(to == from);
}

TEST_CASE("a receive that waits holds back no other pair, ops neither") {
  Stand stand(8, 2);
  std::vector<std::vector<std::byte>> waiting(14, std::vector<std::byte>(4096));
  std::uint64_t id = 100;
  // Far more than have a turn at a time, and nobody sends.
  for (std::uint16_t source = 2; source < 16; ++source) {
    stand.recv(id++, 0, {source, 0}, waiting[source - 2u]);
  }
  stand.world().run_for(50'000'000);
  auto from = bytes(9000, 1);
  std::vector<std::byte> to(9000);
  stand.recv(2, 0, {15, 1}, to);
  stand.send(1, 7, {15, 1}, from);
  REQUIRE(stand.run_until_done(2));
  CHECK(to == from);
  for (std::uint16_t source = 2; source < 16; ++source) {
    stand.send(id++, source / 2, {source, 0}, waiting[source - 2u]);
  }
  REQUIRE(stand.run_until_done(30));
}

TEST_CASE("processes of one rank copy, in a group of one rank too") {
  for (const std::uint16_t nranks : {1, 3}) {
    Stand stand(nranks, 2, 2);
    auto from = bytes(100'000, 3);
    std::vector<std::byte> to(from.size());
    stand.send(1, 0, {1, 0}, from);
    stand.recv(2, 0, {1, 0}, to);
    REQUIRE(stand.run_until_done(2));
    CHECK(to == from);
    // A process may send to itself.
    std::vector<std::byte> own(from.size());
    stand.recv(4, 0, {0, 0}, own);
    stand.send(3, 0, {0, 0}, to);
    REQUIRE(stand.run_until_done(4));
    CHECK(own == from);
  }
}

TEST_CASE("a process that sends to itself within one piece of memory harms nobody") {
  Stand stand(1);
  auto memory = bytes(300, 1);
  const auto before = memory;
  collective::TransferSpec spec;
  spec.id = 1;
  spec.pair = {0, 0};
  spec.terms.bytes = 200;
  spec.from = memory.data();
  REQUIRE(stand.world().post(stand.group(), 0, spec));
  spec.id = 2;
  spec.end = collective::TransferEnd::kDestination;
  spec.to = memory.data() + 50;
  REQUIRE(stand.world().post(stand.group(), 0, spec));
  REQUIRE(stand.run_until_done(2));
  CHECK(std::equal(before.begin(), before.begin() + 200, memory.begin() + 50));
}

TEST_CASE("ends of a transfer that differ end the group, with both called by name") {
  const auto check = [](Stand& stand, const std::string& sent, const std::string& received) {
    REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 4; }, kSecond));
    for (const AbortReason& reason : stand.failed()) {
      CHECK(reason.code == AbortCode::kMismatch);
      const std::string detail = reason.detail;
      CHECK(detail.find("transfer 1 of process 0 to process 2") != std::string::npos);
      CHECK(detail.find(sent) != std::string::npos);
      CHECK(detail.find(received) != std::string::npos);
    }
  };
  auto from = bytes(1000, 1);
  std::vector<std::byte> to(1000);
  std::vector<std::byte> less(500);
  std::vector<std::byte> none;
  SECTION("bytes") {
    Stand stand(4);
    stand.send(1, 0, {0, 2}, from);
    stand.recv(2, 2, {0, 2}, less);
    check(stand, "sent 1000 bytes", "received 500 bytes");
  }
  SECTION("no bytes, on several lanes") {
    Stand stand(4, 1, 3);
    stand.recv(2, 2, {0, 2}, none);
    stand.send(1, 0, {0, 2}, from);
    check(stand, "sent 1000 bytes", "received 0 bytes");
  }
  SECTION("tags") {
    Stand stand(4);
    stand.recv(2, 2, {0, 2}, to, 7);
    stand.send(1, 0, {0, 2}, from, 6);
    check(stand, "with tag 6", "with tag 7");
  }
  SECTION("calls") {
    Stand stand(4);
    stand.recv(2, 2, {0, 2}, to, 0, wire::TransferCall::kGather);
    stand.send(1, 0, {0, 2}, from, 0, wire::TransferCall::kSendRecv);
    check(stand, "(send and recv)", "(gather)");
  }
  SECTION("at one rank") {
    Stand stand(4, 3);
    stand.recv(2, 0, {0, 2}, to, 1);
    stand.send(1, 0, {0, 2}, from, 2);
    check(stand, "with tag 2", "with tag 1");
  }
}

TEST_CASE("a rank that dies under a transfer is named, though it is no neighbor") {
  Stand stand(6);
  std::vector<std::byte> to(1 << 20);
  auto from = bytes(to.size(), 1);
  stand.recv(2, 0, {3, 0}, to);
  stand.send(1, 3, {3, 0}, from);
  stand.world().run_for(50'000);
  stand.world().crash(3);
  REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 5; }, 10 * kSecond));
  for (const AbortReason& reason : stand.failed()) CHECK(reason.culprit_rank == 3);
}

TEST_CASE("more pairs wait than a round looks at, and each asks again when it is time") {
  constexpr std::uint16_t kMembers = 24;
  constexpr std::size_t kPairs = std::size_t{kMembers} * kMembers;
  Stand stand(3, kMembers, 1, 2 * kPairs);
  // What rank 2 says of transfers is lost for a while, so no offer is heard at first.
  bool lossy = true;
  stand.world().lose([&](HostId source, HostId, wire::PacketType type) {
    return lossy && source == 2 && wire::is_of_transfer(type);
  });
  std::vector<std::vector<std::byte>> from;
  std::vector<std::vector<std::byte>> to(kPairs, std::vector<std::byte>(64));
  for (std::size_t i = 0; i < kPairs; ++i) from.push_back(bytes(64, static_cast<int>(i)));
  const auto pair = [&](std::size_t i) {
    return wire::ProcessPair{static_cast<std::uint16_t>(2 * kMembers + i / kMembers),
                             static_cast<std::uint16_t>(i % kMembers)};
  };
  for (std::size_t i = 0; i < kPairs; ++i) stand.send(2 * i + 1, 2, pair(i), from[i]);
  stand.world().run_for(20'000'000);
  lossy = false;
  for (std::size_t i = 0; i < kPairs; ++i) stand.recv(2 * i + 2, 0, pair(i), to[i]);
  REQUIRE(stand.run_until_done(2 * kPairs, 10 * kSecond));
  CHECK(stand.failed().empty());
  CHECK(to == from);
}

TEST_CASE("a rank whose neighbors have left hears why the rank that sends to it gave up") {
  Stand stand(6);
  auto from = bytes(1 << 12, 1);
  stand.send(1, 0, {0, 3}, from);
  for (const std::uint16_t rank : {1, 2, 4, 5}) stand.world().leave(stand.group(), rank);
  REQUIRE(stand.world().run_until(
      [&] {
        return stand.world().closed(stand.group(), 1) && stand.world().closed(stand.group(), 2) &&
               stand.world().closed(stand.group(), 4) && stand.world().closed(stand.group(), 5);
      },
      kSecond));
  AbortReason reason;
  reason.code = AbortCode::kClientDied;
  stand.world().abort(stand.group(), 0, reason);
  stand.world().leave(stand.group(), 0);
  // No rank of the ring is left that would hand it on.
  REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 2; }, kSecond));
  for (const AbortReason& each : stand.failed()) CHECK(each.code == AbortCode::kClientDied);
}

TEST_CASE("a transfer of which nothing comes ends the group by name, though its source answers") {
  Stand stand(6);
  stand.world().network().set_most_bytes(3, 0, 250);
  std::vector<std::byte> to(1 << 20);
  auto from = bytes(to.size(), 1);
  stand.recv(2, 0, {3, 0}, to);
  stand.send(1, 3, {3, 0}, from);
  // Others get on meanwhile.
  std::vector<std::byte> other(300);
  stand.recv(4, 0, {2, 0}, other);
  stand.send(3, 2, {2, 0}, other);
  REQUIRE(stand.run_until_done(2));
  REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 6; }, 60 * kSecond));
  for (const AbortReason& reason : stand.failed()) {
    CHECK(reason.code == AbortCode::kSilence);
    CHECK(reason.culprit_rank == 3);
    CHECK(std::string(reason.detail).find("transfer 1 of process 3 to process 0: it answers") == 0);
  }
}

TEST_CASE("a shard tells of the transfer that was posted first") {
  Stand stand(4, 2);
  const auto oldest = [&](std::uint16_t rank) {
    const auto& shard = stand.world().rank(stand.group(), rank).shards[0];
    return shard->status(stand.world().now()).transfer;
  };
  CHECK(oldest(0).unfinished == 0);
  auto small = bytes(300, 1);
  auto large = bytes(100'000, 2);
  std::vector<std::byte> to_small(small.size());
  std::vector<std::byte> to_large(large.size());
  const TimeNs posted_at = stand.world().now();
  stand.recv(1, 0, {5, 0}, to_small, 9);
  stand.world().run_for(10'000);
  stand.recv(2, 0, {3, 1}, to_large);
  stand.send(3, 0, {0, 1}, small);
  collective::TransferWait wait = oldest(0);
  CHECK(wait.unfinished == 3);
  CHECK(wait.end == collective::TransferEnd::kDestination);
  CHECK(wait.pair == wire::ProcessPair{5, 0});
  CHECK(wait.rank == 2);
  CHECK(wait.sequence == 1);
  CHECK(wait.terms.bytes == 300);
  CHECK(wait.terms.tag == 9);
  CHECK_FALSE(wait.posted_there);
  CHECK(wait.posted_at == posted_at);
  CHECK(wait.moved_at == 0);

  // That which was posted first ends first, one in the middle next.
  stand.send(4, 2, {5, 0}, small, 9);
  REQUIRE(stand.run_until_done(2));
  wait = oldest(0);
  CHECK(wait.unfinished == 2);
  CHECK(wait.pair == wire::ProcessPair{3, 1});
  stand.send(5, 1, {3, 1}, large);
  REQUIRE(stand.world().run_until([&] { return oldest(0).moved_at != 0; }, kSecond));
  CHECK(oldest(0).posted_there);
  const collective::TransferWait source = oldest(1);
  CHECK(source.end == collective::TransferEnd::kSource);
  CHECK(source.posted_there);
  CHECK(source.moved_at != 0);
  REQUIRE(stand.run_until_done(4));
  wait = oldest(0);
  CHECK(wait.unfinished == 1);
  CHECK(wait.end == collective::TransferEnd::kSource);
  CHECK(wait.rank == 0);
  CHECK_FALSE(wait.posted_there);
  stand.recv(6, 0, {0, 1}, to_small);
  CHECK(oldest(0).posted_there);
  REQUIRE(stand.run_until_done(6));
  CHECK(oldest(0).unfinished == 0);
}

TEST_CASE("a shard says which transfers it does not take") {
  Stand stand(2, 1, 1, 1);
  auto memory = bytes(64, 1);
  const auto post = [&](std::uint16_t source, std::uint16_t destination, std::uint64_t bytes,
                        collective::TransferEnd end) {
    collective::TransferSpec spec;
    spec.end = end;
    spec.pair = {source, destination};
    spec.terms.bytes = bytes;
    spec.from = spec.to = memory.data();
    return stand.world().rank(stand.group(), 0).shards[0]->post(spec, stand.world().now());
  };
  using collective::PostResult;
  using collective::TransferEnd;
  CHECK(post(1, 0, 64, TransferEnd::kSource) == PostResult::kRefused);  // of another rank
  CHECK(post(0, 2, 64, TransferEnd::kSource) == PostResult::kRefused);  // of nobody
  CHECK(post(0, 1, std::uint64_t{1} << 49, TransferEnd::kSource) == PostResult::kTooLarge);
  CHECK(post(0, 1, 64, TransferEnd::kSource) == PostResult::kOk);
  CHECK(post(0, 1, 64, TransferEnd::kSource) == PostResult::kFull);      // one at a time
  CHECK(post(0, 0, 64, TransferEnd::kSource) == PostResult::kTooLarge);  // more pairs than allowed
}
