// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/scenario.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "sim/seeds/sizes.h"

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
      CHECK(fault.a < scenario->world.hosts);
    }
    one_sided += scenario->cut_after_first_done ? 1 : 0;
  }
  CHECK(ranks.size() == 15);
  CHECK(*ranks.begin() == 2);
  CHECK(*ranks.rbegin() == 16);
  CHECK(kinds.size() == 9);
  CHECK(one_sided > 50);
}

TEST_CASE("in profile pairs two ranks have transfers alone, by one path and by several") {
  int several = 0;
  int beyond_silence = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const auto s = make_scenario(seed, "pairs", 7);
    REQUIRE(s->nranks == 2);
    CHECK(s->group.shard.transfers.alone);
    CHECK(s->group.folding_ranks == 0);
    CHECK(s->ops.empty());
    CHECK_FALSE(s->transfers.transfers.empty());
    several += s->world.rails > 1 || s->world.spines > 1 ? 1 : 0;
    const TimeNs silence = s->group.shard.timeouts.silence_ns;
    beyond_silence += s->transfers.late > 0 && s->transfers.late_ns > silence ? 1 : 0;
  }
  CHECK(several > 100);
  CHECK(beyond_silence > 30);
}

TEST_CASE("in every profile ranks post to different depths, and ops may be empty") {
  for (const Profile& profile : profiles()) {
    INFO(profile.name);
    int uneven = 0;
    int one_waits = 0;
    int empty = 0;
    int series = 0;
    int one_slow = 0;
    int one_way = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      const auto s = make_scenario(seed, profile.name, 0);
      REQUIRE(s->ops_ahead.size() == s->nranks);
      const auto [least, most] = std::minmax_element(s->ops_ahead.begin(), s->ops_ahead.end());
      uneven += *least != *most ? 1 : 0;
      one_waits += *least == 1 && *most >= s->ops.size() ? 1 : 0;
      empty += std::any_of(s->ops.begin(), s->ops.end(),
                           [](const PlannedOp& op) { return op.plan.count == 0; })
                   ? 1
                   : 0;
      series += s->ops.size() > collective::ShardConfig{}.max_active_ops * 2 ? 1 : 0;
      one_slow += std::count_if(s->hosts.begin(), s->hosts.end(),
                                [](const HostProfile& h) { return h.slow_backend > 0; }) == 1;
      one_way +=
          std::any_of(s->faults.begin(), s->faults.end(),
                      [&](const Fault& f) {
                        // Of several rails one may be dead for longer.
                        if (f.kind == FaultKind::kCutRail) return true;
                        return f.kind == FaultKind::kCutEdge && f.duration_ns <= s->harmless_ns();
                      })
              ? 1
              : 0;
    }
    const std::string name = profile.name;
    CHECK(uneven > 100);
    CHECK(one_waits > 30);
    CHECK((empty > 50) != (name == "pairs"));  // which has no ops
    CHECK((series > 5) != (name == "pairs"));
    const bool quiet = name == "clean" || name == "death";
    // Backends that are late leave a group to the ring.
    CHECK((one_slow > 15) != (quiet || name == "crowd" || name == "tiles"));
    CHECK((one_way > 40) != quiet);
  }
}

TEST_CASE("sizes go from the smallest to what the configuration allows, within a seed's memory") {
  collective::ShardConfig most;
  std::uint8_t lanes = 0;
  std::uint16_t members = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    const auto s = make_scenario(seed, "mixed", 0);
    const collective::ShardConfig& shard = s->group.shard;
    most.payload_bytes = std::max(most.payload_bytes, shard.payload_bytes);
    most.window_packets = std::max(most.window_packets, shard.window_packets);
    most.transit_packets = std::max(most.transit_packets, shard.transit_packets);
    most.eager_packets = std::max(most.eager_packets, shard.eager_packets);
    most.max_active_ops = std::max(most.max_active_ops, shard.max_active_ops);
    lanes = std::max(lanes, s->group.lanes);
    members = std::max(members, s->group.members);
    // What a scenario of small sizes takes with 16 ranks may be more, and was always so.
    const bool small = shard.window_packets <= 64 && shard.payload_bytes <= 256;
    CHECK((small || pool_bytes(*s) <= 2 * kPoolBytesMax));
  }
  CHECK(most.payload_bytes > 9000);
  CHECK(most.window_packets > 2000);
  CHECK(most.transit_packets > 2000);
  CHECK(most.eager_packets > 900);
  CHECK(most.max_active_ops == 256);
  CHECK(lanes == kMaxLanes);
  CHECK(members > kMaxMembers / 2);
}

TEST_CASE("ranks can be told, and nonsense is refused with its value") {
  CHECK(make_scenario(1, "mixed", 5)->nranks == 5);
  CHECK(make_scenario(1, "nosuch", 5).error().message.find("'nosuch'") != std::string::npos);
  CHECK(make_scenario(1, "mixed", 1).error().message.find("1 ranks") != std::string::npos);
}
