// SPDX-License-Identifier: BSD-3-Clause
#include "command/wake_bell.h"

#include <sys/prctl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "lane/clock.h"
#include "lane/sleeper.h"

using namespace gradwire;
using namespace gradwire::lane;

TEST_CASE("a bell that nobody sleeps on makes no system call") {
  command::WakeBell bell;
  Sleeper sleeper;
  REQUIRE(sleeper.add(bell.fd()));
  bell.ring();
  CHECK_FALSE(sleeper.sleep(1'000'000));
  bell.set_sleeping(true);
  bell.ring();
  CHECK(sleeper.sleep(1'000'000'000));
}

TEST_CASE("of many rings that find it asleep one makes a system call") {
  command::WakeBell bell;
  bell.set_sleeping(true);
  for (int i = 0; i < 1'000; ++i) bell.ring();
  std::uint64_t written = 0;
  REQUIRE(read(bell.fd(), &written, sizeof written) == sizeof written);
  CHECK(written == 1);
  // And again the next time.
  bell.set_sleeping(false);
  bell.ring();
  bell.set_sleeping(true);
  bell.ring();
  bell.ring();
  REQUIRE(read(bell.fd(), &written, sizeof written) == sizeof written);
  CHECK(written == 1);
}

TEST_CASE("each ring ends one sleep, and the eventfd is never read") {
  command::WakeBell bell;
  Sleeper sleeper;
  REQUIRE(sleeper.add(bell.fd()));
  for (int i = 0; i < 3; ++i) {
    bell.force();
    CHECK(sleeper.sleep(1'000'000'000));
    CHECK_FALSE(sleeper.sleep(100'000));
  }
  sleeper.remove(bell.fd());
  bell.force();
  CHECK_FALSE(sleeper.sleep(100'000));
}

TEST_CASE("a ring from another thread ends a sleep early") {
  command::WakeBell bell;
  Sleeper sleeper;
  REQUIRE(sleeper.add(bell.fd()));
  bell.set_sleeping(true);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    bell.ring();
  });
  CHECK(sleeper.sleep(60'000'000'000));
  other.join();
}

TEST_CASE("the clock scales cycles without losing any over years") {
  const TscClock clock(2'400'000'000);
  CHECK(clock.to_ns(0) == 0);
  CHECK(clock.to_ns(2'400'000'000) == Approx(1e9).margin(2));
  const std::uint64_t ten_years = 2'400'000'000ull * 86'400 * 3'650;
  CHECK(static_cast<double>(clock.to_ns(ten_years)) == Approx(3.1536e17).epsilon(1e-8));
  const TscClock real;
  const TimeNs before = real.now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const TimeNs passed = real.now() - before;
  CHECK(passed >= 19'000'000);
  CHECK(passed < 10'000'000'000);
}

TEST_CASE("a caller's timer slack is its own again after precise sleeps") {
  const int before = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
  REQUIRE(before > 0);
  {
    const PreciseSleeps precise;
    CHECK(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL) == std::min(before, 1'000));
  }
  CHECK(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL) == before);
}
