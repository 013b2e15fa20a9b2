// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ops/op_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <vector>

#include "support/seed.h"

using namespace gradwire;
using namespace gradwire::collective;

namespace {

OpSpec spec_of(std::uint64_t op_seq) {
  OpSpec spec;
  spec.op_seq = op_seq;
  spec.count = 1;
  return spec;
}

/// Of so many chunks, of which none moves: done as soon as it is opened.
OpPlan plan_of(std::uint64_t lane_chunks) {
  OpPlan plan;
  plan.lane_chunks = lane_chunks;
  return plan;
}

}  // namespace

TEST_CASE("ops open in order, as many as there are slots") {
  OpTable table(4, 1000);
  CHECK(table.open(spec_of(2), plan_of(1)) == nullptr);
  for (std::uint64_t i = 1; i <= 4; ++i) REQUIRE(table.open(spec_of(i), plan_of(1)) != nullptr);
  CHECK(table.open(spec_of(5), plan_of(1)) == nullptr);
  table.close(*table.find(2));
  CHECK(table.done() == 0);
  CHECK(table.open(spec_of(5), plan_of(1)) == nullptr);
  table.close(*table.find(1));
  CHECK(table.done() == 2);
  CHECK(table.open(spec_of(5), plan_of(1)) != nullptr);
  CHECK(table.find(2) == nullptr);
  CHECK(table.call(2) != nullptr);
}

TEST_CASE("bitmaps of active ops never overlap and come clean") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  OpTable table(16, 5000);
  std::deque<std::uint64_t> active;
  std::uint64_t next = 1;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const std::uint64_t chunks = random() % 3 == 0 ? random() % 5001 : random() % 100;
      if (Op* op = table.open(spec_of(next), plan_of(chunks))) {
        for (std::uint64_t w = 0; w < 3 * op->bitmap_words; ++w) REQUIRE(op->reduced[w] == 0);
        std::fill_n(op->reduced, 3 * op->bitmap_words, next);
        active.push_back(next++);
      } else {
        REQUIRE_FALSE(active.empty());
      }
    } else if (!active.empty()) {
      const std::size_t which = random() % active.size();
      Op* op = table.find(active[which]);
      for (std::uint64_t w = 0; w < 3 * op->bitmap_words; ++w) {
        REQUIRE(op->reduced[w] == active[which]);
      }
      table.close(*op);
      active.erase(active.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
}

TEST_CASE("ops that are skipped count as done, and wait for a slot behind one that is not") {
  OpTable table(4, 1000);
  REQUIRE(table.skip_to(1'000'000));
  CHECK(table.posted() == 1'000'000);
  CHECK(table.oldest_unfinished() == 0);
  CHECK(table.call(1'000'000) == nullptr);
  REQUIRE(table.open(spec_of(1'000'001), plan_of(100)) != nullptr);
  CHECK_FALSE(table.skip_to(1'000'004));
  REQUIRE(table.skip_to(1'000'003));
  CHECK(table.done() == 1'000'000);
  REQUIRE(table.open(spec_of(1'000'004), plan_of(100)) != nullptr);
  CHECK(table.open(spec_of(1'000'005), plan_of(1)) == nullptr);
  table.close(*table.find(1'000'001));
  CHECK(table.done() == 1'000'003);
  CHECK(table.find(1'000'002) == nullptr);
  REQUIRE(table.skip_to(1'000'002));
  CHECK(table.posted() == 1'000'004);
}

TEST_CASE("a lane's chunks have indexes one after the other, whatever the number of lanes") {
  for (unsigned lanes = 1; lanes <= 255; ++lanes) {
    const auto lane = static_cast<std::uint8_t>((lanes - 1) / 2);
    const OpTable table(1, 64, lane, static_cast<std::uint8_t>(lanes));
    const std::uint64_t last = (0xffffffffull - lane) / lanes;
    const std::vector<std::uint64_t> indexes = {0, 1, 2, 63, 12'345, last - 1, last};
    for (const std::uint64_t index : indexes) {
      const std::uint64_t chunk = index * lanes + lane;
      REQUIRE(table.chunk_of(index) == chunk);
      REQUIRE(table.index_of(chunk) == index);
      for (const std::uint64_t other : {chunk - std::min<std::uint64_t>(chunk, 1), chunk + 1}) {
        REQUIRE(table.index_of(other) == other / lanes);
      }
    }
  }
}
