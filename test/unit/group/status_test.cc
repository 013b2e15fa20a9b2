// SPDX-License-Identifier: BSD-3-Clause
#include "fake_daemon.h"

namespace gradwire::group {

using ipc::MessageType;
using nlohmann::json;
using test::FakeDaemon;
using test::join_body;
using test::RequestType;
using test::table_of;

TEST_CASE("the status of an idle daemon, asked without an open") {
  FakeDaemon daemon;
  daemon.options.daemon.datapath = {"port 0: net_memif, copies"};
  daemon.make();
  daemon.now += 2'500'000'000;
  daemon.send(9, MessageType::kStatus, {});
  const auto sent = daemon.take(9);
  const json status =
      json::parse(std::string(reinterpret_cast<const char*>(sent.body.data()), sent.body.size()));
  CHECK(status["daemon"]["state"] == "running");
  CHECK(status["daemon"]["uptime_s"] == 2.5);
  CHECK(status["daemon"]["incarnation"] == "0000000000000064");
  CHECK(status["daemon"]["datapath"][0] == "port 0: net_memif, copies");
  CHECK(status["daemon"]["addresses"][0]["address"] == "10.0.0.1/24");
  REQUIRE(status["lanes"].size() == 2);
  CHECK(status["lanes"][1]["lcore"] == 2);
  CHECK(status["groups"].empty());
  CHECK(status["clients"].empty());
}

TEST_CASE("what was reduced is told by backend and path, groups that are gone included") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  daemon.lanes.totals = {{"cpu avx2", "cpu", {1, 2, 3}}, {"emu", "mapped", {10, 20, 30}}};
  daemon.lanes.statuses[0].backend_name = "emu";
  daemon.lanes.statuses[0].backend_path = "mapped";
  daemon.lanes.statuses[0].backend = {5, 6, 7};
  // Lane 1 has published nothing yet.
  const json reduce = daemon.manager->status(daemon.now)["reduce"];
  REQUIRE(reduce.size() == 2);
  CHECK(reduce[0]["backend"] == "cpu avx2");
  CHECK(reduce[0]["chunks_reduced"] == 1);
  CHECK(reduce[1]["backend"] == "emu");
  CHECK(reduce[1]["path"] == "mapped");
  CHECK(reduce[1]["chunks_reduced"] == 15);
  CHECK(reduce[1]["chunks_moved"] == 26);
  CHECK(reduce[1]["bytes"] == 37);
  CHECK(daemon.group_json()["shards"][0]["backend"] == "emu");
}

TEST_CASE("clients and their memory are shown") {
  FakeDaemon daemon;
  const std::uint32_t id = daemon.open(4);
  const std::uint32_t memory = daemon.allocate(4, 12288);
  const json client = daemon.manager->status(daemon.now)["clients"].at(0);
  CHECK(client["client"] == id);
  CHECK(client["pid"] == 1004);
  CHECK(client["uid"] == 500);
  CHECK(client["state"] == "open");
  CHECK(client["memory_bytes"] == 12288);
  CHECK(client["memories"][0]["memory"] == memory);
  CHECK(client["memories"][0]["state"] == "live");
  daemon.hang_up(4);
  const json after = daemon.manager->status(daemon.now)["clients"].at(0);
  CHECK(after["state"] == "retired");
  CHECK(after["memories"][0]["state"] == "removing");
}

TEST_CASE("a forming group says whom it waits for") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(3)));
  daemon.now += 1'000'000'000;
  const json group = daemon.group_json();
  CHECK(group["state"] == "forming");
  CHECK(group["state_since_s"] == 1.0);
  CHECK(group["downstream"]["rank"] == 1);
  REQUIRE(group["downstream"]["paths"].size() == 1);
  CHECK(group["downstream"]["paths"][0]["remote_ip"] == "10.0.0.2");
  CHECK(group["downstream"]["paths"][0]["remote_mac"] == "02:00:00:00:00:02");
  CHECK_THAT(group["waits_for"][0].get<std::string>(),
             Catch::Contains("downstream rank 1 (10.0.0.2) has not answered"));
  CHECK(group["members"][0]["state"] == "joined");
  CHECK(group["members"][0]["pid"] == 1001);
}

TEST_CASE("a formed group says which op waits for whom") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  CHECK(daemon.group_json()["waits_for"].empty());
  ring::ShardStatus& status = daemon.lanes.statuses[1];
  status.posted_op_seq = 8;
  status.done_op_seq = 6;
  status.downstream_posted_op_seq = 6;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 7 on lane 1: downstream rank 1, whose clients have posted only op 6");
  status.downstream_posted_op_seq = 8;
  CHECK(daemon.group_json()["waits_for"][0] == "op 7 on lane 1: data from upstream rank 2");
  status.downstream_silence_ns = 200'000'000;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 7 on lane 1: downstream rank 1, silent for 0.200 s");
  status.upstream_silence_ns = 1'500'000'000;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 7 on lane 1: upstream rank 2, silent for 1.500 s");
  const json shard = daemon.group_json()["shards"][1];
  CHECK(shard["posted_op_seq"] == 8);
  CHECK(shard["upstream_silence_s"] == 1.5);
}

TEST_CASE("a closing group says which lanes it waits for, an aborted one why it ended") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1});
  ipc::AbortRequest abort;
  abort.group_handle = handle;
  ipc::copy_text(abort.text, "enough");
  daemon.send(1, MessageType::kAbort, abort);
  CHECK_THAT(daemon.group_json()["aborted"].get<std::string>(), Catch::Contains("enough"));
  CHECK(daemon.group_json()["waits_for"][0] == "member 0 to leave");
  daemon.leave(1, handle);
  CHECK(daemon.group_json()["state"] == "closing");
  CHECK(daemon.group_json()["waits_for"] == json({"lane 0 to close", "lane 1 to close"}));
}

TEST_CASE("text that is no UTF-8 does not break the status") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1});
  ipc::AbortRequest abort;
  abort.group_handle = handle;
  std::memcpy(abort.text, "bad \xff\xfe bytes", 13);
  daemon.send(1, MessageType::kAbort, abort);
  daemon.send(2, MessageType::kStatus, {});
  const auto sent = daemon.take(2);
  CHECK(sent.code() == ErrorCode::kOk);
  CHECK(
      json::accept(std::string(reinterpret_cast<const char*>(sent.body.data()), sent.body.size())));
}

TEST_CASE("a status that no message can hold comes in a file") {
  FakeDaemon daemon;
  daemon.options.daemon.datapath.assign(3000, std::string(100, 'x'));
  daemon.make();
  daemon.send(2, MessageType::kStatus, {});
  auto sent = daemon.take(2);
  CHECK(sent.body.empty());
  REQUIRE(sent.fds.size() == 1);
  ipc::Message message;
  message.header = sent.header;
  message.fds = std::move(sent.fds);
  const auto text = ipc::status_text(message);
  REQUIRE(text);
  CHECK(json::parse(*text)["daemon"]["datapath"].size() == 3000);
}

}  // namespace gradwire::group
