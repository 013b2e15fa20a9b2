// SPDX-License-Identifier: BSD-3-Clause
#include "base/longest_rounds.h"

#include <catch2/catch.hpp>

namespace gradwire {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

TEST_CASE("the longest round is remembered for a minute") {
  LongestRounds rounds;
  CHECK(rounds.longest(0).ns == 0);
  rounds.record(0, 500, 7);
  rounds.record(kSecond, 300, 90);
  CHECK(rounds.longest(kSecond).ns == 500);
  CHECK(rounds.longest(kSecond).steps == 90);
  rounds.record(30 * kSecond, 400, 8);
  CHECK(rounds.longest(60 * kSecond).ns == 500);
  CHECK(rounds.longest(62 * kSecond).ns == 400);
  CHECK(rounds.longest(62 * kSecond).steps == 8);
  CHECK(rounds.longest(1000 * kSecond).ns == 0);
  rounds.record(1000 * kSecond, 1, 1);
  CHECK(rounds.longest(1000 * kSecond).steps == 1);
}

}  // namespace
}  // namespace gradwire
