// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/flatten.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace gradwire::metrics {

using nlohmann::json;

namespace {

FlatValue at(const FlatDict& dict, const std::string& name) {
  for (const auto& [key, value] : dict) {
    if (key == name) return value;
  }
  return std::string("there is no ") + name;
}

status::DaemonStatus two_lanes() {
  status::DaemonStatus status;
  status.daemon.version = "0.1.0";
  status.daemon.pid = 7;
  status.daemon.uptime_s = 1.5;
  status.daemon.datapath = {"a", "b"};
  status::Group& group = status.groups.emplace_back();
  group.group_id = "00ff";
  group.rank = 1;
  group.shards.resize(1);
  status::Port& port = status.ports.emplace_back();
  port.device = "net_memif0";
  port.counters.rx_packets = 5;
  status.lanes.resize(2);
  status.lanes[0].counters.rounds = 9;
  status.lanes[0].counters.drops = {{"too-short", 2}};
  status.lanes[0].transport.retransmissions = 3;
  status.lanes[1].lane = 1;
  return status;
}
const status::DaemonStatus kTwoLanes = two_lanes();

}  // namespace

TEST_CASE("an object becomes names, texts and whole numbers") {
  const FlatDict dict = flatten(kTwoLanes.daemon);
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
  const FlatDict lane = answer_lanes(kTwoLanes, "0").dict;
  CHECK(at(lane, "isolated") == FlatValue("false"));
  for (const auto& [name, value] : lane) CHECK_FALSE(name.starts_with("counters"));
  const FlatDict counters = answer_counters(kTwoLanes, "0").dict;
  CHECK(at(counters, "packets_drops_too_short") == FlatValue(std::uint64_t{2}));
  CHECK(at(counters, "transport_retransmissions") == FlatValue(std::uint64_t{3}));
  CHECK_FALSE(answer_counters(kTwoLanes, "two").valid);
}

TEST_CASE("a daemon with nothing has nothing to list") {
  const status::DaemonStatus status;
  CHECK(answer_groups(status, "").list.empty());
  CHECK(answer_counters(status, "").list.empty());
  CHECK(answer_status(status).valid);
}

}  // namespace gradwire::metrics
