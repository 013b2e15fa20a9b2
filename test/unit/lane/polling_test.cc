// SPDX-License-Identifier: BSD-3-Clause
#include "lane/polling.h"

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::lane;

namespace {

// Runs idle rounds of 1 us from `now` until `until`, sleeping as told. Returns the time asleep.
TimeNs idle_until(Polling& polling, TimeNs& now, TimeNs until, bool expecting,
                  TimeNs* longest = nullptr) {
  TimeNs slept = 0;
  while (now < until) {
    const IdleStep step = polling.after_round(now, false, expecting, false);
    now += 1'000;
    if (step.action != IdleAction::kSleep) continue;
    now += step.sleep_ns;
    slept += step.sleep_ns;
    if (longest != nullptr && step.sleep_ns > *longest) *longest = step.sleep_ns;
  }
  return slept;
}

}  // namespace

TEST_CASE("busy polling never gives the core away") {
  PollingConfig config;
  config.mode = PollingMode::kBusy;
  Polling polling(config);
  for (TimeNs now = 0; now < 10'000'000'000; now += 100'000'000) {
    const IdleStep step = polling.after_round(now, false, false, true);
    CHECK((step.action == IdleAction::kPause || step.action == IdleAction::kNone));
  }
}

TEST_CASE("adaptive polling pauses, then yields, then sleeps, longer each time") {
  Polling polling(PollingConfig{});
  TimeNs now = 1'000'000;
  CHECK(polling.after_round(now, true, false, false).action == IdleAction::kNone);
  CHECK(polling.after_round(now + 1'000, false, false, false).action == IdleAction::kPause);
  CHECK(polling.after_round(now + 10'000, false, false, false).action == IdleAction::kYield);
  IdleStep step = polling.after_round(now + 60'000, false, false, false);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == 50'000);
  CHECK(polling.after_round(now + 120'000, false, false, false).sleep_ns == 100'000);
  CHECK(polling.after_round(now + 230'000, false, false, false).sleep_ns == 200'000);
  now += 1'000'000'000;
  for (int i = 0; i < 10; ++i) step = polling.after_round(now, false, false, false);
  CHECK(step.sleep_ns == 1'000'000);
  // Work starts it all over.
  CHECK(polling.after_round(now, true, false, false).action == IdleAction::kNone);
  CHECK(polling.after_round(now + 1'000, false, false, false).action == IdleAction::kPause);
}

TEST_CASE("idle, it sleeps nearly all of the time; expecting packets, only shortly") {
  Polling polling(PollingConfig{});
  TimeNs now = 0;
  (void)polling.after_round(now, true, false, false);
  const TimeNs slept = idle_until(polling, now, 1'000'000'000, false);
  CHECK(slept > 995'000'000);

  (void)polling.after_round(now, true, true, false);
  TimeNs longest = 0;
  const TimeNs start = now;
  idle_until(polling, now, start + 400'000, true, &longest);
  CHECK(longest == 0);  // still yielding: an answer is near
  idle_until(polling, now, start + 100'000'000, true, &longest);
  CHECK(longest == 50'000);
}

TEST_CASE("where a packet ends a sleep, it sleeps long at once") {
  Polling polling(PollingConfig{});
  (void)polling.after_round(0, true, false, true);
  const IdleStep step = polling.after_round(600'000, false, true, true);
  CHECK(step.action == IdleAction::kSleep);
  CHECK(step.sleep_ns == 1'000'000);
}

TEST_CASE("no sleep passes a deadline") {
  CHECK(Polling::bound(1'000, 0, kNever) == 1'000);
  CHECK(Polling::bound(1'000, 500, 800) == 300);
  CHECK(Polling::bound(1'000, 500, 500) == 0);
  CHECK(Polling::bound(1'000, 500, 400) == 0);
}

TEST_CASE("polling modes have names") {
  CHECK(parse_polling_mode("busy") == PollingMode::kBusy);
  CHECK(parse_polling_mode("adaptive") == PollingMode::kAdaptive);
  CHECK_FALSE(parse_polling_mode("Busy"));
}

TEST_CASE("after a yield that took a time slice it sleeps instead, for a while") {
  PollingConfig config;
  Polling polling(config);
  TimeNs now = 1'000'000'000;
  (void)polling.after_round(now, true, true, false);
  now += config.pause_ns;
  CHECK(polling.after_round(now, false, true, false).action == IdleAction::kYield);
  polling.yielded(now, config.long_yield_ns - 1);
  CHECK(polling.after_round(now, false, true, false).action == IdleAction::kYield);
  polling.yielded(now, 3'000'000);
  const TimeNs until = now + config.no_yield_ns;
  now += 3'000'000;
  // From the next work on sleeps begin as short as can be, and right after the pause.
  (void)polling.after_round(now, true, true, false);
  CHECK(polling.after_round(now + config.pause_ns - 1, false, true, false).action ==
        IdleAction::kPause);
  now += config.pause_ns;
  const IdleStep first = polling.after_round(now, false, true, false);
  CHECK(first.action == IdleAction::kSleep);
  CHECK(first.sleep_ns == config.contended_sleep_ns);
  const IdleStep second = polling.after_round(now, false, true, false);
  CHECK(second.sleep_ns == 2 * config.contended_sleep_ns);
  CHECK(polling.after_round(now, false, true, false).sleep_ns == config.expecting_sleep_ns);
  // Then it tries again.
  (void)polling.after_round(until, true, true, false);
  CHECK(polling.after_round(until + config.pause_ns, false, true, false).action ==
        IdleAction::kYield);
}
