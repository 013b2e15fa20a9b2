// SPDX-License-Identifier: BSD-3-Clause
#include "views.h"

#include <catch2/catch.hpp>

#include "table.h"

namespace gradwire::cli {

using nlohmann::json;

TEST_CASE("columns are as wide as their cells, numbers to the right") {
  Table table({"NAME", "N"});
  CHECK(table.empty());
  table.add({"a", "10"});
  table.add({"longer", "7"});
  CHECK(table.text() ==
        "NAME     N\n"
        "a       10\n"
        "longer   7\n");
}

TEST_CASE("counters have names with dots, and zeros are only counted") {
  status::DaemonStatus status;
  status::Lane& lane = status.lanes.emplace_back();
  lane.lane = 1;
  lane.counters.rounds = 5;
  lane.counters.drops = {{"short", 2}};
  lane.transport.retransmissions = 6;
  status::Port& port = status.ports.emplace_back();
  port.device = "net_memif0";
  port.counters.rx_packets = 3;
  status::Group& group = status.groups.emplace_back();
  group.group_id = "ff";
  group.epoch = 2;
  group.shards.resize(1);
  group.shards[0].lane = 1;
  group.shards[0].counters.probes = 4;
  const json counters = counters_of(status);
  CHECK(counters["lane.1.drops.short"] == 2);
  CHECK(counters["lane.1.transport.retransmissions"] == 6);
  CHECK(counters["port.net_memif0.rx_packets"] == 3);
  CHECK(counters["group.ff.2.lane.1.probes"] == 4);
  CHECK_THAT(counters_text(status), Catch::Contains("lane.1.rounds 5\n"));
  CHECK_THAT(counters_text(status), Catch::Contains(" more counters are zero; --json shows them)"));
  CHECK(counters_text(status).find("sleeps") == std::string::npos);
}

TEST_CASE("ops say whom they wait for") {
  CHECK(ops_text({}) == "no op is in progress\n");
  status::Op op;
  op.text = "op 7 on lane 0: upstream rank 3, silent for 1.200 s";
  op.since_s = 1.25;
  CHECK_THAT(ops_text({op}), Catch::Contains("  upstream rank 3, silent for 1.200 s"));
  CHECK_THAT(ops_text({op}), Catch::Contains("  1.250  "));
  op.collective = "all-reduce";
  op.wire = "int8";
  op.shape = "tiles";
  CHECK_THAT(ops_text({op}), Catch::Contains("  all-reduce as int8  tiles  "));
}

TEST_CASE("top works out rates between two looks") {
  status::DaemonStatus before;
  status::Lane& old = before.lanes.emplace_back();
  old.counters.busy_ns = old.counters.idle_ns = 100;
  old.counters.rx_packets = 10;
  old.counters.bus_bytes = 5;
  status::OpLatency latency;
  latency.bounds_ns = {1000, 2000, 4000};
  latency.counts = {7, 0, 0};
  old.op_latency = latency;
  status::DaemonStatus after;
  status::Lane& lane = after.lanes.emplace_back();
  lane.counters.busy_ns = 400;
  lane.counters.idle_ns = 200;
  lane.counters.rx_packets = 30;
  lane.counters.op_bytes = 64;
  lane.counters.bus_bytes = 1;
  lane.counters.drops = {{"short", 6}};
  lane.transport.retransmissions = 4;
  lane.mempools = {{"packet", 12, 20}};
  latency.counts = {7, 60, 40};
  lane.op_latency = latency;
  const Top top = top_of(before, after, 2.0);
  CHECK(top.lanes.at(0).load == 0.75);
  CHECK(top.lanes[0].rx_packets_per_s == 10.0);
  CHECK(top.lanes[0].retransmissions_per_s == 2.0);
  CHECK(top.lanes[0].drops_per_s == 3.0);
  CHECK(top.lanes[0].mbufs_free == 12u);
  CHECK(top.algbw_bytes_per_s == 32.0);
  CHECK(top.busbw_bytes_per_s == 0.0);  // it went down: another daemon
  CHECK(top.latency_p50_us == 2.0);
  CHECK(top.latency_p99_us == 4.0);
  CHECK_THAT(top_text(top), Catch::Contains("LANE  LOAD %"));
  CHECK(top_of({}, after, 0).algbw_bytes_per_s == 0.0);
  const json shown = top;
  CHECK(shown["lanes"][0]["load"] == 0.75);
  CHECK(shown["daemon"].contains("version"));
}

TEST_CASE("top says which ranks were late, and how much of the time") {
  status::DaemonStatus before;
  status::Group& old = before.groups.emplace_back();
  old.handle = 7;
  old.late_ranks = {{3, 1.0, 0.5}};
  status::DaemonStatus after;
  after.groups.resize(2);
  after.groups[0].handle = 6;
  after.groups[0].group_id = "six";
  after.groups[0].late_ranks = {{1, 9.0, 60.0}};
  after.groups[1].handle = 7;
  after.groups[1].group_id = "seven";
  after.groups[1].late_ranks = {{3, 2.5, 0.1}, {4, 0.5, 0.1}};
  const Top top = top_of(before, after, 2.0);
  REQUIRE(top.late_ranks.size() == 3);
  CHECK(top.late_ranks[0].rank == 1);  // whose group is new here: all of its time is
  CHECK(top.late_ranks[0].late == 1.0);
  CHECK(top.late_ranks[1].rank == 3);
  CHECK(top.late_ranks[1].late == 0.75);
  CHECK(top.late_ranks[1].waited_s == 2.5);
  CHECK(top.late_ranks[2].late == 0.25);
  CHECK_THAT(top_text(top), Catch::Contains("LATE RANK") && Catch::Contains("seven"));
  CHECK(top_text(top_of(after, {}, 2.0)).find("LATE RANK") == std::string::npos);
}

TEST_CASE("a trace opens in Perfetto: ops begin and end, unfinished and aborted ones too") {
  const json trace = json::parse(R"({"pid": 9, "incarnation": "aa", "lanes": 1, "now_ns": 9000,
    "unix_now_ns": 1700000000000009000, "events": [
    {"at_ns": 2000, "lane": 0, "event": "posted", "op_seq": 1, "value": 64, "group_id": "1",
     "epoch": 1, "rank": 0, "nranks": 2},
    {"at_ns": 3000, "lane": 0, "event": "first_chunk", "op_seq": 1, "group_id": "1", "epoch": 1},
    {"at_ns": 4000, "lane": 0, "event": "done", "op_seq": 1, "value": 5, "group_id": "1",
     "epoch": 1, "shape": "two-step"},
    {"at_ns": 5000, "lane": 0, "event": "posted", "op_seq": 2, "value": 8, "group_id": "1",
     "epoch": 1},
    {"at_ns": 6000, "lane": 0, "event": "aborted", "op_seq": 2, "group_id": "1", "epoch": 1,
     "reason": "rank 1 was silent"},
    {"at_ns": 7000, "lane": 0, "event": "posted", "op_seq": 1, "value": 8, "group_id": "2",
     "epoch": 1},
    {"at_ns": 8000, "lane": 0, "event": "posted", "op_seq": 2, "value": 8, "group_id": "1",
     "epoch": 2}]})");
  const json events = perfetto_of(trace)["traceEvents"];
  const auto find = [&](const char* phase, const char* id) {
    for (const json& event : events) {
      if (event["ph"] == phase && event.value("id", "") == id) return event;
    }
    return json();
  };
  CHECK(find("b", "aa.1.1.0.1")["ts"] == 0.0);
  CHECK(find("n", "aa.1.1.0.1")["ts"] == 1.0);
  CHECK(find("e", "aa.1.1.0.1")["ts"] == 2.0);
  CHECK(find("e", "aa.1.1.0.1")["args"]["retransmissions"] == 5.0);
  CHECK(find("e", "aa.1.1.0.2")["ts"] == 4.0);
  CHECK(find("e", "aa.1.1.0.2")["args"]["reason"] == "rank 1 was silent");
  CHECK(find("e", "aa.1.2.0.2")["args"]["end"] == "unfinished");  // in the epoch after the abort
  CHECK(find("e", "aa.2.1.0.1")["args"]["end"] == "unfinished");
  CHECK(find("e", "aa.2.1.0.1")["ts"] == 7.0);
  CHECK(perfetto_of(trace)["otherData"]["begins_at_unix_s"] == "1700000000.000002");
  CHECK_THAT(trace_text(trace), Catch::Contains("rank 1 was silent") &&
                                    Catch::Contains("by two-step, 5 retransmissions"));
}

TEST_CASE("the trace is filtered, and says what it left out") {
  json trace = {{"now_ns", 9000}, {"events", json::array()}};
  for (int i = 0; i < 6; ++i) {
    trace["events"].push_back({{"at_ns", 8000 - i * 1000},
                               {"event", "done"},
                               {"op_seq", i % 3},
                               {"group_id", i % 2 == 0 ? "00aa" : "00bb"}});
  }
  const json last = filter_trace(trace, {"", 0, 2});
  REQUIRE(last["events"].size() == 2);
  CHECK(last["events"][1]["at_ns"] == 8000);  // sorted
  CHECK_THAT(trace_text(last), Catch::Contains("4 older events are not shown: --last 0"));
  CHECK(filter_trace(trace, {"00b", 0, 0})["events"].size() == 3);
  CHECK(filter_trace(trace, {"", 2, 0})["events"].size() == 2);
  CHECK(filter_trace(trace, {"00aa", 2, 9})["events"].size() == 1);
  CHECK(trace_text(filter_trace(trace, {})).find("older") == std::string::npos);
}

TEST_CASE("an aborted group is called so, and an RTT without a sample is none") {
  status::DaemonStatus status;
  status.groups.resize(2);
  for (status::Group& group : status.groups) {
    group.state = "formed";
    group.shards.resize(1);
  }
  status.groups[0].aborted = "rank 1 was silent";
  status.groups[0].shards[0].smoothed_rtt_us = 10'000;
  status.groups[1].shards[0].smoothed_rtt_us = 12;
  status.groups[1].shards[0].latest_rtt_us = 11;
  const std::string text = groups_text(status);
  CHECK(text.find("formed") == text.rfind("formed"));
  CHECK_THAT(text, Catch::Contains(" aborted "));
  CHECK(text.find("10000") == std::string::npos);
  CHECK_THAT(text, Catch::Contains("12.000"));
  CHECK(state_of(status.groups[0]) == "aborted");
  CHECK(rtt_of(status.groups[0].shards[0]) == "-");
}

TEST_CASE("what is no answer of a daemon's does not break a view") {
  for (const char* text : {"null", "[]", "{}", R"({"lanes":[3]})", R"({"events":[null]})"}) {
    const json value = json::parse(text);
    CHECK_NOTHROW(trace_text(value));
    CHECK_NOTHROW(perfetto_of(value));
  }
}

}  // namespace gradwire::cli
