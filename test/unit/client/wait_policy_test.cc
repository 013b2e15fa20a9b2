// SPDX-License-Identifier: BSD-3-Clause
#include "client/wait_policy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>

namespace gradwire::client {
namespace {

using namespace std::chrono_literals;

constexpr WaitPolicy::Duration kSpin = 20us;

void woke(WaitPolicy& policy, WaitPolicy::Duration delay) { policy.woke(1s, 2s, 2s + delay); }

/// How many waits on the lane's core spin until one sleeps at once.
std::uint32_t waits_until_try(WaitPolicy& policy) {
  std::uint32_t waits = 0;
  while (waits < 10'000 && policy.begin(true) == kSpin) ++waits;
  return waits;
}

/// Waits whose wake-ups are all in time, until two in a row sleep at once.
void settle(WaitPolicy& policy) {
  for (std::uint32_t i = 0; i < WaitPolicy::kTries; ++i) {
    waits_until_try(policy);
    woke(policy, 50us);
  }
  REQUIRE(policy.begin(true) == 0us);
  woke(policy, 50us);
  REQUIRE(policy.begin(true) == 0us);
}

TEST_CASE("a wait spins beside a lane of another core") {
  WaitPolicy policy(kSpin);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(policy.begin(false) == kSpin);
    woke(policy, 10us);
  }
}

TEST_CASE("waits on the lane's core sleep at once after some tries that woke in time") {
  WaitPolicy policy(kSpin);
  CHECK(waits_until_try(policy) == WaitPolicy::kTryEachMin - 1);
  woke(policy, 10us);
  CHECK(waits_until_try(policy) == WaitPolicy::kTryEachMin - 1);
  settle(policy);
  CHECK(policy.begin(false) == kSpin);
  CHECK(policy.begin(true) == 0us);
}

TEST_CASE("after a late wake-up waits spin, and tries are rarer each time") {
  WaitPolicy policy(kSpin);
  settle(policy);
  std::uint32_t each = WaitPolicy::kTryEachMin;
  for (int i = 0; i < 12; ++i) {
    woke(policy, 4ms);
    each = std::min(2 * each, WaitPolicy::kTryEachMax);
    CHECK(waits_until_try(policy) == each - 1);
  }
  CHECK(each == WaitPolicy::kTryEachMax);
}

TEST_CASE("wake-ups in time forgive late ones, one after the other") {
  WaitPolicy policy(kSpin);
  for (int i = 0; i < 3; ++i) {
    waits_until_try(policy);
    woke(policy, 4ms);
  }
  settle(policy);
  for (std::uint32_t i = 0; i < WaitPolicy::kForgives; ++i) {
    REQUIRE(policy.begin(true) == 0us);
    woke(policy, 10us);
  }
  woke(policy, 4ms);
  CHECK(waits_until_try(policy) == 8 * WaitPolicy::kTryEachMin - 1);
}

TEST_CASE("sleeps of waits that spun say nothing of sleeping at once") {
  WaitPolicy policy(kSpin);
  for (std::uint32_t i = 0; i < WaitPolicy::kTries; ++i) {
    CHECK(policy.begin(true) == (i + 1 < WaitPolicy::kTryEachMin ? kSpin : 0us));
    if (i + 1 < WaitPolicy::kTryEachMin) woke(policy, 10us);
  }
  woke(policy, 10us);
  CHECK(policy.begin(true) == kSpin);
}

TEST_CASE("a ring from before the sleep says nothing, nor does one by another clock") {
  WaitPolicy policy(kSpin);
  settle(policy);
  policy.woke(5s, 4s, 5s);
  policy.woke(5s, WaitPolicy::Duration(0), 5s);
  CHECK(policy.begin(true) == 0us);
  policy.woke(5s, 6s, 5s);
  policy.woke(5s, WaitPolicy::Duration::min(), 5s);
  CHECK(policy.begin(true) == 0us);
  woke(policy, 4ms);
  CHECK(policy.begin(true) == kSpin);
}

}  // namespace
}  // namespace gradwire::client
