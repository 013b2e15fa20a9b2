// SPDX-License-Identifier: BSD-3-Clause
// Groups for transfers alone: two ranks, no ring, and nothing on the wire while nobody waits.
#include <catch2/catch.hpp>

#include "transfer_stand.h"

namespace gradwire::sim {
namespace {

using collective::PostResult;

constexpr wire::ProcessPair kThere{0, 1};
constexpr wire::ProcessPair kBack{1, 0};

/// What rank 0 waits for until somebody ends it.
void wait_in_vain(Stand& stand, std::vector<std::byte>& memory) { stand.recv(1, 0, kBack, memory); }

TEST_CASE("a group for transfers alone transfers both ways, in streams and up to a size") {
  const auto lanes = GENERATE(std::uint8_t{1}, std::uint8_t{3});
  Stand stand(Stand::Options{.lanes = lanes, .alone = true});
  std::vector<std::byte> sent = bytes(70'001, 1);
  std::vector<std::byte> got(sent.size());
  std::vector<std::byte> back = bytes(900, 2);
  std::vector<std::byte> room(5'000);
  stand.send(1, 0, kThere, sent);
  stand.recv(2, 1, kThere, got);
  const wire::ProcessPair streamed{1, 0, 3};
  stand.recv_up_to(3, 0, streamed, room);
  stand.send(4, 1, streamed, back);
  REQUIRE(stand.run_until_done(4));
  CHECK(got == sent);
  CHECK(stand.size_of(3) == 900);
  CHECK(std::equal(back.begin(), back.end(), room.begin()));
}

TEST_CASE("a group for transfers alone sends nothing while nobody waits") {
  Stand stand(Stand::Options{.lanes = 2, .alone = true});
  std::vector<std::byte> sent = bytes(3'000, 1);
  std::vector<std::byte> got(sent.size());
  stand.send(1, 0, kThere, sent);
  stand.recv(2, 1, kThere, got);
  REQUIRE(stand.run_until_done(2));
  stand.world().run_for(kSecond);
  const std::uint64_t frames = stand.world().network().stats().frames;
  for (const std::uint16_t rank : {0, 1}) {
    CHECK(stand.world().until_deadline(stand.group(), rank) > 1'000 * kSecond);
  }
  stand.world().run_for(60 * kSecond);
  CHECK(stand.world().network().stats().frames == frames);
  CHECK(stand.failed().empty());
  stand.send(3, 1, kBack, sent);
  stand.recv(4, 0, kBack, got);
  CHECK(stand.run_until_done(4));
}

TEST_CASE("whoever waits in a group for transfers alone hears that the other rank is gone") {
  Stand stand(Stand::Options{.alone = true});
  const TimeNs before = GENERATE(TimeNs{0}, 60 * kSecond);
  stand.world().run_for(before);
  stand.world().crash(1);
  stand.world().run_for(before);
  CHECK(stand.failed().empty());
  std::vector<std::byte> memory(100);
  wait_in_vain(stand, memory);
  const TimeNs limit = stand.world().rank(stand.group(), 0).shards[0]->config().timeouts.silence_ns;
  REQUIRE(stand.world().run_until([&] { return !stand.failed().empty(); }, 3 * limit));
  CHECK(stand.failed()[0].code == AbortCode::kSilence);
  CHECK(stand.failed()[0].culprit_rank == 1);
}

TEST_CASE("an abort of a group for transfers alone is told to a rank that waits for nothing") {
  Stand stand(Stand::Options{.alone = true});
  stand.world().run_for(60 * kSecond);
  stand.world().abort(stand.group(), 0, {.code = AbortCode::kClientDied, .culprit_rank = 0});
  REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 2; }, kSecond));
  CHECK(stand.failed()[1].code == AbortCode::kClientDied);
}

TEST_CASE("ranks of a group for transfers alone leave") {
  Stand stand(Stand::Options{.alone = true});
  std::vector<std::byte> memory(100);
  SECTION("both, after a long rest") {
    stand.world().run_for(60 * kSecond);
    for (const std::uint16_t rank : {0, 1}) stand.world().leave(stand.group(), rank);
    CHECK(stand.world().run_until(
        [&] {
          return stand.world().closed(stand.group(), 0) && stand.world().closed(stand.group(), 1);
        },
        kSecond));
    CHECK(stand.failed().empty());
  }
  SECTION("one, while the other waits for it") {
    wait_in_vain(stand, memory);
    stand.world().leave(stand.group(), 1);
    REQUIRE(stand.world().run_until([&] { return !stand.failed().empty(); }, kSecond));
    CHECK(stand.failed()[0].code == AbortCode::kPeerLeft);
    CHECK(stand.failed()[0].culprit_rank == 1);
  }
  SECTION("one, and then the other waits for it") {
    stand.world().leave(stand.group(), 1);
    stand.world().run_for(kSecond);
    wait_in_vain(stand, memory);
    REQUIRE(stand.world().run_until([&] { return !stand.failed().empty(); }, kSecond));
    CHECK(stand.failed()[0].code == AbortCode::kPeerLeft);
  }
}

TEST_CASE("a group for transfers alone has no ops") {
  Stand stand(Stand::Options{.alone = true});
  collective::Shard& shard = *stand.world().rank(stand.group(), 0).shards[0];
  collective::OpSpec op;
  op.op_seq = 1;
  op.collective = Collective::kBarrier;
  CHECK(shard.post(op, 0) == PostResult::kUnsupported);
  op.collective = Collective::kAllReduce;
  op.count = 1;
  CHECK(shard.post(op, 0) == PostResult::kUnsupported);
}

TEST_CASE("a group for transfers alone has two ranks, transfers and nothing else") {
  collective::ShardConfig config;
  config.nranks = 2;
  config.transfers.pairs_max = 4;
  config.payload_bytes = 1'024;
  settle_transfers_alone(config);
  const auto backend = reduce::make_cpu_backend(16);
  const auto refused = [&](const collective::ShardConfig& wrong) {
    const auto checked = collective::check(wrong, backend.get());
    return !checked && checked.error().message.find("for transfers alone") != std::string::npos;
  };
  CHECK(!refused(config));  // what it lacks are mempools
  config.nranks = 3;
  CHECK(refused(config));
  config.nranks = 2;
  config.transfers.pairs_max = 0;
  CHECK(refused(config));
  config.transfers.pairs_max = 4;
  config.tiles.used = true;
  CHECK(refused(config));
  config.tiles.used = false;
  config.direct.op_bytes = 1024;
  CHECK(refused(config));
}

}  // namespace
}  // namespace gradwire::sim
