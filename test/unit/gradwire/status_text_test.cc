// SPDX-License-Identifier: BSD-3-Clause
#include "status_text.h"

#include <catch2/catch.hpp>

using gradwire::cli::status_text;
using nlohmann::json;

TEST_CASE("the text says who waits for whom") {
  const json status = json::parse(R"({
    "daemon": {"version": "0.1.0", "pid": 12, "state": "running", "uptime_s": 3.25, "lanes": 2,
               "addresses": [{"port": 0, "address": "10.0.0.1/24"}], "datapath": ["memif0: memif"],
               "warnings": ["lane 0: it floats"]},
    "groups": [{"group_id": "00ff", "epoch": 3, "rank": 1, "nranks": 2, "state": "formed",
                "state_since_s": 1.5, "lanes": 2, "payload_bytes": 8192, "aborted": null,
                "waits_for": ["op 7 on lane 0: upstream rank 0, silent for 0.500 s"],
                "members": [{"member": 0, "client": 4, "pid": 99, "state": "joined"}],
                "downstream": {"rank": 0, "paths": [
                  {"remote_ip": "10.0.0.2", "remote_mac": null, "port": 0, "local_ip": "10.0.0.1"},
                  {"remote_ip": "10.1.0.2", "remote_mac": "02:00:00:00:00:02", "port": 1,
                   "local_ip": "10.1.0.1"}]}, "idle_networks": 1,
                "shards": [{"lane": 0, "state": "formed", "posted_op_seq": 7, "done_op_seq": 6}]}],
    "clients": [{"client": 4, "pid": 99, "uid": 1000, "state": "open", "since_s": 2.0,
                 "memory_bytes": 4194304, "memories": [{}, {}]}],
    "lanes": [{"lane": 0, "counters": {"rounds": 5, "sleeps": 0, "drops": {"short": 2}}},
              {"lane": 1, "counters": {"rounds": 0}, "isolated": false,
               "problems": "a story that is longer than a line can bear"}]})");
  CHECK(status_text(status) ==
        "gradwired 0.1.0, pid 12, running, up 3.250 s, incarnation ?\n"
        "  2 lanes from UDP port ?, payload up to ? bytes, NUMA node ?\n"
        "  port 0: 10.0.0.1/24\n"
        "  1 warning, at the end\n"
        "group 00ff epoch 3: rank 1 of 2, formed for 1.500 s, 2 lanes, payload 8192 bytes\n"
        "  waits for: op 7 on lane 0: upstream rank 0, silent for 0.500 s\n"
        "  member 0: client 4, pid 99, joined\n"
        "  downstream rank 0: 10.0.0.2 at ?, from 10.0.0.1 of port 0\n"
        "  downstream rank 0: 10.1.0.2 at 02:00:00:00:00:02, from 10.1.0.1 of port 1\n"
        "  idle networks for want of lanes: 1\n"
        "  lane 0: formed, op 7 posted, 6 done, downstream posted ?, ? bytes in flight, rtt ? us\n"
        "client 4: pid 99, uid 1000, open for 2.000 s, 4194304 bytes in 2 memories\n"
        "lane 0: short 2, rounds 5\n"
        "lane 1: all zero\n"
        "memif0: memif\n"
        "warning: lane 0: it floats\n");
}

TEST_CASE("faults that are injected stand above all groups") {
  const json status = json::parse(R"({
    "faults": [{"port": "net_memif0", "active": true, "settings": "drop 0.01, seed 1",
                "counters": {"frames": 200, "dropped": 2, "held": 0}},
               {"port": "net_memif1", "active": false, "settings": "none"}, 7],
    "groups": [{"retransmissions": 5}]})");
  const std::string text = status_text(status);
  CHECK_THAT(text, Catch::Contains("FAULTS INJECTED on port net_memif0: drop 0.01, seed 1\n"
                                   "  so far dropped 2, frames 200\n"
                                   "faults, now cleared, on port net_memif1: none\n"));
  CHECK_THAT(text, Catch::Contains("  retransmissions: 5\n"));
  CHECK(text.find("FAULTS") < text.find("group ?"));
}

TEST_CASE("an abort is told with its reason") {
  const json status = {{"groups", {{{"group_id", "1"}, {"aborted", "rank 1 was not heard"}}}}};
  CHECK_THAT(status_text(status), Catch::Contains("  aborted: rank 1 was not heard\n"));
}

TEST_CASE("what is no status does not break it") {
  for (const char* text : {"null", "[]", "{}", R"({"groups":{}})", R"({"groups":[3]})",
                           R"({"lanes":[null],"clients":["x"]})"}) {
    CHECK_THAT(status_text(json::parse(text)), Catch::StartsWith("gradwired ?"));
  }
  CHECK_THAT(status_text(json::object()), Catch::Contains("no group"));
}
