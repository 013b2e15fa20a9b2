// SPDX-License-Identifier: BSD-3-Clause
// One client's end may abort hundreds of groups, of which each has 64 members to be told: a round
// of the control thread does some of that, and others' requests come in between.
#include <catch2/catch.hpp>
#include <vector>

#include "fake_daemon.h"

using namespace gradwire;
using namespace gradwire::control;
using namespace gradwire::control::test;

namespace {

constexpr std::uint16_t kMembers = 64;
constexpr std::uint64_t kGroups = 36;

Limits roomy() {
  Limits limits;
  limits.clients = limits.clients_per_user = 128;
  limits.groups = limits.groups_per_user = limits.groups_per_client = 48;
  return limits;
}

/// A job of 64 processes on connections 1 to 64, which are all in 36 groups.
struct Job {
  FakeDaemon daemon{roomy()};
  std::vector<ipc::ConnectionId> connections;
  std::vector<std::uint64_t> handles;

  Job() {
    for (ipc::ConnectionId connection = 1; connection <= kMembers; ++connection) {
      daemon.open(connection);
      connections.push_back(connection);
    }
    for (std::uint64_t i = 0; i < kGroups; ++i) {
      handles.push_back(daemon.form(connections, 2, 100 + i));
    }
  }
  std::size_t told() const {
    std::size_t events = 0;
    for (const auto& [connection, sent] : daemon.sink.sent) {
      for (const auto& message : sent) {
        const auto type = static_cast<std::uint16_t>(ipc::MessageType::kGroupAborted);
        events += message.header.type == type ? 1 : 0;
      }
    }
    return events;
  }
};

}  // namespace

TEST_CASE("a client's end tells some members in a round, each of them once in the end") {
  Job job;
  const std::uint64_t steps = job.daemon.manager->steps();
  job.daemon.manager->on_hangup(1, job.daemon.now);
  CHECK(job.told() == GroupEnds::kToldPerRound);
  CHECK(job.daemon.manager->steps() - steps >= 2 * job.told());
  CHECK(job.daemon.manager->steps() - steps <= 2 * GroupEnds::kToldPerRound + 200);
  for (std::size_t before = job.told(); before < kGroups * (kMembers - 1); before = job.told()) {
    job.daemon.poll(1);
    CHECK(job.told() <= before + GroupEnds::kToldPerRound);
    REQUIRE(job.told() > before);
    CHECK(job.daemon.manager->has_more() == (job.told() < kGroups * (kMembers - 1)));
  }
  job.daemon.poll();
  CHECK(job.told() == kGroups * (kMembers - 1));
  for (const ipc::ConnectionId connection : job.connections) {
    if (connection == 1) continue;
    for (const std::uint64_t handle : job.handles) job.daemon.take_abort_event(connection, handle);
  }
}

TEST_CASE("who leaves, or aborts a group, is told before its answer, however many wait for that") {
  Job job;
  const std::uint64_t last = job.handles.back();
  job.daemon.leave(62, last);
  job.daemon.manager->on_hangup(1, job.daemon.now);
  REQUIRE(job.daemon.waiting(64) < kGroups);
  ipc::Message message;
  message.header.request_id = 7;
  const auto ask = [&](ipc::ConnectionId connection, ipc::MessageType type, auto body) {
    message.header.type = static_cast<std::uint16_t>(type);
    const auto bytes = ipc::bytes_of(body);
    message.body.assign(bytes.begin(), bytes.end());
    job.daemon.manager->on_message(connection, {static_cast<pid_t>(1000 + connection), 500},
                                   message, job.daemon.now);
  };
  ipc::AbortRequest abort;
  abort.group_handle = last;
  ask(64, ipc::MessageType::kAbort, abort);
  ask(63, ipc::MessageType::kLeave, ipc::GroupRequest{last});
  job.daemon.poll(1);
  job.daemon.lanes.finish(command::RequestType::kLeaveGroup);
  job.daemon.poll(100);
  for (const ipc::ConnectionId connection : {64, 63, 62}) {
    bool told = false;
    std::size_t answers = 0;
    for (const auto& sent : job.daemon.sink.sent[connection]) {
      if (sent.header.type == static_cast<std::uint16_t>(ipc::MessageType::kGroupAborted)) {
        const auto event = ipc::body_as<ipc::GroupAbortedEvent>(sent.body).value();
        CHECK_FALSE((told && event.group_handle == last));  // once
        told |= event.group_handle == last;
        continue;
      }
      CHECK(sent.code() == ErrorCode::kOk);
      CHECK(told);
      ++answers;
    }
    CHECK(answers == 1);
  }
}

TEST_CASE("notices that answer many members are taken some in a round") {
  Job job;
  for (const std::uint64_t handle : job.handles) {
    for (const ipc::ConnectionId connection : job.connections) job.daemon.leave(connection, handle);
  }
  job.daemon.poll();
  const std::uint64_t groups = job.daemon.manager->group_count();
  REQUIRE(groups == kGroups);
  job.daemon.lanes.finish(command::RequestType::kLeaveGroup);
  std::uint64_t most = 0;
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t steps = job.daemon.manager->steps();
    job.daemon.poll(1);
    most = std::max(most, job.daemon.manager->steps() - steps);
  }
  CHECK(job.daemon.manager->group_count() == 0);
  CHECK(most > 4'000);  // otherwise the bound was never near
  CHECK(most <= 4'096 + 2 * kMembers + 200);
}
