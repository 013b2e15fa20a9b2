// SPDX-License-Identifier: BSD-3-Clause
#include "host_registry.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <random>

#include "support/seed.h"

namespace {

using gradwire::gpu_cuda::HostRegistry;
constexpr std::uintptr_t kPage = HostRegistry::kPageBytes;

/// Pages as a GPU's driver keeps them: each is pinned once.
struct Pages {
  std::map<std::uintptr_t, std::uintptr_t> pinned;
  int refuse_from = -1;  ///< the so many'th pin and all after it fail
  int pins = 0;

  HostRegistry registry{
      [this](std::uintptr_t begin, std::size_t bytes) {
        REQUIRE(begin % kPage == 0);
        REQUIRE(bytes % kPage == 0);
        REQUIRE(bytes > 0);
        for (const auto& [other, end] : pinned) {
          const bool apart = begin >= end || begin + bytes <= other;
          REQUIRE(apart);
        }
        if (refuse_from >= 0 && pins++ >= refuse_from) return -ENOMEM;
        pinned[begin] = begin + bytes;
        return 0;
      },
      [this](std::uintptr_t begin) { return pinned.erase(begin) == 1 ? 0 : -EINVAL; }};

  bool holds(std::uintptr_t address) const {
    for (const auto& [begin, end] : pinned) {
      if (address >= begin && address < end) return true;
    }
    return false;
  }
};

TEST_CASE("pieces of one page share its registration, which goes with the last of them") {
  Pages pages;
  REQUIRE(pages.registry.add(kPage * 10 + 64, 4) == 0);
  REQUIRE(pages.registry.add(kPage * 10 + 128, 4) == 0);
  CHECK(pages.pinned.size() == 1);
  // From the middle of that page into the next two: only those are new.
  REQUIRE(pages.registry.add(kPage * 10 + 256, 2 * kPage) == 0);
  CHECK(pages.pinned.size() == 2);
  REQUIRE(pages.registry.remove(kPage * 10 + 64) == 0);
  REQUIRE(pages.registry.remove(kPage * 10 + 256) == 0);
  CHECK(pages.holds(kPage * 10));
  CHECK_FALSE(pages.holds(kPage * 11));
  REQUIRE(pages.registry.remove(kPage * 10 + 128) == 0);
  CHECK(pages.pinned.empty());
}

TEST_CASE("a piece over pages of which some are pinned pins the gaps") {
  Pages pages;
  REQUIRE(pages.registry.add(kPage * 3, kPage) == 0);
  REQUIRE(pages.registry.add(kPage * 6, kPage) == 0);
  REQUIRE(pages.registry.add(kPage * 2, 6 * kPage) == 0);
  for (std::uintptr_t page = 2; page < 8; ++page) CHECK(pages.holds(page * kPage));
  REQUIRE(pages.registry.remove(kPage * 2) == 0);
  CHECK(pages.pinned.size() == 2);
}

TEST_CASE("what is wrong is refused and leaves nothing pinned") {
  Pages pages;
  CHECK(pages.registry.add(kPage, 0) == -EINVAL);
  CHECK(pages.registry.add(~std::uintptr_t{0} - 8, 64) == -EINVAL);
  CHECK(pages.registry.remove(kPage) == -EINVAL);
  REQUIRE(pages.registry.add(kPage * 5, kPage) == 0);
  CHECK(pages.registry.add(kPage * 5, 64) == -EEXIST);
  // The second gap cannot be pinned: the first is given back, the page before is still used.
  pages.refuse_from = 1;
  CHECK(pages.registry.add(kPage * 4, 3 * kPage) == -ENOMEM);
  CHECK(pages.pinned.size() == 1);
  CHECK(pages.registry.pieces() == 1);
  CHECK(pages.registry.remove(kPage * 5) == 0);
  CHECK(pages.pinned.empty());
}

TEST_CASE("any order of pieces keeps every registered byte pinned, and ends with none") {
  const std::uint64_t seed = gradwire::test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  Pages pages;
  std::map<std::uintptr_t, std::size_t> pieces;
  for (int step = 0; step < 4000; ++step) {
    if (random() % 2 == 0 || pieces.empty()) {
      const std::uintptr_t address = kPage + random() % (64 * kPage);
      const std::size_t bytes = 1 + random() % (3 * kPage);
      const int added = pages.registry.add(address, bytes);
      REQUIRE(added == (pieces.contains(address) ? -EEXIST : 0));
      if (added == 0) pieces[address] = bytes;
    } else {
      auto victim = pieces.begin();
      std::advance(victim, random() % pieces.size());
      REQUIRE(pages.registry.remove(victim->first) == 0);
      pieces.erase(victim);
    }
    for (const auto& [address, bytes] : pieces) {
      REQUIRE(pages.holds(address));
      REQUIRE(pages.holds(address + bytes - 1));
    }
  }
  for (const auto& [address, bytes] : pieces) REQUIRE(pages.registry.remove(address) == 0);
  CHECK(pages.pinned.empty());
}

}  // namespace
