// SPDX-License-Identifier: BSD-3-Clause
// Who owns how much of an all-reduce by tiles (lib/collective/tiles/tile_shares.h), against
// vectors that Python made in exact fractions.
#include "collective/tiles/tile_shares.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <vector>

#include "tile_shares_vectors.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::TileShares;

namespace {

struct Digest {
  std::uint64_t value = 0;
  void add(std::uint64_t more) { value = value * 0x9e3779b97f4a7c15 + more; }
};

std::uint64_t digest_of_begins(const TileShares& shares, std::uint64_t units) {
  Digest digest;
  for (std::uint32_t i = 0; i < shares.ranks(); ++i) digest.add(shares.begin_of(i, units));
  return digest.value;
}

}  // namespace

TEST_CASE("shares by rates are those of exact fractions", "[tiles]") {
  for (const ShareVector& vector : kShareVectors) {
    CAPTURE(vector.nranks, vector.rates);
    const auto shares = TileShares::make(vector.rates, vector.nranks);
    REQUIRE(shares);
    REQUIRE(shares->ranks() == vector.rates.size());
    for (std::uint32_t i = 0; i < vector.rates.size(); ++i) {
      CHECK(shares->share_of(i) == vector.shares[i]);
    }
    for (std::size_t i = 0; i < kShareUnits.size(); ++i) {
      CHECK(digest_of_begins(*shares, kShareUnits[i]) == vector.begins[i]);
      CHECK(shares->begin_of(static_cast<std::uint32_t>(shares->ranks()), kShareUnits[i]) ==
            kShareUnits[i]);
    }
  }
  for (const LargeShareVector& vector : kLargeShareVectors) {
    CAPTURE(vector.nranks, vector.all_ranks);
    std::vector<std::uint32_t> rates;
    for (std::uint32_t i = 0; i < vector.all_ranks; ++i) {
      rates.push_back(10 * (1 + static_cast<std::uint32_t>((7919ull * i * i + 13ull * i) % 40)));
    }
    const auto shares = TileShares::make(rates, vector.nranks);
    REQUIRE(shares);
    Digest digest;
    for (std::uint32_t i = 0; i < vector.all_ranks; ++i) digest.add(shares->share_of(i));
    CHECK(digest.value == vector.shares);
    CHECK(digest_of_begins(*shares, kShareUnits.back()) == vector.begins);
  }
}

TEST_CASE("ranks own the ring's segments if no rate says otherwise", "[tiles]") {
  const auto make = [](std::vector<std::uint32_t> rates, std::uint16_t nranks) {
    return TileShares::make(rates, nranks);
  };
  CHECK_FALSE(make({100, 100, 100}, 3));
  CHECK_FALSE(make({100, 0, 400}, 3));
  CHECK_FALSE(make({0, 0}, 2));
  CHECK_FALSE(make({7}, 1));
  CHECK(make({100, 100, 101}, 3));
  // Ranks without members, and a rate that is not known; or two ranks that have members.
  for (const auto& shares :
       {make({100, 0, 400, 100}, 3), make({100, 100, 1, 0}, 3), make({1, 9, 5, 3}, 2)}) {
    REQUIRE(shares);
    for (std::uint32_t i = 0; i < 4; ++i) CHECK(shares->share_of(i) == 1);
    CHECK(shares->begin_of(3, 10) == 7);
  }
}

TEST_CASE("no rank has more than a unit above the most that is told", "[tiles]") {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint32_t> rates(5 + random() % 40);
    for (std::uint32_t& rate : rates) rate = 1 + static_cast<std::uint32_t>(random() % 400);
    const auto shares = TileShares::make(rates, static_cast<std::uint16_t>(3 + random() % 3));
    if (!shares) continue;
    const std::uint64_t units = random() % 5'000;
    for (std::uint32_t rank = 0; rank < shares->ranks(); ++rank) {
      const std::uint64_t begin = shares->begin_of(rank, units);
      const std::uint64_t end = shares->begin_of(rank + 1, units);
      REQUIRE(begin <= end);
      REQUIRE(end - begin <= shares->most_of(units) + 1);
    }
  }
}
