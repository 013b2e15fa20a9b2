// SPDX-License-Identifier: BSD-3-Clause
// An off-path host that knows all of a group but its tokens; and one on the path, which has them
// too, but not the keys of a group that seals its packets. Two worlds of the same seed: into one it
// sends packets of every type, in each state of the group, to every rank. They must go the same way
// to the last counter, but for the drops.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/describe_shard.h"
#include "support/forger.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

constexpr std::uint16_t kRanks = 3;
constexpr TimeNs kMs = 1'000'000;

/// One world, and what it went through.
class World {
 public:
  World(std::uint64_t seed, bool forging, security::Mode mode = security::Mode::kOff)
      : ring_(options(seed, mode)), mode_(mode), forging_(forging) {}

  RingHarness& ring() { return ring_; }
  std::vector<std::unique_ptr<AllReduceCase>> cases;  // outlive the shards that refer to them
  std::vector<std::string> story;
  std::uint64_t forged = 0;

  /// In steps, with packets between them.
  void run(TimeNs step, int steps) {
    for (int i = 0; i < steps; ++i) {
      forge();
      ring_.run_for(step);
      look();
    }
  }

 private:
  static RingOptions options(std::uint64_t seed, security::Mode mode) {
    RingOptions out;
    out.mode = mode;
    out.nranks = kRanks;
    out.seed = seed;
    out.loss = out.duplication = 0.02;
    out.jitter_ns = 8'000;
    out.shard.timeouts.leave_ns = 500 * kMs;
    return out;
  }
  void forge() {
    if (!forging_) return;
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      collective::Shard& shard = ring_.shard(rank);
      const collective::ShardConfig& config = shard.config();
      for (const wire::PacketType type : kAllTypes) {
        for (const bool down : {true, false}) {
          if (!goes(type, down)) continue;
          if (mode_ != security::Mode::kOff) {
            forge_sealed(shard, type, down);
            continue;
          }
          // No token, one that is a bit off, one that has nothing of it.
          const std::uint64_t right =
              (down ? config.upstream.tokens : config.downstream.tokens).from;
          for (const std::uint64_t wrong : {right, std::uint64_t{1}, ~std::uint64_t{0}}) {
            if (wrong == 0) continue;
            Forger(shard, down, wrong).send(type, ring_.now());
            ++forged;
          }
        }
      }
    }
  }
  /// With the right token: in clear, as the other mode seals, and with a tag of its own.
  void forge_sealed(collective::Shard& shard, wire::PacketType type, bool down) {
    for (const std::uint8_t flags :
         {std::uint8_t{0}, wire::kAuthenticatedFlag, wire::kEncryptedFlag, wire::kSealFlags}) {
      Forger forger(shard, down, 0);
      forger.seals(flags);
      forger.send(type, ring_.now());
      ++forged;
    }
  }
  void look() {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      story.push_back(
          fmt::format("{} rank {} formed {} aborted {} closed {}: {}", ring_.now(), rank,
                      ring_.formed(rank), ring_.aborted(rank), ring_.closed(rank),
                      describe(ring_.shard(rank), ring_.now(),
                               {wire::Drop::kToken, wire::Drop::kUnsealed, wire::Drop::kTag})));
    }
  }

  RingHarness ring_;
  security::Mode mode_;
  bool forging_;
};

enum class End { kLeave, kAbort, kOneLeaves, kSilence };

/// Forming, formed, an op that one rank has not posted, ops, and an end.
void live(World& world, End end) {
  RingHarness& ring = world.ring();
  ring.freeze(2);
  CHECK_FALSE(ring.form(1 * kMs));
  world.run(kMs / 4, 8);
  CHECK_FALSE(ring.formed(0));
  ring.freeze(2, false);
  world.run(kMs / 4, 400);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) REQUIRE(ring.formed(rank));

  auto& cases = world.cases;
  for (std::uint64_t op = 1; op <= 3; ++op) {
    cases.push_back(std::make_unique<AllReduceCase>(kRanks, 1, op == 2 ? 0 : 10'000,
                                                    DataType::kFloat32, RedOp::kSum, op, op == 3));
    for (const std::uint16_t rank : {0, 1}) ring.post(rank, cases.back()->spec(rank, op));
  }
  world.run(kMs / 10, 30);
  if (end == End::kSilence) {
    ring.freeze(2);
    world.run(20 * kMs, 200);
    CHECK(ring.aborted(0));
  } else {
    for (std::uint64_t op = 1; op <= 3; ++op) ring.post(2, cases[op - 1]->spec(2, op));
    world.run(kMs / 20, 5);
    if (end != End::kAbort) {
      for (int i = 0; i < 1'000 && !(ring.done(0, 3) && ring.done(1, 3) && ring.done(2, 3)); ++i) {
        world.run(kMs, 1);
      }
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) CHECK(cases[2]->wrong(rank) == "");
    }
    if (end == End::kAbort) ring.abort(0, AbortReason{.code = AbortCode::kClientAbort});
    world.run(kMs / 4, 20);
  }
  ring.leave(0);
  world.run(kMs, 20);
  if (end == End::kOneLeaves) {
    cases.push_back(
        std::make_unique<AllReduceCase>(kRanks, 1, 100, DataType::kFloat32, RedOp::kSum, 9, false));
    ring.post(1, cases.back()->spec(1, 4));
    world.run(kMs, 20);
    CHECK(ring.aborted(1));
  }
  ring.leave(1);
  if (end != End::kSilence) ring.leave(2);
  world.run(kMs, 700);
  CHECK(ring.closed(0));
  CHECK(ring.closed(1));
}

}  // namespace

TEST_CASE("packets without the token change nothing in any state of a group") {
  for (const End end : {End::kLeave, End::kAbort, End::kOneLeaves, End::kSilence}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      INFO("end " << static_cast<int>(end) << ", seed " << seed);
      World quiet(seed, false);
      World attacked(seed, true);
      live(quiet, end);
      live(attacked, end);
      CHECK(quiet.ring().drops(wire::Drop::kToken) == 0);
      CHECK(attacked.forged > 10'000);
      CHECK(attacked.ring().drops(wire::Drop::kToken) == attacked.forged);
      REQUIRE(quiet.story.size() == attacked.story.size());
      for (std::size_t i = 0; i < quiet.story.size(); ++i) {
        REQUIRE(attacked.story[i] == quiet.story[i]);
      }
      CHECK(quiet.ring().leaked_mbufs() == 0);
      CHECK(attacked.ring().leaked_mbufs() == 0);
    }
  }
}

TEST_CASE("packets without the key change nothing in any state of a group that seals its own") {
  for (const security::Mode mode : {security::Mode::kAuthenticate, security::Mode::kEncrypt}) {
    for (const End end : {End::kLeave, End::kAbort, End::kOneLeaves, End::kSilence}) {
      INFO(security::name_of(mode) << ", end " << static_cast<int>(end));
      World quiet(1, false, mode);
      World attacked(1, true, mode);
      live(quiet, end);
      live(attacked, end);
      CHECK(quiet.ring().drops(wire::Drop::kUnsealed) == 0);
      CHECK(quiet.ring().drops(wire::Drop::kTag) == 0);
      CHECK(attacked.forged > 10'000);
      // One of four is sealed as the group's are.
      CHECK(attacked.ring().drops(wire::Drop::kTag) * 4 == attacked.forged);
      CHECK(attacked.ring().drops(wire::Drop::kUnsealed) * 4 == attacked.forged * 3);
      REQUIRE(quiet.story.size() == attacked.story.size());
      for (std::size_t i = 0; i < quiet.story.size(); ++i) {
        REQUIRE(attacked.story[i] == quiet.story[i]);
      }
      CHECK(attacked.ring().leaked_mbufs() == 0);
    }
  }
}
