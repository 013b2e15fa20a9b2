// SPDX-License-Identifier: BSD-3-Clause
#include "security/replay_window.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "support/seed.h"

namespace gradwire::security {

TEST_CASE("the window knows which numbers were taken") {
  using Verdict = ReplayWindow::Verdict;
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const std::uint64_t span : {3u, 70u, 1'100u, 9'000u, 40'000u}) {
    for (const std::uint64_t from : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
      ReplayWindow window;
      std::set<std::uint64_t> taken;
      std::uint64_t base = from;
      std::uint64_t newest = 0;
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t number = base + random() % span;
        if (random() % 4 == 0) base += random() % (random() % 50 == 0 ? 3 * span : 3);
        const Verdict expected = newest >= number && newest - number >= ReplayWindow::kNumbers
                                     ? Verdict::kOld
                                 : taken.count(number) != 0 ? Verdict::kSeen
                                                            : Verdict::kNew;
        REQUIRE(window.look(number) == expected);
        if (expected == Verdict::kNew && random() % 8 != 0) {  // the rest is not authentic
          window.take(number);
          taken.insert(number);
          newest = std::max(newest, number);
        }
        REQUIRE(window.newest() == newest);
      }
    }
  }
}

TEST_CASE("the window's edges") {
  using Verdict = ReplayWindow::Verdict;
  ReplayWindow window;
  CHECK(window.look(1) == Verdict::kNew);
  constexpr std::uint64_t kAll = ReplayWindow::kNumbers;
  window.take(kAll);
  CHECK(window.look(1) == Verdict::kNew);
  window.take(1);
  CHECK(window.look(1) == Verdict::kSeen);
  window.take(kAll + 1);
  CHECK(window.look(1) == Verdict::kOld);
  CHECK(window.look(2) == Verdict::kNew);
  CHECK(window.look(kAll) == Verdict::kSeen);
  // A jump of any length forgets all before it, and nothing of it looks seen.
  window.take(std::uint64_t{1} << 62);
  CHECK(window.look(kAll + 1) == Verdict::kOld);
  for (std::uint64_t back = 1; back < kAll; ++back) {
    REQUIRE(window.look((std::uint64_t{1} << 62) - back) == Verdict::kNew);
  }
}

}  // namespace gradwire::security
