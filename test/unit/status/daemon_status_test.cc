// SPDX-License-Identifier: BSD-3-Clause
// A member that a struct has and its list of fields lacks does not compile. What can still go wrong
// is here: a name that changed, since scripts of others read the JSON by its names, and a member
// that is written and not read back.
#include "status/daemon_status.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace gradwire::status {
namespace {

using nlohmann::json;

/// One of everything, every value another one than its default.
DaemonStatus one_of_everything() {
  DaemonStatus status;
  status.daemon = {
      "1.2",    7,           "running", 1.5, "0a", 2, 8192, 3, 4791, 1, {{1, "10.0.0.1/24"}},
      {"fact"}, {"warning"}, 9};
  Transport transport{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, {{"short", 17}}};
  Lane lane;
  lane.lane = 1;
  lane.lcore = 2;
  lane.polling = "busy";
  lane.nice = -20;
  lane.isolated = true;
  lane.isolation_problems = "none";
  lane.involuntary_switches = 3;
  lane.ports = {{"net0", "net_memif", "up"}};
  lane.mempool_ops = "stack";
  lane.packet_mbufs_free = 4;
  lane.requests_unsent = 5;
  lane.counters = {1,
                   2,
                   3,
                   4,
                   5,
                   6,
                   7,
                   8,
                   9,
                   10,
                   11,
                   12,
                   13,
                   14,
                   15,
                   16,
                   17,
                   18,
                   19,
                   20,
                   21,
                   22,
                   23,
                   {{"broadcast", 25}},
                   {{"short", 24}}};
  OpLatency latency;
  latency.sum_ns = 1;
  latency.bounds_ns = {2};
  latency.counts = {3};
  lane.op_latency = latency;
  lane.mempools = {{"packet", 1, 2}};
  lane.transport = transport;
  status.lanes = {lane};
  status.reduce = {{"cpu", "avx2", 1, 2, 3}};
  status.faults = {{"net0",
                    true,
                    "drop 0.5",
                    1,
                    0.5,
                    0.25,
                    0.125,
                    2,
                    0.5,
                    0.25,
                    3,
                    {1, 2, 3, 4, 5, 6, 7, 8, 9}}};
  Shard shard{1,   "formed", 2,   3,   4,  5.5, 6.5, 7,    8,    9,  10,    11,     12,       13,
              1.5, 2.5,      3.5, 4.5, 14, 15,  16,  true, true, 17, "cpu", "avx2", transport};
  Neighbour neighbour{1, "0b", {{1, "10.0.0.1", "10.0.0.2", "02:00:00:00:00:02"}}};
  status.groups = {{"ff",
                    1,
                    2,
                    "formed",
                    3.5,
                    "why",
                    {"whom"},
                    4,
                    5,
                    6,
                    7,
                    8,
                    "0c",
                    9,
                    {{1, 2, 3, "joined"}},
                    neighbour,
                    neighbour,
                    10,
                    {shard}}};
  status.ops = {{"ff", 1, 2, 3, 4, 5, "reduce", 6, 7.5, 8.5, 9, "upstream", 10, 11.5, "text"}};
  status.ports = {{"net0",
                   "net_memif",
                   "up",
                   true,
                   "02:00:00:00:00:01",
                   "10.0.0.1/24",
                   1500,
                   1,
                   2,
                   true,
                   true,
                   true,
                   3,
                   {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}};
  status.clients = {{1, 2, 3, 4.5, "open", 5, {{1, 2, true, 3, 4, "live"}}}};
  return status;
}

/// Names with dots, arrays as their elements.
void names_of(const json& value, const std::string& path, std::set<std::string>& out) {
  if (value.is_array()) {
    for (const json& element : value) names_of(element, path, out);
  } else if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      names_of(inner, path.empty() ? name : path + "." + name, out);
    }
  } else {
    out.insert(path);
  }
}

}  // namespace

TEST_CASE("every member is in the JSON, and comes back from it") {
  const DaemonStatus status = one_of_everything();
  const json written = status;
  CHECK(json(written.get<DaemonStatus>()) == written);
  // That shows something only if no member above has its default.
  const json flat = written.flatten();
  for (const auto& [name, value] : flat.items()) {
    INFO(name << " has its default in one_of_everything()");
    CHECK_FALSE((value == 0 || value == -1 || value == false || value == "" || value.is_null()));
  }
  CHECK(missing_in(written, status).empty());
}

TEST_CASE("what is none is null, or is not there") {
  Lane lane;
  CHECK_FALSE(json(lane).contains("op_latency"));
  CHECK_FALSE(json(lane).contains("involuntary_switches"));
  Group group;
  for (const char* name : {"aborted", "table_digest", "downstream", "upstream"}) {
    CHECK(json(group).at(name).is_null());
  }
  CHECK(json(Path{}).at("remote_mac").is_null());
  CHECK(json(Op{}).at("since_s").is_null());
  CHECK_FALSE(json(lane).get<Lane>().op_latency);
  CHECK_FALSE(json(group).get<Group>().downstream);
}

TEST_CASE("names of the JSON are for ever: scripts read them") {
  std::set<std::string> names;
  names_of(json(one_of_everything()), "", names);
  for (const char* name : {"daemon.version",
                           "daemon.state",
                           "daemon.pid",
                           "lanes.counters.rx_packets",
                           "lanes.counters.drops.short",
                           "lanes.op_latency.counts",
                           "lanes.transport.retransmissions",
                           "lanes.mempools.free",
                           "groups.group_id",
                           "groups.aborted",
                           "groups.waits_for",
                           "groups.handle",
                           "groups.members.state",
                           "groups.shards.done_op_seq",
                           "groups.shards.counters.retransmissions",
                           "groups.downstream.paths.remote_ip",
                           "ops.waits_for_rank",
                           "ops.since_s",
                           "ports.counters.rx_missed",
                           "ports.up",
                           "clients.memories.bytes",
                           "reduce.chunks_reduced",
                           "faults.counters.dropped"}) {
    INFO(name);
    CHECK(names.contains(name));
  }
}

TEST_CASE("another release's JSON is read as far as it goes, and what it lacks has a name") {
  json in = one_of_everything();
  in["lanes"][0]["counters"].erase("stuck");
  in["groups"][0].erase("waits_for");
  in["groups"][0]["rank"] = "one";
  in["daemon"]["colour"] = "blue";
  const DaemonStatus status = in;
  CHECK(status.lanes.at(0).counters.stuck == 0);
  CHECK(status.lanes.at(0).counters.rounds == 1);
  CHECK(status.groups.at(0).rank == 0);
  CHECK(missing_in(in, status) ==
        std::vector<std::string>{"groups.waits_for", "lanes.counters.stuck"});
  for (const char* text : {"null", "[]", "{}", "7", R"({"lanes":[3],"groups":3,"daemon":[]})"}) {
    INFO(text);
    const json other = json::parse(text);
    DaemonStatus read;
    CHECK_NOTHROW(read = other);
    CHECK(read.groups.empty());
    CHECK_FALSE(missing_in(other, read).empty());
  }
}

}  // namespace gradwire::status
