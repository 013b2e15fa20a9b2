// SPDX-License-Identifier: BSD-3-Clause
#include "cpu_time.h"

#include <catch2/catch.hpp>

using namespace gradwire::perf;

TEST_CASE("a machine's CPU time is what its CPUs were neither idle nor taken away") {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  // user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice; the ticks of a busy
  // CPU do not count.
  constexpr const char* kStat =
      "cpu  7 0 9 1000 200 0 3 50 0 0\ncpu0 7 0 9 500 100 0 3 25 0 0\nintr 1\n";
  CHECK(machine_cpu_ns_of(kStat, 10 * kSecondNs, 2, 100) == 7'500'000'000);
  CHECK(machine_cpu_ns_of(kStat, 5 * kSecondNs, 2, 100) == 0);
  CHECK_FALSE(machine_cpu_ns_of("cpu0 7 0 9 1000 200 0 3 50 0 0", kSecondNs, 1, 100).has_value());
  CHECK_FALSE(machine_cpu_ns_of("cpu  7 0 9", kSecondNs, 1, 100).has_value());
  CHECK_FALSE(machine_cpu_ns_of("", kSecondNs, 1, 100).has_value());
}

TEST_CASE("this machine tells its CPU time") {
  const auto before = machine_cpu_ns();
  REQUIRE(before.has_value());
  CHECK(*before > 0);
}
