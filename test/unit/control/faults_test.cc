// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "fake_daemon.h"

namespace gradwire::control {

using ipc::InjectRequest;
using ipc::MessageType;
using nlohmann::json;
using test::FakeDaemon;
using test::RequestType;

namespace {

InjectRequest drop_on(const std::string& device, double share) {
  InjectRequest request;
  ipc::copy_text(request.device, device);
  request.faults.drop = share;
  return request;
}

json faults_of(const FakeDaemon& daemon) { return daemon.status_json()["faults"]; }

}  // namespace

TEST_CASE("faults go to every lane, show in the status, and are cleared") {
  FakeDaemon daemon;
  CHECK(faults_of(daemon).empty());
  // Without an open: the operator is no client.
  daemon.send(5, MessageType::kInject, ipc::bytes_of(drop_on("net_b", 0.25)), 0);
  CHECK(daemon.take(5).code() == ErrorCode::kOk);
  CHECK(daemon.lanes.count(RequestType::kSetFaults) == 2);
  daemon.reports.fault_counts[1].frames = 100;
  daemon.reports.fault_counts[1].dropped = 25;
  json faults = faults_of(daemon);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0]["port"] == "net_b");
  CHECK(faults[0]["active"] == true);
  CHECK(faults[0]["drop"] == 0.25);
  CHECK(faults[0]["counters"]["frames"] == 200);  // of two lanes
  CHECK(faults[0]["counters"]["dropped"] == 50);
  CHECK(faults[0]["settings"] == "drop 0.25, seed 1");

  daemon.send(5, MessageType::kInject, ipc::bytes_of(InjectRequest{}), 0);
  const auto cleared = daemon.take(5);
  CHECK(cleared.code() == ErrorCode::kOk);
  CHECK(json::parse(std::string(reinterpret_cast<const char*>(cleared.body.data()),
                                cleared.body.size()))[0]["replaced"] == "drop 0.25, seed 1");
  CHECK(daemon.lanes.count(RequestType::kSetFaults) == 6);
  faults = faults_of(daemon);
  // What was done stays to be seen.
  REQUIRE(faults.size() == 1);
  CHECK(faults[0]["active"] == false);
  CHECK(faults[0]["settings"] == "none");
}

TEST_CASE("faults are for root and the daemon's own user, and have bounds") {
  FakeDaemon daemon;
  const uid_t stranger = ::geteuid() + 500;
  daemon.send(5, MessageType::kInject, ipc::bytes_of(drop_on("", 0.1)), stranger);
  daemon.refused(5, ErrorCode::kPermission, std::to_string(stranger));
  daemon.send(5, MessageType::kInject, ipc::bytes_of(drop_on("", 0.1)), ::geteuid());
  CHECK(daemon.take(5).code() == ErrorCode::kOk);
  CHECK(daemon.lanes.count(RequestType::kSetFaults) == 4);
  daemon.send(5, MessageType::kInject, ipc::bytes_of(drop_on("", 1.1)), 0);
  daemon.refused(5, ErrorCode::kInvalidArgument, "drop = 1.1");
  daemon.send(5, MessageType::kInject, ipc::bytes_of(drop_on("net_c", 0.1)), 0);
  daemon.refused(5, ErrorCode::kNotFound, "net_a, net_b");
  daemon.send(5, MessageType::kInject, ipc::bytes_of(ipc::FreeRequest{}), 0);
  daemon.refused(5, ErrorCode::kInvalidArgument, "8 bytes");
  CHECK(daemon.lanes.count(RequestType::kSetFaults) == 4);
}

TEST_CASE("a group's status has what was sent again, of all its lanes") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  daemon.reports.statuses[0].counters.retransmissions = 3;
  daemon.reports.statuses[1].counters.retransmissions = 4;
  daemon.reports.statuses[1].counters.drops[static_cast<int>(wire::Drop::kPayloadCrc)] = 2;
  const json group = daemon.group_json();
  CHECK(group["retransmissions"] == 7);
  CHECK(group["shards"][1]["counters"]["retransmissions"] == 4);
  CHECK(group["shards"][1]["counters"]["drops"][wire::name_of(wire::Drop::kPayloadCrc)] == 2);
}

}  // namespace gradwire::control
