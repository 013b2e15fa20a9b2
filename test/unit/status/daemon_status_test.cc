// SPDX-License-Identifier: BSD-3-Clause
// A member that a struct has and its list of fields lacks does not compile. What can still go wrong
// is here: a name that changed, since scripts of others read the JSON by its names, and a member
// that is written and not read back.
#include "status/daemon_status.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace gradwire::status {
namespace {

using nlohmann::json;

/// Gives each value below `value` another one than its default; none of them is there twice.
void fill(json& value, int& last) {
  if (value.is_structured()) {
    for (auto& [name, inner] : value.items()) fill(inner, last);
  } else if (value.is_boolean()) {
    value = true;
  } else if (value.is_number_float()) {
    value = ++last + 0.5;
  } else if (value.is_number()) {
    value = ++last;
  } else {
    value = fmt::format("text {}", ++last);
  }
}

/// One of everything, every value another one than its default. What may be none, and what a list
/// or a map has, is put there by hand; the values are not, so that a new member needs no line here.
DaemonStatus one_of_everything() {
  DaemonStatus status;
  status.daemon.addresses.resize(1);
  status.daemon.datapath = status.daemon.warnings = status.daemon.keys = {""};
  status.daemon.users.resize(1);
  Transport transport;
  transport.drops = {{"short", 0}};
  Lane& lane = status.lanes.emplace_back();
  lane.nice = 0;
  lane.involuntary_switches = 0;
  lane.ports.resize(1);
  lane.counters.ops = {{"broadcast", 0}};
  lane.counters.drops = {{"short", 0}};
  lane.op_latency = OpLatency{0, {0}, {0}};
  lane.mempools.resize(1);
  lane.transport = transport;
  status.reduce.resize(1);
  status.faults.resize(1);
  Group& group = status.groups.emplace_back();
  group.aborted = "";
  group.waits_for = {""};
  group.table_digest = "";
  group.members.resize(1);
  group.late_ranks.resize(1);
  Neighbor neighbor;
  neighbor.incarnation = "";
  neighbor.paths.resize(1);
  neighbor.paths[0].remote_mac = "";
  group.downstream = group.upstream = neighbor;
  group.shards.resize(1);
  group.shards[0].counters = transport;
  Op& op = status.ops.emplace_back();
  op.posted_s = op.first_chunk_s = op.since_s = 0;
  status.ports.resize(1);
  status.ports[0].duplicate_mac = "";
  status.clients.resize(1);
  status.clients[0].memories.resize(1);
  json filled = status;
  int last = 0;
  fill(filled, last);
  return filled.get<DaemonStatus>();
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
                           "groups.late_ranks.waited_s",
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
  const std::uint64_t rounds = in["lanes"][0]["counters"]["rounds"];
  const DaemonStatus status = in;
  CHECK(status.lanes.at(0).counters.stuck == 0);
  CHECK(status.lanes.at(0).counters.rounds == rounds);
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
