// SPDX-License-Identifier: BSD-3-Clause
// How soon a death is noticed, and which pauses are none. gradwire-sim --measure failure has the
// figures.
#include "sim/measure/failure_trial.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::sim;

namespace {

constexpr TimeNs kMs = 1'000'000;

FailureTrialOptions options_of(bool own_cores, std::uint64_t seed) {
  FailureTrialOptions options;
  options.seed = seed;
  options.ranks = static_cast<std::uint16_t>(2 + seed % 4);
  options.own_cores = own_cores;
  options.silence_ns = own_cores ? 150 * kMs : 1'500 * kMs;
  return options;
}

}  // namespace

TEST_CASE("every survivor names the dead rank in time") {
  for (const bool own_cores : {true, false}) {
    const TimeNs bound = own_cores ? 200 * kMs : 2'000 * kMs;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      const FailureTrialOptions options = options_of(own_cores, seed);
      const FailureTrialResult result = run_failure_trial(options);
      INFO("own cores " << own_cores << ", seed " << seed);
      CHECK(result.failure == "");
      REQUIRE(result.told_ns.size() == options.ranks - 1u);
      // Not sooner either: part of the limit may have passed since the rank was heard last.
      CHECK(*std::min_element(result.told_ns.begin(), result.told_ns.end()) >
            options.silence_ns * 8 / 10);
      CHECK(*std::max_element(result.told_ns.begin(), result.told_ns.end()) < bound);
    }
  }
}

TEST_CASE("loss makes nobody dead, and nobody's death late") {
  FailureTrialOptions options = options_of(false, 5);
  options.loss = 0.05;
  const FailureTrialResult result = run_failure_trial(options);
  CHECK(result.failure == "");
}

TEST_CASE("a rank that stands still for 100 ms aborts nothing") {
  for (const bool own_cores : {true, false}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      FailureTrialOptions options = options_of(own_cores, seed);
      options.frozen_ns = 100 * kMs;
      INFO("own cores " << own_cores << ", seed " << seed);
      CHECK(run_failure_trial(options).failure == "");
    }
  }
}

TEST_CASE("one that stands still for long is named") {
  FailureTrialOptions options = options_of(true, 3);
  options.frozen_ns = 400 * kMs;
  CHECK_THAT(run_failure_trial(options).failure, Catch::Contains("was silent"));
}
