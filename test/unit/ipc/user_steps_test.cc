// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/user_steps.h"

#include <catch2/catch.hpp>

namespace gradwire::ipc {
namespace {

constexpr TimeNs kStart = 1'000'000'000'000;
constexpr TimeNs kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("a user takes what is saved up, and waits when it took more") {
  UserSteps steps;
  CHECK_FALSE(steps.must_wait(7, kStart));
  CHECK_FALSE(steps.take(7, UserSteps::kSaved, kStart));
  CHECK_FALSE(steps.must_wait(7, kStart));
  CHECK(steps.take(7, 1, kStart));
  CHECK_FALSE(steps.take(7, 1, kStart));  // it waits already
  CHECK(steps.must_wait(7, kStart));
  CHECK(steps.users().at(7).waits == 1);
  CHECK(steps.users().at(7).steps == UserSteps::kSaved + 2);

  const TimeNs again = steps.goes_on_at(7);
  CHECK(again == kStart + (UserSteps::kAgain + 2) * kSecond / UserSteps::kPerSecond);
  CHECK(steps.must_wait(7, again - 1));
  CHECK_FALSE(steps.must_wait(7, again));
  CHECK(steps.goes_on_at(7) == kNever);
}

TEST_CASE("over a long time a user gets its rate and no more") {
  UserSteps steps;
  constexpr std::uint64_t kJoin = 4'104;
  std::uint64_t taken = 0;
  for (TimeNs now = kStart; now < kStart + 60 * kSecond; now += 1'000'000) {
    while (!steps.must_wait(7, now)) {
      steps.take(7, kJoin, now);
      taken += kJoin;
    }
  }
  CHECK(taken <= UserSteps::kSaved + 60 * UserSteps::kPerSecond + kJoin);
  CHECK(taken >= UserSteps::kSaved + 59 * UserSteps::kPerSecond);
}

TEST_CASE("no wait is longer than its bound, whatever was taken") {
  UserSteps steps;
  for (int i = 0; i < 100; ++i) steps.take(7, 100 * UserSteps::kSaved, kStart);
  CHECK(steps.goes_on_at(7) ==
        kStart + (UserSteps::kDebt + UserSteps::kAgain) * kSecond / UserSteps::kPerSecond);
}

TEST_CASE("no user waits for what another took") {
  UserSteps steps;
  CHECK(steps.take(7, 10 * UserSteps::kSaved, kStart));
  CHECK_FALSE(steps.take(8, 100, kStart));
  CHECK_FALSE(steps.must_wait(8, kStart));
  CHECK(steps.goes_on_at(8) == kNever);
}

TEST_CASE("users who have rested are forgotten when there are many") {
  UserSteps steps;
  for (uid_t uid = 1; uid < UserSteps::kUsers; ++uid) steps.take(uid, 1, kStart);
  steps.take(0, 2 * UserSteps::kSaved, kStart);
  CHECK(steps.users().size() == UserSteps::kUsers);
  steps.take(5'000, 1, kStart + kSecond / 10);
  CHECK(steps.users().size() == 2);
  CHECK(steps.must_wait(0, kStart + kSecond / 10));
}

}  // namespace gradwire::ipc
