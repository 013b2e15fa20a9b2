// SPDX-License-Identifier: BSD-3-Clause
// Sets of chunks against the same done bit by bit, at every word's border.
#include "collective/tiles/chunk_set.h"

#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <set>

using gradwire::collective::ChunkSet;

namespace {

constexpr std::uint32_t kChunks = ChunkSet::kChunks;
using Bits = std::set<std::uint32_t>;

ChunkSet set_of(const Bits& bits) {
  ChunkSet set;
  for (const std::uint32_t bit : bits) set.add(bit);
  return set;
}

Bits bits_of(const ChunkSet& set) {
  Bits bits;
  for (std::uint32_t i = 0; i < kChunks; ++i) {
    if (set.has(i)) bits.insert(i);
  }
  return bits;
}

}  // namespace

TEST_CASE("a set of chunks has what was added, and is shifted and cut at every place") {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    Bits bits;
    const std::uint32_t count = round == 0 ? 0 : random() % kChunks;
    for (std::uint32_t i = 0; i < count; ++i) bits.insert(random() % kChunks);
    const ChunkSet set = set_of(bits);
    REQUIRE(bits_of(set) == bits);
    CHECK(set.size() == bits.size());
    CHECK(set.empty() == bits.empty());
    if (!bits.empty()) CHECK(set.lowest() == *bits.begin());
    for (std::uint32_t at = 0; at <= kChunks; ++at) {
      Bits below;
      Bits shifted;
      for (const std::uint32_t bit : bits) {
        if (bit < at) {
          below.insert(bit);
        } else {
          shifted.insert(bit - at);
        }
      }
      CHECK(bits_of(set.below(at)) == below);
      ChunkSet later = set;
      later.shift(at);
      CHECK(bits_of(later) == shifted);
    }
  }
}

TEST_CASE("leading chunks are those before the first gap") {
  for (std::uint32_t gap = 0; gap <= kChunks; ++gap) {
    ChunkSet set;
    for (std::uint32_t i = 0; i < kChunks; ++i) {
      if (i != gap) set.add(i);
    }
    CHECK(set.leading() == gap);
  }
}

TEST_CASE("sets are joined, and one is taken from another") {
  ChunkSet odd;
  ChunkSet third;
  Bits both;
  Bits rest;
  for (std::uint32_t i = 0; i < kChunks; ++i) {
    if (i % 2 == 1) odd.add(i);
    if (i % 3 == 0) third.add(i);
    if (i % 2 == 1 || i % 3 == 0) both.insert(i);
    if (i % 2 == 1 && i % 3 != 0) rest.insert(i);
  }
  ChunkSet joined = odd;
  joined |= third;
  CHECK(bits_of(joined) == both);
  odd -= third;
  CHECK(bits_of(odd) == rest);
  odd.remove(1);
  CHECK_FALSE(odd.has(1));
  odd.clear();
  CHECK(odd.empty());
}
