// SPDX-License-Identifier: BSD-3-Clause
#include "operate/flatten.h"

#include <catch2/catch.hpp>

namespace gradwire::operate {

using nlohmann::json;

namespace {

FlatValue at(const FlatDict& dict, const std::string& name) {
  for (const auto& [key, value] : dict) {
    if (key == name) return value;
  }
  return std::string("there is no ") + name;
}

const json kTwoLanes = json::parse(R"({
  "daemon": {"version": "0.1.0", "pid": 7, "numa_node": -1, "uptime_s": 1.5,
             "datapath": ["a", "b"]},
  "groups": [{"group_id": "00ff", "rank": 1, "aborted": null, "shards": [{"lane": 0}]}],
  "ports": [{"device": "net_memif0", "counters": {"rx-packets": 5}}],
  "lanes": [{"lane": 0, "isolated": false, "counters": {"rounds": 9, "drops": {"short": 2}},
             "transport": {"retransmissions": 3}}, {"lane": 1}]})");

}  // namespace

TEST_CASE("an object becomes names, texts and whole numbers") {
  const FlatDict dict = flatten(kTwoLanes["daemon"]);
  CHECK(at(dict, "version") == FlatValue("0.1.0"));
  CHECK(at(dict, "pid") == FlatValue(std::uint64_t{7}));
  CHECK(at(dict, "numa_node") == FlatValue("-1"));
  CHECK(at(dict, "uptime_s") == FlatValue("1.5"));
  CHECK(at(dict, "datapath") == FlatValue("a; b"));
  CHECK(flatten(json::array()).empty());
}

TEST_CASE("endpoints list what there is, and show one of it by index or name") {
  CHECK(at(answer_status(kTwoLanes).dict, "groups") == FlatValue(std::uint64_t{1}));
  CHECK(answer_groups(kTwoLanes, "").list == std::vector<std::string>{"00ff"});
  CHECK(at(answer_groups(kTwoLanes, "00ff").dict, "rank") == FlatValue(std::uint64_t{1}));
  CHECK(at(answer_groups(kTwoLanes, "0").dict, "aborted") == FlatValue("null"));
  CHECK_FALSE(answer_groups(kTwoLanes, "1").valid);
  CHECK(at(answer_ports(kTwoLanes, "net_memif0").dict, "counters_rx_packets") ==
        FlatValue(std::uint64_t{5}));
  CHECK(answer_lanes(kTwoLanes, "").list == std::vector<std::string>{"0", "1"});
  CHECK(answer_lanes(kTwoLanes, "0").dict.size() == 2);
  const FlatDict counters = answer_counters(kTwoLanes, "0").dict;
  CHECK(at(counters, "packets_drops_short") == FlatValue(std::uint64_t{2}));
  CHECK(at(counters, "transport_retransmissions") == FlatValue(std::uint64_t{3}));
  CHECK_FALSE(answer_counters(kTwoLanes, "two").valid);
}

TEST_CASE("what is no status has nothing to list") {
  for (const char* text : {"null", "[]", "{}", R"({"lanes":[3],"groups":3})"}) {
    const json status = json::parse(text);
    CHECK(answer_groups(status, "").list.empty());
    CHECK(answer_counters(status, "").list.empty());
    CHECK(answer_status(status).valid);
  }
}

}  // namespace gradwire::operate
