// SPDX-License-Identifier: BSD-3-Clause
#include "status_text.h"

#include <catch2/catch.hpp>

using gradwire::cli::status_text;
namespace status = gradwire::status;

TEST_CASE("the text says who waits for whom") {
  status::DaemonStatus status;
  status.daemon.version = "0.1.0";
  status.daemon.pid = 12;
  status.daemon.state = "running";
  status.daemon.uptime_s = 3.25;
  status.daemon.incarnation = "0a";
  status.daemon.lanes = 2;
  status.daemon.base_udp_port = 4791;
  status.daemon.max_payload_bytes = 8192;
  status.daemon.addresses = {{0, "10.0.0.1/24"}};
  status.daemon.datapath = {"memif0: memif"};
  status.daemon.warnings = {"lane 0: it floats"};
  status::Group& group = status.groups.emplace_back();
  group.group_id = "00ff";
  group.epoch = 3;
  group.rank = 1;
  group.nranks = 2;
  group.state = "formed";
  group.state_since_s = 1.5;
  group.lanes = 2;
  group.payload_bytes = 8192;
  group.waits_for = {"op 7 on lane 0: upstream rank 0, silent for 0.500 s"};
  group.members = {{0, 2, 4, 99, "joined"}};
  status::Neighbor neighbor;
  neighbor.paths = {{0, "10.0.0.1", "10.0.0.2", std::nullopt},
                    {1, "10.1.0.1", "10.1.0.2", "02:00:00:00:00:02"}};
  group.downstream = neighbor;
  group.idle_networks = 1;
  group.direct_kib = 64;
  group.two_step_kib = 24;
  group.two_step_owners = 1;
  group.gathered_kib = 4;
  group.ranks_of_one_source_port = 1;
  status::Shard& shard = group.shards.emplace_back();
  shard.state = "formed";
  shard.posted_op_seq = 7;
  shard.done_op_seq = 6;
  shard.counters.ops_done = 6;
  shard.counters.ops_direct = 4;
  shard.counters.ops_two_step = 1;
  shard.counters.ops_gathered = 1;
  shard.on_other_path = true;
  shard.downstream_ip = "10.1.0.2";
  shard.downstream_ip_s = 12.5;
  shard.peers_on_other_path = 2;
  shard.downstream_source_port = 49'160;
  shard.upstream_source_port = 4'791;
  shard.counters.source_port_moves = 1;
  shard.counters.peer_source_port_moves = 3;
  status::Client& client = status.clients.emplace_back();
  client.client = 4;
  client.pid = 99;
  client.uid = 1000;
  client.state = "open";
  client.since_s = 2;
  client.memory_bytes = 4'194'304;
  client.memories.resize(2);
  status.lanes.resize(2);
  status.lanes[0].counters.rounds = 5;
  status.lanes[0].counters.drops = {{"short", 2}};
  status.lanes[1].lane = 1;
  status.lanes[1].isolation_problems = "a story that is longer than a line can bear";
  CHECK(
      status_text(status) ==
      "gradwired 0.1.0, pid 12, running, up 3.250 s, incarnation 0a\n"
      "  2 lanes from UDP port 4791, payload up to 8192 bytes, NUMA node -1\n"
      "  port 0: 10.0.0.1/24\n"
      "  1 warning, see the end\n"
      "group 00ff epoch 3: rank 1 of 2, formed for 1.500 s, 2 lanes, payload 8192 bytes\n"
      "  waits for: op 7 on lane 0: upstream rank 0, silent for 0.500 s\n"
      "  member 0: client 4, pid 99, joined\n"
      "  downstream rank 0: 10.0.0.2 at ?, from 10.0.0.1 of port 0\n"
      "  downstream rank 0: 10.1.0.2 at 02:00:00:00:00:02, from 10.1.0.1 of port 1\n"
      "  networks that stay idle because there are too few lanes: 1\n"
      "  ops are direct up to 64 KiB of all ranks' inputs, all-reduces in two steps up to 24 KiB, "
      "summed by 1 of 2 ranks\n"
      "  all-reduces, all-gathers and barriers are gathered up to 4 KiB of all ranks' inputs\n"
      "  to 1 ranks packets keep their source port in any case: it chooses the receive queue "
      "there, or their release does not know of it\n"
      "  lane 0: of 6 ops, 4 were direct, 1 in two steps and 1 gathered\n"
      "  lane 0: its data has gone to 10.1.0.2 for 12.500 s, because its first path is silent\n"
      "  lane 0: to 2 ranks off the ring it does not send by its first path, which was silent\n"
      "  lane 0: sends from UDP port 49160, acknowledges from 4791, after 1 changes of source port "
      "on the ring and 3 off it\n"
      "  lane 0: formed, op 7 posted, 6 done, downstream posted 0, 0 bytes in flight, rtt - us\n"
      "client 4: pid 99, uid 1000, open for 2.000 s, 4194304 bytes in 2 memories\n"
      "lane 0: short 2, rounds 5\n"
      "lane 1: all zero\n"
      "memif0: memif\n"
      "warning: lane 0: it floats\n");
}

TEST_CASE("the text says what is done with packets, and by which keys") {
  status::DaemonStatus status;
  using Catch::Matchers::Contains;
  CHECK_THAT(status_text(status), !Contains("security"));
  status.daemon.security_minimum = "authenticate";
  status.daemon.security = "encrypt";
  status.daemon.keys = {"5f00", "6a11"};
  status::Group& group = status.groups.emplace_back();
  group.security = "encrypt";
  group.key = "6a11";
  CHECK_THAT(status_text(status),
             Contains("\n  security: encrypt, minimum authenticate, key 5f00, second key 6a11\n") &&
                 Contains("\n  security: encrypt by key 6a11\n"));
  group.job_key = "77ff";
  CHECK_THAT(status_text(status), Contains("encrypt by key 6a11 and the job's 77ff\n"));
}

TEST_CASE("faults that are injected stand above all groups") {
  status::DaemonStatus status;
  status.faults.resize(2);
  status.faults[0].port = "net_memif0";
  status.faults[0].active = true;
  status.faults[0].settings = "drop 0.01, seed 1";
  status.faults[0].counters.frames = 200;
  status.faults[0].counters.dropped = 2;
  status.faults[1].port = "net_memif1";
  status.faults[1].settings = "none";
  status.groups.emplace_back().retransmissions = 5;
  const std::string text = status_text(status);
  CHECK_THAT(text, Catch::Contains("FAULTS INJECTED on port net_memif0: drop 0.01, seed 1\n"
                                   "  so far dropped 2, frames 200\n"
                                   "faults, now cleared, on port net_memif1: none\n"));
  CHECK_THAT(text, Catch::Contains("  retransmissions: 5\n"));
  CHECK(text.find("FAULTS") < text.find("group "));
}

TEST_CASE("an abort is told with its reason") {
  status::DaemonStatus status;
  status.groups.emplace_back().aborted = "rank 1 was not heard";
  CHECK_THAT(status_text(status), Catch::Contains("  aborted: rank 1 was not heard\n"));
}

TEST_CASE("a status of nothing is told") {
  CHECK_THAT(status_text({}), Catch::Contains("no group"));
}
