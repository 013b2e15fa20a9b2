// SPDX-License-Identifier: BSD-3-Clause
#include "collective/membership/stall_watch.h"

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::collective;

namespace {

constexpr TimeNs kStuckNs = 3'000;

}  // namespace

TEST_CASE("a rank that is alone is stuck when nothing has moved for the limit while it polled") {
  StallWatch watch(0, 1, kStuckNs);
  watch.moved(1);
  watch.count(10'000);  // something moved since the last round: that round does not count
  watch.count(kStuckNs - 1);
  CHECK_FALSE(watch.look(1, true));
  watch.count(1);
  CHECK(watch.look(1, true));
  watch.moved(2);
  watch.count(kStuckNs);
  CHECK_FALSE(watch.look(1, true));
  CHECK_FALSE(watch.asks());
}

TEST_CASE("a rank asks after half of the limit, and five answers a while apart say stuck") {
  StallWatch watch(2, 4, kStuckNs);
  watch.moved(1);
  watch.count(0);
  watch.count(kStuckNs / 2 - 1);
  CHECK_FALSE(watch.look(7, false));
  CHECK_FALSE(watch.asks());
  watch.count(1);
  CHECK_FALSE(watch.look(7, false));
  REQUIRE(watch.asks());
  CHECK(watch.questions().front().op_seq == 7);
  CHECK(watch.questions().front().origin_rank == 2);
  watch.count(kStuckNs);
  int answers = 0;
  const wire::ProgressCheckBody back{7, kStuckNs, 2};
  CHECK_FALSE(watch.on_return(back));
  CHECK_FALSE(watch.on_return(back));  // at once after the first: they waited behind a port
  for (answers = 1; answers < 5; ++answers) {
    watch.count(kStuckNs);
    CHECK(watch.on_return(back) == (answers == 4));
  }
}

TEST_CASE("another rank's question goes on with the shorter time, if the op is posted here") {
  StallWatch watch(0, 4, kStuckNs);
  watch.moved(1);
  watch.count(0);
  watch.count(100);
  watch.hand_on({5, 400, 3}, 4);
  CHECK_FALSE(watch.asks());
  watch.hand_on({5, 400, 3}, 5);
  REQUIRE(watch.asks());
  CHECK(watch.questions().front().stalled_ns == 100);
  CHECK(watch.questions().front().origin_rank == 3);
}

TEST_CASE("questions that find no room are lost") {
  StallWatch watch(0, 2, kStuckNs);
  for (int i = 0; i < 10; ++i) watch.hand_on({1, 1, 1}, 1);
  CHECK(watch.questions().size() == 2);
}
