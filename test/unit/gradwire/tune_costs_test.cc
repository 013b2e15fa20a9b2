// SPDX-License-Identifier: BSD-3-Clause
#include "tune_costs.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/sections.h"

namespace gradwire::cli {
namespace {

using Catch::Matchers::Contains;

/// What an all-reduce of two ranks takes by the model.
CostSample sample(const LinkCosts& costs, std::uint32_t payload_bytes) {
  const double packets = std::ceil(static_cast<double>(kCostBytes) / payload_bytes);
  return {payload_bytes, costs.hop_us + 2 * costs.packet_us,
          costs.hop_us + 2 * costs.packet_us * packets +
              costs.byte_ns * static_cast<double>(kCostBytes) / 1000};
}

/// Those of doc/performance.md: 100 Gbit/s, 5 us from wire to wire, a byte copied and folded.
constexpr LinkCosts kDocumented = {5, 0.25, 0.28};

TEST_CASE("what a hop, a packet and a byte cost follows from two payloads' times") {
  for (const LinkCosts& real : {kDocumented, LinkCosts{1.2, 0.05, 0.9}, LinkCosts{40, 2, 0.1}}) {
    const auto found = link_costs(sample(real, 8896), sample(real, 2176));
    REQUIRE(found.has_value());
    CHECK(found->hop_us == Approx(real.hop_us));
    CHECK(found->packet_us == Approx(real.packet_us));
    CHECK(found->byte_ns == Approx(real.byte_ns));
  }
}

TEST_CASE("times that contradict the model are shown and give no costs") {
  CostSample few = sample(kDocumented, 8896);
  CostSample many = sample(kDocumented, 2176);
  SECTION("more packets were faster") { many.large_us = few.large_us - 1; }
  SECTION("64 KiB were faster than 64 B") { few.large_us = few.small_us / 2; }
  SECTION("as many packets") { many = few; }
  const auto found = link_costs(few, many);
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code == ErrorCode::kUnavailable);
  CHECK_THAT(found.error().message, Contains("64 B in 5.5 us") && Contains("8896 bytes"));
}

TEST_CASE("the documented link has the default thresholds") {
  const ShapeThresholds bounds = thresholds_for(kDocumented, 8192);
  CHECK(bounds.direct_kib == TransportSection{}.direct_kib);
  CHECK(bounds.two_step_kib == TransportSection{}.two_step_kib);
  CHECK(bounds.gathered_kib == TransportSection{}.gathered_kib);
  // Between 70 and 80, as the page says.
  CHECK(bounds.gathered_ranks >= 70);
  CHECK(bounds.gathered_ranks <= 80);
}

TEST_CASE("a longer hop is worth more bytes, a dearer packet fewer ranks; all stay in bounds") {
  const ShapeThresholds usual = thresholds_for(kDocumented, 8192);
  const ShapeThresholds far = thresholds_for({40, 0.25, 0.28}, 8192);
  CHECK(far.direct_kib > usual.direct_kib);
  CHECK(far.two_step_kib > usual.two_step_kib);
  CHECK(far.gathered_ranks > usual.gathered_ranks);
  CHECK(thresholds_for({5, 1, 0.28}, 8192).gathered_ranks < usual.gathered_ranks);
  for (const LinkCosts& odd : {LinkCosts{1e6, 1e-6, 1e-6}, LinkCosts{1e-6, 100, 1000}}) {
    const ShapeThresholds bounds = thresholds_for(odd, 64);
    CHECK(bounds.direct_kib >= 1);
    CHECK(bounds.direct_kib <= 256);
    CHECK(bounds.two_step_kib >= 1);
    CHECK(bounds.two_step_kib <= 64);
    CHECK(bounds.gathered_kib >= 1);
    CHECK(bounds.gathered_kib <= 1024);
    CHECK(bounds.gathered_ranks >= 2);
    CHECK(bounds.gathered_ranks <= 1024);
  }
}

TEST_CASE("the lines for the configuration give the reason of each threshold") {
  CHECK_THAT(
      threshold_lines(kDocumented, 8192),
      Contains("A hop takes 5.00 us on this link, a packet 0.25 us at each end, a byte 0.280 "
               "ns") &&
          Contains("direct_kib = 64\n") && Contains("two_step_kib = 16\n") &&
          Contains("gathered_ranks = 7") && Contains("gathered_kib = 256") &&
          Contains("packet_ns = 250\n") && Contains("byte_ps = 93\n") &&
          Contains("hop_ns = 5000\n"));
  // Within what the keys take.
  CHECK_THAT(threshold_lines({2e6, 1e-6, 1e6}, 8192), Contains("packet_ns = 1\n") &&
                                                          Contains("byte_ps = 65535\n") &&
                                                          Contains("hop_ns = 1000000000\n"));
}

}  // namespace
}  // namespace gradwire::cli
