// SPDX-License-Identifier: BSD-3-Clause
#include "base/fault_settings.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace gradwire;
using Catch::Matchers::Contains;

TEST_CASE("faults are bounded, and the message names what is not") {
  CHECK(check({}).has_value());
  CHECK(check({.drop = 1, .duplicate = 1, .reorder = 1, .corrupt = 1, .delay = 1}).has_value());
  CHECK_THAT(check({.drop = 1.5}).error().message, Contains("drop = 1.5"));
  CHECK_THAT(check({.duplicate = -0.1}).error().message, Contains("duplicate"));
  CHECK_THAT(check({.reorder = 2}).error().message, Contains("reorder"));
  CHECK_THAT(check({.corrupt = std::nan("")}).error().message, Contains("corrupt"));
  CHECK_THAT(check({.delay = INFINITY}).error().message, Contains("delay"));
  CHECK_THAT(check({.reorder_frames = 0}).error().message, Contains("reorder_frames = 0"));
  CHECK_THAT(check({.reorder_frames = 65}).error().message, Contains("1 to 64"));
  CHECK_THAT(check({.delay_us = 60'000'001}).error().message, Contains("delay_us"));
}

TEST_CASE("faults say what they do") {
  CHECK(describe(FaultSettings{}) == "none");
  CHECK(describe(FaultSettings{.seed = 7, .drop = 0.01}) == "drop 0.01, seed 7");
  CHECK(describe(FaultSettings{.duplicate = 0.5, .reorder = 0.25, .corrupt = 1e-3, .delay = 1}) ==
        "duplicate 0.5, reorder 0.25 by up to 8 frames, corrupt 0.001, delay 1 by 1000 us, seed 1");
  CHECK_FALSE(FaultSettings{}.active());
  CHECK(FaultSettings{.delay = 0.1}.active());
}
