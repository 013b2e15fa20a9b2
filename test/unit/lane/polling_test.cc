// SPDX-License-Identifier: BSD-3-Clause
#include "lane/polling.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::lane;

namespace {

/// What a lane did in a stretch of virtual time in which nothing came.
struct Idle {
  TimeNs spun_ns = 0;
  TimeNs slept_ns = 0;
  TimeNs longest_ns = 0;
  int wakes = 0;
};

constexpr TimeNs kRoundNs = 200;
/// A sleep's own cost of CPU time: two system calls, a timer, a round.
constexpr TimeNs kWakeNs = 15'000;

/// Rounds without work from `now` on, until `until`, sleeping as told.
Idle idle_until(Polling& polling, TimeNs& now, TimeNs until, bool expecting) {
  Idle idle;
  while (now < until) {
    const IdleStep step = polling.after_round(now, false, false, expecting, false);
    if (step.action == IdleAction::kPause) idle.spun_ns += kRoundNs;
    now += kRoundNs;
    if (step.action != IdleAction::kSleep) continue;
    now += step.sleep_ns + kWakeNs;
    idle.slept_ns += step.sleep_ns;
    idle.longest_ns = std::max(idle.longest_ns, step.sleep_ns);
    ++idle.wakes;
  }
  return idle;
}

}  // namespace

TEST_CASE("busy polling never gives the core away") {
  PollingConfig config;
  config.mode = PollingMode::kBusy;
  Polling polling(config);
  for (TimeNs now = 0; now < 10'000'000'000; now += 100'000'000) {
    const IdleStep step = polling.after_round(now, false, false, false, true);
    CHECK((step.action == IdleAction::kPause || step.action == IdleAction::kNone));
  }
}

TEST_CASE("while packets flow it spins for its budget, then sleeps as shortly as a timer can") {
  const PollingConfig config;
  Polling polling(config);
  TimeNs now = 1'000'000;
  CHECK(polling.after_round(now, true, true, true, false).action == IdleAction::kNone);
  // A round that worked may take longer than the budget: what counts is from its end on.
  now += 10 * config.spin_ns;
  const TimeNs first_idle = now;
  CHECK(polling.after_round(now, false, false, true, false).action == IdleAction::kPause);
  now = first_idle + config.spin_ns - 1;
  CHECK(polling.after_round(now, false, false, true, false).action == IdleAction::kPause);
  // Work gives the whole budget again.
  CHECK(polling.after_round(now, true, true, true, false).action == IdleAction::kNone);
  const Idle spun = idle_until(polling, now, now + config.spin_ns, true);
  CHECK(spun.wakes == 0);
  CHECK(spun.spun_ns == config.spin_ns);
  const IdleStep step = polling.after_round(now, false, false, true, false);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == config.spin_ns / config.expecting_divisor);
  now += 1'000'000;
  CHECK(polling.after_round(now, true, true, true, false).action == IdleAction::kNone);
  CHECK(polling.after_round(now, false, false, true, false).action == IdleAction::kPause);
}

TEST_CASE("the first sleep is the least that a timer can, if nothing was spun before") {
  PollingConfig config;
  config.spin_ns = 0;
  Polling polling(config);
  const IdleStep step = polling.after_round(0, false, false, true, false);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == config.first_sleep_ns);
}

TEST_CASE("what only a client can end is never spun for, and slept for without short timers") {
  const PollingConfig config;
  Polling polling(config);
  TimeNs now = 0;
  CHECK(polling.after_round(now, true, true, false, false).action == IdleAction::kNone);
  const IdleStep step = polling.after_round(now, false, false, false, false);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == config.max_sleep_ns);
  const Idle idle = idle_until(polling, now, now + 1'000'000'000, false);
  CHECK(idle.spun_ns == 0);
  CHECK(idle.longest_ns == config.max_sleep_ns);
}

TEST_CASE("a packet waits for no more than an eighth of the pause before it, at most 2 ms") {
  const PollingConfig config;
  for (const TimeNs pause : {30'000, 100'000, 1'000'000, 5'000'000, 100'000'000}) {
    Polling polling(config);
    TimeNs now = 0;
    (void)polling.after_round(now, true, true, true, false);
    const Idle idle = idle_until(polling, now, pause, true);
    CHECK(idle.longest_ns <= std::max(config.first_sleep_ns, pause / 8));
    CHECK(idle.longest_ns <= config.max_sleep_ns);
  }
}

TEST_CASE("a ping is answered at once and wakes nobody for longer") {
  const PollingConfig config;
  Polling polling(config);
  TimeNs now = 0;
  (void)polling.after_round(now, true, true, true, false);
  idle_until(polling, now, 100'000'000, true);
  CHECK(polling.after_round(now, true, false, true, false).action == IdleAction::kNone);
  CHECK(polling.after_round(now, false, false, true, false).sleep_ns == config.max_sleep_ns);
  CHECK(polling.after_round(now, true, true, true, false).action == IdleAction::kNone);
  CHECK(polling.after_round(now, false, false, true, false).action == IdleAction::kPause);
}

TEST_CASE("a rank that is 1 s late costs less than 2 % of a core, pings included") {
  Polling polling(PollingConfig{});
  TimeNs now = 0;
  Idle all;
  (void)polling.after_round(now, true, true, true, false);
  // Each of two neighbors that have nothing to send pings each 50 ms, and is answered.
  while (now < 1'000'000'000) {
    (void)polling.after_round(now, true, false, true, false);
    const Idle idle = idle_until(polling, now, now + 16'000'000, true);
    all.spun_ns += idle.spun_ns;
    all.wakes += idle.wakes;
  }
  CHECK(all.spun_ns + all.wakes * (kWakeNs + kRoundNs) < 20'000'000);
}

TEST_CASE("where a packet ends a sleep, it sleeps long at once") {
  Polling polling(PollingConfig{});
  (void)polling.after_round(0, true, true, true, true);
  CHECK(polling.after_round(1'000, false, false, true, true).action == IdleAction::kPause);
  const IdleStep step = polling.after_round(600'000, false, false, true, true);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == PollingConfig{}.max_sleep_ns);
}

TEST_CASE("no sleep passes a deadline, and one that has passed makes nobody spin") {
  const PollingConfig config;
  const Polling polling(config);
  CHECK(polling.bound(50'000, 0, kNever) == 50'000);
  CHECK(polling.bound(50'000, 500, 30'500) == 30'000);
  CHECK(polling.bound(50'000, 500, 501) == config.first_sleep_ns);
  CHECK(polling.bound(50'000, 500, 500) == config.first_sleep_ns);
  CHECK(polling.bound(50'000, 500, 400) == config.first_sleep_ns);
}

TEST_CASE("it knows for how long nothing came but pings") {
  Polling polling(PollingConfig{.mode = PollingMode::kAdaptive});
  CHECK(polling.idle_ns(5'000) == 0);
  (void)polling.after_round(1'000, true, true, true, false);
  (void)polling.after_round(2'000, false, false, true, false);
  (void)polling.after_round(3'000, true, false, true, false);
  CHECK(polling.idle_ns(5'000) == 3'000);
  (void)polling.after_round(6'000, true, true, true, false);
  CHECK(polling.idle_ns(7'000) == 0);
}

TEST_CASE("polling modes have names") {
  CHECK(parse_polling_mode("busy") == PollingMode::kBusy);
  CHECK(parse_polling_mode("adaptive") == PollingMode::kAdaptive);
  CHECK_FALSE(parse_polling_mode("Busy"));
}

TEST_CASE("while a GPU folds it spins longer, since nothing ends a sleep when it has") {
  const PollingConfig config;
  Polling polling(config);
  (void)polling.after_round(0, true, true, true, true);
  CHECK(polling.after_round(1'000, false, false, true, true, true).action == IdleAction::kPause);
  const TimeNs late = 1'000 + config.folding_spin_ns;
  CHECK(polling.after_round(late - 1, false, false, true, true, true).action == IdleAction::kPause);
  // Then it may hang: the lane sleeps, but not until a packet comes.
  const IdleStep step = polling.after_round(late, false, false, true, true, true);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == config.folding_spin_ns / config.expecting_divisor);
}
