// SPDX-License-Identifier: BSD-3-Clause
#include "transport/rtt.h"

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::transport;

TEST_CASE("before a sample the estimate is the initial RTT") {
  const RttEstimator rtt(8'000);
  CHECK_FALSE(rtt.has_sample());
  CHECK(rtt.smoothed_ns() == 8'000);
  CHECK(rtt.variance_ns() == 4'000);
}

TEST_CASE("the first sample replaces the initial values, the delay not counted") {
  RttEstimator rtt(8'000);
  rtt.sample(1'000, 400);
  CHECK(rtt.has_sample());
  CHECK(rtt.latest_ns() == 1'000);
  CHECK(rtt.smoothed_ns() == 1'000);
  CHECK(rtt.variance_ns() == 500);
  CHECK(rtt.min_ns() == 1'000);
}

TEST_CASE("later samples are weighed as RFC 9002 section 5.3 says") {
  RttEstimator rtt;
  rtt.sample(8'000, 0);
  rtt.sample(16'000, 800);  // adjusted 15,200
  CHECK(rtt.min_ns() == 8'000);
  CHECK(rtt.latest_ns() == 16'000);
  CHECK(rtt.variance_ns() == (3 * 4'000 + 7'200) / 4);
  CHECK(rtt.smoothed_ns() == (7 * 8'000 + 15'200) / 8);
}

TEST_CASE("a delay that would explain more than the minimum is not believed") {
  RttEstimator rtt;
  rtt.sample(8'000, 0);
  rtt.sample(8'100, 5'000);
  CHECK(rtt.smoothed_ns() == (7 * 8'000 + 8'100) / 8);
}

TEST_CASE("absurd samples leave sane estimates") {
  RttEstimator rtt;
  rtt.sample(kNever, 0);
  CHECK(rtt.smoothed_ns() > 0);
  CHECK(rtt.smoothed_ns() <= 3'600'000'000'000);
  rtt.sample(-5, kNever);
  CHECK(rtt.latest_ns() == 0);
  CHECK(rtt.min_ns() == 0);
  for (int i = 0; i < 1000; ++i) rtt.sample(0, 0);
  CHECK(rtt.smoothed_ns() >= 0);
  CHECK(rtt.smoothed_ns() < 100);
  CHECK(rtt.variance_ns() >= 0);
}
