// SPDX-License-Identifier: BSD-3-Clause
// What ops of each shape take where endpoints' packets cost time: the cost model's words, checked.
#include <catch2/catch.hpp>

#include "base/sections.h"
#include "sim/measure/shape_trial.h"

using namespace gradwire;
using namespace gradwire::sim;
using collective::Shape;

namespace {

ShapeTrialOptions options_of(std::uint16_t ranks, Collective collective, std::uint64_t bytes) {
  ShapeTrialOptions o;
  o.ranks = ranks;
  o.collective = collective;
  o.bytes = bytes;
  o.ops = 2;
  o.direct_kib = TransportSection{}.direct_kib;
  o.two_step_kib = TransportSection{}.two_step_kib * ranks;
  o.gathered_kib = TransportSection{}.gathered_kib;
  return o;
}

double us_of(const ShapeTrialOptions& o, Shape shape) {
  const ShapeTrialResult r = run_shape_trial(o);
  INFO(name_of(o.collective) << " of " << o.bytes << " bytes, " << o.ranks << " ranks");
  REQUIRE(r.failure == "");
  CHECK(r.shape == shape);
  CHECK(r.retransmissions == 0);
  CHECK(r.overflow == 0);
  return static_cast<double>(r.p50_ns) / 1e3;
}

}  // namespace

TEST_CASE("an op costs hops, and packets at both ends") {
  ShapeTrialOptions o = options_of(16, Collective::kAllReduce, 64);
  const double direct = us_of(o, Shape::kDirect);
  CHECK(direct > 5 + 15 * 0.25);
  CHECK(direct < 5 + 15 * 0.5 + 2);
  o.costs.packet_ns = 2'000;
  const double slow = us_of(o, Shape::kDirect);
  CHECK(slow > 5 + 15 * 2);
  o = options_of(16, Collective::kAllReduce, 64u << 10);
  const double two_step = us_of(o, Shape::kTwoStep);
  CHECK(two_step > 10 + 2 * 15 * 0.25);
  CHECK(two_step < 10 + 4 * 15 * 0.5 + 4);
  o.direct_kib = o.two_step_kib = o.gathered_kib = 0;
  const double ring = us_of(o, Shape::kRing);
  CHECK(ring > 30 * 5.5);
  CHECK(ring < 1.1 * formulae_for(o).ring_ns / 1e3);
}

TEST_CASE("tiny ops of many ranks take log2(n) hops and little more") {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kBarrier}) {
    const double took = us_of(options_of(128, collective, 64), Shape::kGathered);
    CHECK(took > 7 * 5.5);
    CHECK(took < 7 * 5.5 + 12);
  }
}

TEST_CASE("64 bytes of 64 ranks take one hop, and a tenth of the ring's time at most") {
  const ShapeTrialOptions o = options_of(64, Collective::kAllReduce, 64);
  CHECK(us_of(o, Shape::kDirect) < 0.1 * formulae_for(o).ring_ns / 1e3);
}

TEST_CASE("halves of a two-step op take one hop up to its bound") {
  CHECK(us_of(options_of(16, Collective::kReduceScatter, 256u << 10), Shape::kDirect) < 40);
  CHECK(us_of(options_of(16, Collective::kAllGather, 256u << 10), Shape::kDirect) < 40);
}

TEST_CASE("an all-to-all takes its wire time") {
  ShapeTrialOptions o = options_of(16, Collective::kAllToAll, 4'000'000);
  o.ops = 1;
  const ShapeTrialResult r = run_shape_trial(o);
  REQUIRE(r.failure == "");
  const double wire_ns = 15.0 / 16 * 4e6 * 0.08;
  CHECK(static_cast<double>(r.p50_ns) > wire_ns);
  CHECK(static_cast<double>(r.p50_ns) < 1.15 * wire_ns);
}
