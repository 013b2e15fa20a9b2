// SPDX-License-Identifier: BSD-3-Clause
#include "sim/scenario.h"

#include <catch2/catch.hpp>
#include <set>

using namespace gradwire;
using namespace gradwire::sim;

TEST_CASE("a seed is a scenario, always the same") {
  for (const Profile& profile : profiles()) {
    const auto one = make_scenario(17, profile.name, 0);
    const auto same = make_scenario(17, profile.name, 0);
    const auto other = make_scenario(18, profile.name, 0);
    REQUIRE(one.has_value());
    CHECK(describe(*one) == describe(*same));
    CHECK(describe(*one) != describe(*other));
  }
}

TEST_CASE("mixed seeds have 2 to 16 ranks and every kind of fault") {
  std::set<std::uint16_t> ranks;
  std::set<FaultKind> kinds;
  int one_sided = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const auto scenario = make_scenario(seed, "mixed", 0);
    ranks.insert(scenario->nranks);
    for (const Fault& fault : scenario->faults) {
      kinds.insert(fault.kind);
      CHECK(fault.a < scenario->nranks);
    }
    one_sided += scenario->cut_after_first_done ? 1 : 0;
  }
  CHECK(ranks.size() == 15);
  CHECK(*ranks.begin() == 2);
  CHECK(*ranks.rbegin() == 16);
  CHECK(kinds.size() == 9);
  CHECK(one_sided > 50);
}

TEST_CASE("ranks can be told, and nonsense is refused with its value") {
  CHECK(make_scenario(1, "mixed", 5)->nranks == 5);
  CHECK(make_scenario(1, "nosuch", 5).error().message.find("'nosuch'") != std::string::npos);
  CHECK(make_scenario(1, "mixed", 1).error().message.find("1 ranks") != std::string::npos);
}
