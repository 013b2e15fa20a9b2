// SPDX-License-Identifier: BSD-3-Clause
#include "base/rate_meter.h"

#include <catch2/catch.hpp>

namespace gradwire {

TEST_CASE("a meter gives its reserve at once, and then one unit each interval") {
  RateMeter meter(10, 3);
  for (int i = 0; i < 3; ++i) CHECK(meter.allow(1'000));
  CHECK_FALSE(meter.allow(1'000));
  CHECK(meter.when(1) == 1'010);
  CHECK_FALSE(meter.allow(1'009));
  CHECK(meter.allow(1'010));
  CHECK_FALSE(meter.allow(1'010));
  CHECK(meter.when(3) == 1'040);
}

TEST_CASE("a long rest saves up no more than the reserve") {
  RateMeter meter(10, 3);
  meter.take(3, 1'000);
  CHECK(meter.has(3, 1'000'000));
  meter.take(4, 1'000'000);
  CHECK(meter.when(0) == 1'000'010);
  CHECK_FALSE(meter.has(0, 1'000'009));
}

TEST_CASE("what was taken and was not there is waited for") {
  RateMeter meter(10, 3);
  meter.take(103, 1'000);
  CHECK(meter.when(0) == 2'000);
  CHECK(meter.when(1) == 2'010);
  CHECK_FALSE(meter.allow(2'009));
  CHECK(meter.allow(2'010));
}

TEST_CASE("a debt has a bound, if one is given") {
  RateMeter meter(10, 3);
  meter.take_with_debt(1'000'000, 5, 1'000);
  CHECK(meter.when(0) == 1'050);
  meter.take_with_debt(1'000'000, 5, 1'000);
  CHECK(meter.when(1) == 1'060);
  CHECK(meter.has(3, 1'080));
}

}  // namespace gradwire
