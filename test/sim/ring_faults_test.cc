// SPDX-License-Identifier: BSD-3-Clause
// Many seeds of mixed faults on the network: every op must end with the reference's bits on every
// rank, nothing may leak. A failure prints its seed; GRADWIRE_SIM_SEED=N runs that one alone.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

void run_seed(std::uint64_t seed) {
  INFO("seed " << seed << "; alone: GRADWIRE_SIM_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto pick = [&](auto... values) {
    const double options[] = {static_cast<double>(values)...};
    return options[random() % std::size(options)];
  };
  RingOptions options;
  options.seed = seed;
  options.nranks = static_cast<std::uint16_t>(1 + random() % 6);
  options.members = static_cast<std::uint16_t>(1 + random() % 2);
  options.lanes = static_cast<std::uint8_t>(1 + random() % 2);
  options.payload_bytes = static_cast<std::uint32_t>(pick(64, 192, 1024));
  options.loss = pick(0, 0.01, 0.1, 0.3);
  options.duplication = pick(0, 0.05, 0.5);
  options.corruption = pick(0, 0.01);
  options.jitter_ns = static_cast<TimeNs>(pick(0, 20'000, 200'000));
  options.driver_holds_ns = static_cast<TimeNs>(pick(0, 0, 1'000'000));
  options.step_ns = static_cast<TimeNs>(pick(2'000, 20'000));
  options.shard.window_packets = static_cast<std::uint32_t>(pick(2, 8, 64));
  options.shard.transit_packets = static_cast<std::uint32_t>(pick(1, 8, 64));
  options.shard.eager_packets = static_cast<std::uint32_t>(pick(1, 8));
  options.shard.max_active_ops = static_cast<std::uint32_t>(pick(2, 8, 64));
  options.shard.timeouts.silence_ns = 20'000'000'000;
  options.shard.timeouts.formation_ns = 60'000'000'000;
  RingHarness ring(options);
  REQUIRE(ring.form(60'000'000'000));

  std::vector<AllReduceCase> cases;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const std::uint64_t count = random() % 4 == 0 ? random() % 20'000 : random() % 500;
    const DataType type = random() % 2 == 0 ? DataType::kFloat32 : DataType::kInt8;
    const RedOp op = random() % 2 == 0 ? RedOp::kSum : RedOp::kMin;
    cases.emplace_back(options.nranks, options.members, count, type, op, random(),
                       random() % 2 == 0);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::uint16_t r = 0; r < options.nranks; ++r) {
      if (random() % 4 == 0) ring.run_for(static_cast<TimeNs>(random() % 2'000'000));
      ring.post(r, cases[i].spec(r, i + 1));
    }
  }
  for (std::uint16_t r = 0; r < options.nranks; ++r) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO("rank " << r << " op " << i + 1);
      REQUIRE(
          ring.run_until([&] { return ring.done(r, i + 1) || ring.aborted(r); }, 300'000'000'000));
      if (ring.aborted(r)) FAIL(describe(ring.shard(r).reason()));
      REQUIRE(cases[i].wrong(r) == "");
    }
  }
  for (std::uint16_t r = 0; r < options.nranks; ++r) ring.leave(r);
  for (std::uint16_t r = 0; r < options.nranks; ++r) {
    REQUIRE(ring.run_until([&] { return ring.closed(r); }, 60'000'000'000));
  }
  REQUIRE(ring.leaked_mbufs() == 0);
}

}  // namespace

TEST_CASE("mixed faults never change a bit, hang an op or leak an mbuf") {
  if (const char* one = std::getenv("GRADWIRE_SIM_SEED")) {
    run_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  const char* wanted = std::getenv("GRADWIRE_SIM_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 200;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_seed(seed);
}
