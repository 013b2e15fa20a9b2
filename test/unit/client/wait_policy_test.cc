// SPDX-License-Identifier: BSD-3-Clause
#include "client/wait_policy.h"

#include <catch2/catch.hpp>

namespace gradwire::client {
namespace {

using namespace std::chrono_literals;

constexpr WaitPolicy::Duration kSpin = 20us;

/// How many waits on the lane's core spin before one sleeps at once.
std::uint32_t spinning_waits(WaitPolicy& policy) {
  std::uint32_t waits = 0;
  while (waits < 10'000 && policy.begin(true) == kSpin) ++waits;
  return waits;
}

TEST_CASE("a wait spins beside a lane of another core, and sleeps at once on the lane's own") {
  WaitPolicy policy(kSpin);
  CHECK(policy.begin(false) == kSpin);
  CHECK(policy.begin(true) == 0us);
  policy.woke(50us);
  CHECK(policy.begin(true) == 0us);
  CHECK(policy.begin(false) == kSpin);
}

TEST_CASE("after a late wake-up waits spin again, for longer each time") {
  WaitPolicy policy(kSpin);
  std::uint32_t expected = WaitPolicy::kFirstHold;
  for (int i = 0; i < 10; ++i) {
    CHECK(policy.begin(true) == 0us);
    policy.woke(4ms);
    CHECK(spinning_waits(policy) == expected);
    expected = std::min(2 * expected, WaitPolicy::kLastHold);
  }
  CHECK(expected == WaitPolicy::kLastHold);
}

TEST_CASE("a wake-up in time forgets the late ones before it") {
  WaitPolicy policy(kSpin);
  policy.woke(4ms);
  CHECK(spinning_waits(policy) == WaitPolicy::kFirstHold);
  policy.woke(4ms);
  CHECK(spinning_waits(policy) == 2 * WaitPolicy::kFirstHold);
  policy.woke(10us);
  policy.woke(4ms);
  CHECK(spinning_waits(policy) == WaitPolicy::kFirstHold);
}

TEST_CASE("sleeps while waits spin say nothing of sleeping at once") {
  WaitPolicy policy(kSpin);
  policy.woke(4ms);
  policy.woke(10us);
  policy.woke(4ms);
  CHECK(spinning_waits(policy) == WaitPolicy::kFirstHold);
}

}  // namespace
}  // namespace gradwire::client
