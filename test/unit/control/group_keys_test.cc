// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/group_keys.h"

#include <catch2/catch.hpp>
#include <deque>
#include <set>

#include "control/lanes/lane_control.h"
#include "control/plans/plan_request.h"
#include "keys_support.h"

namespace gradwire::control {
namespace {

using security::Mode;
using security::PacketKey;
using test::KeyedDaemon;

using security::KeyUse;
using security::LinkSeal;

/// What becomes of a packet that one seals, at the other.
security::OpenResult sealed_and_opened(LinkSeal& one, LinkSeal& other, KeyUse use,
                                       std::uint64_t number) {
  std::array<std::byte, security::kSealedHeaderBytes> header{};
  std::array<std::byte, 64> payload{};
  payload[5] = std::byte{9};
  std::array<std::byte, security::kTagBytes> tag{};
  const std::span<const std::byte> only = payload;
  one.seal(use, number, header, {&only, 1}, payload.data(), tag);
  const security::OpenResult opened = other.open(use, number, header, payload, payload.data(), tag);
  if (opened == security::OpenResult::kYes) CHECK(payload[5] == std::byte{9});
  return opened;
}
/// The same of keys of one generation.
bool fit(PacketKey& one, PacketKey& other) {
  std::array<std::byte, security::kSealedHeaderBytes> header{};
  std::array<std::byte, 64> payload{};
  std::array<std::byte, security::kTagBytes> tag{};
  one.seal_in_place(7, header, payload, tag);
  return other.open(7, header, payload, payload.data(), tag);
}

/// A ring of three in which rank 0 and 2 are the neighbors of 1, and what each has made.
struct Ring {
  explicit Ring(JobKeyPtr job = nullptr, std::uint8_t lanes = 2) {
    std::vector<ipc::RankInfo> table;
    const security::KeyId id = job == nullptr ? security::KeyId{} : job->id;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      daemons.emplace_back(rank, std::vector<unsigned char>{1});
      table.push_back(daemons[rank].entry(Mode::kEncrypt, test::kUid, id));
    }
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ipc::JoinBody join = test::join_body(rank, table);
      join.wants = test::wants(Mode::kEncrypt, id);
      const std::vector<LocalAddress> addresses = {
          test::local_address(0, "10.0.0." + std::to_string(rank + 1))};
      auto wanted = plan_request(join, test::rank_info(rank), addresses,
                                 daemons[rank].keys->for_join(test::kUid, join.wants));
      if (!wanted) FAIL(wanted.error().message);
      wanted->lanes = lanes;
      auto making = daemons[rank].keys->making_for(*wanted, test::kUid, table, job);
      if (!making) FAIL(making.error().message);
      while (!(*making)->work()) {
      }
      CHECK_FALSE((*making)->error());
      daemons[rank].keys->keep_pairs_of(**making, test::kUid);
      plans.push_back(std::move(*wanted));
      put_keys(plans.back(), (*making)->take());
    }
  }
  GroupKeys& keys(std::size_t rank) { return *plans[rank].keys; }
  std::deque<KeyedDaemon> daemons;
  std::vector<PlanRequest> plans;
};

}  // namespace

TEST_CASE("both ends of a link have the same keys, and no other link has them") {
  Ring ring;
  std::set<std::uint64_t> tokens;
  for (std::uint8_t lane = 0; lane < 2; ++lane) {
    for (std::uint16_t a = 0; a < 3; ++a) {
      for (std::uint16_t b = 0; b < 3; ++b) {
        if (a == b) {
          CHECK_FALSE(ring.keys(a).has(b));
          continue;
        }
        CHECK(ring.keys(a).tokens(lane, b).to == ring.keys(b).tokens(lane, a).from);
        tokens.insert(ring.keys(a).tokens(lane, b).to);
      }
    }
  }
  CHECK(tokens.size() == 12);
  const auto here = ring.keys(0).make_seal(1, 2);
  const auto there = ring.keys(2).make_seal(1, 0);
  const auto third = ring.keys(1).make_seal(1, 0);
  const auto other_lane = ring.keys(2).make_seal(0, 0);
  std::uint64_t number = 0;
  for (const KeyUse use : {KeyUse::kHello, KeyUse::kData}) {
    CHECK(sealed_and_opened(*here, *there, use, ++number) == security::OpenResult::kYes);
    CHECK(sealed_and_opened(*there, *here, use, number) == security::OpenResult::kYes);
    CHECK(sealed_and_opened(*here, *here, use, ++number) == security::OpenResult::kForged);
    CHECK(sealed_and_opened(*here, *third, use, ++number) == security::OpenResult::kForged);
    CHECK(sealed_and_opened(*here, *other_lane, use, ++number) == security::OpenResult::kForged);
  }
  const std::uint64_t second = std::uint64_t{1} << security::kGenerationBits;
  CHECK(sealed_and_opened(*here, *there, KeyUse::kData, second) == security::OpenResult::kYes);
  for (std::uint64_t generation = 2; generation < 5; ++generation) {
    CHECK_FALSE(ring.keys(0).supply(7, 1, {2, security::Direction::kTo, generation + 1}));
    const auto supplied = ring.keys(0).supply(7, 1, {2, security::Direction::kTo, generation});
    const auto there_too = ring.keys(2).supply(7, 1, {0, security::Direction::kFrom, generation});
    REQUIRE((supplied && there_too));
    CHECK(supplied->type == command::RequestType::kSupplyKey);
    CHECK(supplied->group_handle == 7);
    CHECK(supplied->wish.generation == generation);
    PacketKey& to = *supplied->key;
    PacketKey& from = *there_too->key;
    CHECK(fit(to, from));
  }
  // The other direction is still at its start. No such lane, rank or link.
  CHECK_FALSE(ring.keys(0).supply(7, 1, {2, security::Direction::kFrom, 3}));
  CHECK(ring.keys(0).supply(7, 1, {2, security::Direction::kFrom, 2}));
  CHECK_FALSE(ring.keys(0).supply(7, 9, {2, security::Direction::kFrom, 3}));
  CHECK_FALSE(ring.keys(0).supply(7, 1, {900, security::Direction::kFrom, 2}));
  CHECK_FALSE(ring.keys(0).supply(7, 1, {0, security::Direction::kFrom, 2}));

  const auto lane = ring.keys(1).make_seals(0);
  CHECK(lane->mode() == Mode::kEncrypt);
  CHECK(lane->has(0));
  CHECK_FALSE(lane->has(1));
  CHECK(lane->has(2));
}

TEST_CASE("a link's keys take no more than is counted, and freeing some at a time frees all") {
  Ring ring;
  const std::size_t before = security::secret_bytes();
  ring.plans[0].keys.reset();
  const std::size_t start = before - security::secret_bytes();
  CHECK(start > 0);
  // Rank 1's: four links, each with a third key of what is received, and what waits in its place.
  constexpr std::size_t kLinks = 4;
  GroupKeys& keys = ring.keys(1);
  std::vector<std::shared_ptr<collective::Seals>> lanes;
  std::vector<command::Request> supplied;
  for (std::uint8_t lane = 0; lane < 2; ++lane) {
    lanes.push_back(keys.make_seals(lane));
    for (const std::uint16_t rank : {0, 2}) {
      for (const auto direction : {security::Direction::kTo, security::Direction::kFrom}) {
        supplied.push_back(keys.supply(7, lane, {rank, direction, 2}).value());
      }
    }
  }
  const std::size_t lean = security::secret_bytes();
  for (const auto& lane : lanes) {
    while (!lane->free_some()) {
    }
    CHECK_FALSE(lane->has(0));
  }
  supplied.clear();
  while (!keys.free_some()) {
  }
  const std::size_t each = (lean - security::secret_bytes()) / kLinks;
  INFO(each);
  CHECK(each <= GroupKeys::link_bytes());
  CHECK(each > GroupKeys::link_bytes() * 3 / 4);
}

TEST_CASE("a link that has gone through generations has no more keys than are counted") {
  Ring ring;
  constexpr std::uint64_t kNext = std::uint64_t{1} << security::kGenerationBits;
  constexpr std::size_t kLinks = 4;
  struct Ends {
    std::unique_ptr<LinkSeal> here;
    std::unique_ptr<LinkSeal> there;
  };
  std::vector<Ends> ends;
  std::vector<command::Request> on_their_way;
  const auto key_of = [&](std::size_t rank, std::uint8_t lane, std::uint16_t other,
                          security::Direction direction, std::uint64_t generation) {
    return ring.keys(rank).supply(7, lane, {other, direction, generation}).value();
  };
  for (std::uint8_t lane = 0; lane < 2; ++lane) {
    for (const std::uint16_t rank : {0, 2}) {
      Ends link{ring.keys(1).make_seal(lane, rank), ring.keys(rank).make_seal(lane, 1)};
      // One generation on: the row of what is received is full.
      REQUIRE(sealed_and_opened(*link.there, *link.here, KeyUse::kData, kNext) ==
              security::OpenResult::kYes);
      const auto direction = security::Direction::kFrom;
      REQUIRE(link.here->wants(direction));
      const auto third = key_of(1, lane, rank, direction, 2);
      CHECK_FALSE(link.here->supply(direction, std::move(*third.key)));
      const auto there = key_of(rank, lane, 1, security::Direction::kTo, 2);
      static_cast<void>(link.there->supply(security::Direction::kTo, std::move(*there.key)));
      // And one more each way: the next keys are made before the oldest are given back.
      REQUIRE(sealed_and_opened(*link.there, *link.here, KeyUse::kData, 2 * kNext) ==
              security::OpenResult::kYes);
      REQUIRE(sealed_and_opened(*link.here, *link.there, KeyUse::kData, kNext) ==
              security::OpenResult::kYes);
      REQUIRE(link.here->wants(direction));
      REQUIRE(link.here->wants(security::Direction::kTo));
      on_their_way.push_back(key_of(1, lane, rank, direction, 3));
      on_their_way.push_back(key_of(1, lane, rank, security::Direction::kTo, 2));
      ends.push_back(std::move(link));
    }
  }
  const std::size_t most = security::secret_bytes();
  on_their_way.clear();
  for (Ends& link : ends) link.here.reset();
  while (!ring.keys(1).free_some()) {
  }
  const std::size_t each = (most - security::secret_bytes()) / kLinks;
  INFO(each);
  CHECK(each <= GroupKeys::link_bytes());
  CHECK(each > GroupKeys::link_bytes() * 9 / 10);
}

TEST_CASE("a plan has the tokens of its keys") {
  Ring ring;
  const PlanRequest& plan = ring.plans[1];
  REQUIRE(plan.tokens.size() == 2);
  CHECK(plan.tokens[1].upstream == plan.keys->tokens(1, 0));
  CHECK(plan.tokens[1].downstream == plan.keys->tokens(1, 2));
  CHECK(plan.payload_bytes == 8128);
  CHECK(plan.table_hash == ring.plans[0].table_hash);
  CHECK(plan.table_hash != security::Sha256{});
  CHECK(plan.security.key == test::key_id(1));
}

TEST_CASE("a job's key goes into all keys") {
  Ring ring;
  Ring with(test::job_key(9));
  Ring other(test::job_key(8));
  // Other public keys, too: the same table once with and once without is what counts.
  CHECK(ring.keys(0).tokens(0, 1).to != with.keys(0).tokens(0, 1).to);
  KeyedDaemon& daemon = with.daemons[0];
  const auto tokens = [&](const JobKeyPtr& job) {
    std::vector<ipc::RankInfo> table;
    for (KeyedDaemon& each : with.daemons) table.push_back(each.entry(Mode::kEncrypt));
    auto making = daemon.keys->making_for(with.plans[0], test::kUid, table, job).value();
    while (!making->work()) {
    }
    return making->take()->tokens(0, 1).to;
  };
  CHECK(tokens(nullptr) != tokens(test::job_key(9)));
  CHECK(tokens(test::job_key(9)) == with.keys(0).tokens(0, 1).to);
  CHECK(tokens(test::job_key(8)) != tokens(test::job_key(9)));
}

TEST_CASE("pairs are made once for two daemons, and again when a key is retired or taken away") {
  Ring ring;
  KeyedDaemon& daemon = ring.daemons[0];
  CHECK(daemon.keys->pairs().size() == 2);
  for (std::size_t i = 0; i < Epochs::kKept; ++i) daemon.keys->begun();
  CHECK(daemon.keys->pairs().size() == 0);
  std::vector<ipc::RankInfo> table = {daemon.entry(Mode::kEncrypt),
                                      ring.daemons[1].entry(Mode::kEncrypt),
                                      ring.daemons[2].entry(Mode::kEncrypt)};
  const auto making = daemon.keys->making_for(ring.plans[0], test::kUid, table, nullptr);
  REQUIRE_FALSE(making);
  CHECK(making.error().message == "the entry of rank 0 is too old: ask for another one");
}

TEST_CASE("a public key that gives zeros names the rank that has it") {
  Ring ring;
  PlanRequest plan = ring.plans[0];
  std::vector<ipc::RankInfo> table;
  for (KeyedDaemon& each : ring.daemons) table.push_back(each.entry(Mode::kEncrypt));
  // Not one of the daemon's: its pair was made, and is kept.
  plan.security.public_keys[2] = {};
  auto making = ring.daemons[0].keys->making_for(plan, test::kUid, table, nullptr).value();
  while (!making->work()) {
  }
  REQUIRE(making->error());
  CHECK_THAT(making->error()->message, Catch::Contains("the entry of rank 2: the X25519"));
}

TEST_CASE("many pairs are made in pieces, as long as somebody waits for them") {
  const bool cancels = GENERATE(false, true);
  std::vector<KeyMaking::Rank> ranks;
  const auto key = std::make_shared<const security::X25519Key>(*security::X25519Key::draw_new());
  for (std::uint16_t rank = 1; rank <= KeyMaking::kLinksPerPiece + 1; ++rank) {
    ranks.push_back({rank, rank, security::X25519Key::draw_new()->public_key(), nullptr, false});
  }
  LinkCommon common;
  common.all_ranks = 64;
  const auto cluster = test::cluster_of({1});
  KeyMaking making(common, key, cluster, cluster->all()[0].id, nullptr, ranks);
  CHECK_FALSE(making.work());
  if (cancels) making.cancel();
  CHECK(making.work());
  PairCache cache;
  making.keep_pairs(cache);
  CHECK(cache.size() == KeyMaking::kLinksPerPiece + (cancels ? 0 : 1));
  // Once it is cancelled, the keys are freed, and none may be asked for.
  if (!cancels) CHECK(making.take()->has(KeyMaking::kLinksPerPiece + 1));
}

}  // namespace gradwire::control
