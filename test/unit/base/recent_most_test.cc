// SPDX-License-Identifier: BSD-3-Clause
#include "base/recent_most.h"

#include <catch2/catch.hpp>

namespace gradwire {

TEST_CASE("the most of the last minute is told, and forgotten after it") {
  constexpr TimeNs kSecond = 1'000'000'000;
  const TimeNs start = 123'456 * kSecond;  // a clock that does not begin at 0
  RecentMost most;
  CHECK(most.read() == 0);
  most.turn(start);
  most.note(70);
  most.note(5);
  CHECK(most.read() == 70);
  for (TimeNs second = 0; second < 60; ++second) {
    most.turn(start + second * kSecond);
    most.note(9);
    CHECK(most.read() == 70);
  }
  most.turn(start + 80 * kSecond);
  CHECK(most.read() == 9);
  most.turn(start + 10'000 * kSecond);
  CHECK(most.read() == 0);
  most.note(3);
  CHECK(most.read() == 3);
}

}  // namespace gradwire
