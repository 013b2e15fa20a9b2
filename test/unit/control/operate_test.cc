// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "control/shard_status.h"
#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using nlohmann::json;
using test::FakeDaemon;
using test::join_body;
using test::RequestType;
using test::table_of;

namespace {

json json_of(const test::FakeSink::Sent& sent) {
  return json::parse(
      std::string(reinterpret_cast<const char*>(sent.body.data()), sent.body.size()));
}

void ask_drain(FakeDaemon& daemon, ipc::ConnectionId connection, bool resume, uid_t uid = 0) {
  ipc::DrainRequest request;
  request.resume = resume ? 1 : 0;
  daemon.send(connection, MessageType::kDrain, ipc::bytes_of(request), uid);
}

}  // namespace

TEST_CASE("draining waits for the lane's word, and refuses new groups meanwhile and after") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1});
  ask_drain(daemon, 9, false);
  CHECK(daemon.waiting(9) == 0);
  CHECK(daemon.status_json()["daemon"]["state"] == "draining");
  auto other = join_body(0, table_of(2));
  other.request.group_id = 0xbeef;
  daemon.join(1, other);
  daemon.refused(1, ErrorCode::kUnavailable, "draining and forms no new group");

  REQUIRE(daemon.lanes.finish(RequestType::kDrain) == 1);
  daemon.poll();
  CHECK(json_of(daemon.take(9)) == json({{"state", "drained"}, {"groups", 1}, {"clients", 1}}));
  CHECK(daemon.status_json()["daemon"]["state"] == "drained");
  daemon.join(1, other);
  daemon.refused(1, ErrorCode::kUnavailable, "draining and forms");

  ask_drain(daemon, 9, true);
  CHECK(json_of(daemon.take(9))["state"] == "running");
  CHECK(daemon.lanes.count(RequestType::kResume) == 1);
  CHECK(daemon.status_json()["daemon"]["state"] == "running");
}

TEST_CASE("who waits for a drain is told that the daemon resumes") {
  FakeDaemon daemon;
  ask_drain(daemon, 9, false);
  ask_drain(daemon, 8, true);
  daemon.refused(9, ErrorCode::kAborted, "resume");
  daemon.lanes.finish(RequestType::kDrain);
  daemon.poll();
  CHECK(daemon.status_json()["daemon"]["state"] == "running");
}

TEST_CASE("only root and the daemon's user drain") {
  FakeDaemon daemon;
  ask_drain(daemon, 9, false, 4711);
  daemon.refused(9, ErrorCode::kPermission, "uid 4711");
  CHECK(daemon.lanes.count(RequestType::kDrain) == 0);
  daemon.send(9, MessageType::kDrain, {}, 0);
  daemon.refused(9, ErrorCode::kInvalidArgument, "drain request");
}

TEST_CASE("the trace names groups that are gone, and an abort's reason") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1}, 3);
  lane::TraceEvent posted;
  posted.at = 5;
  posted.group_handle = handle;
  posted.op_seq = 7;
  posted.value = 4096;
  posted.collective = Collective::kReduceScatter;
  lane::TraceEvent aborted = posted;
  aborted.type = lane::TraceType::kAborted;
  aborted.value = static_cast<std::uint64_t>(AbortCode::kClientDied);
  aborted.culprit_rank = 2;
  daemon.reports.traces = {posted, aborted};
  daemon.send(9, MessageType::kTrace, {});
  const json trace = json_of(daemon.take(9));
  CHECK(trace["now_ns"] == daemon.now);
  CHECK(trace["pid"] == ::getpid());
  REQUIRE(trace["events"].size() == 2);
  CHECK(trace["events"][0]["event"] == "posted");
  CHECK(trace["events"][0]["group_id"] == "000000000000feed");
  CHECK(trace["events"][0]["value"] == 4096);
  CHECK(trace["events"][0]["collective"] == "reduce-scatter");
  CHECK_FALSE(trace["events"][1].contains("collective"));
  CHECK(trace["events"][1]["event"] == "aborted");
  CHECK_THAT(trace["events"][1]["reason"].get<std::string>(),
             Catch::Contains("a client process of rank 2 died"));
  daemon.leave(1, handle);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.manager->trace(daemon.now)["events"][0]["group_id"] == "000000000000feed");
}

TEST_CASE("no event of a trace is of a later time than the trace") {
  FakeDaemon daemon;
  daemon.open(1);
  lane::TraceEvent posted;
  posted.at = daemon.now + 3;  // while the control thread was in the round that began at `now`
  posted.group_handle = daemon.form({1}, 3);
  posted.op_seq = 1;
  daemon.reports.traces = {posted};
  const json trace = daemon.manager->trace(daemon.now);
  CHECK(trace["now_ns"] == daemon.now + 3);
  CHECK(trace["events"][0]["at_ns"] == daemon.now + 3);
}

TEST_CASE("ops say who waits for whom, and since when") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  CHECK(daemon.status_json()["ops"].empty());
  collective::ShardStatus& status = daemon.reports.statuses[1];
  status.posted_op_seq = 8;
  status.done_op_seq = 6;
  status.downstream_posted_op_seq = 8;
  status.oldest_op = {daemon.now - 3'000'000'000, daemon.now - 2'500'000'000, 1 << 20, 4,
                      Collective::kBroadcast};
  status.progress_at = daemon.now - 2'000'000'000;
  json ops = daemon.status_json()["ops"];
  REQUIRE(ops.size() == 1);
  CHECK(ops[0]["op_seq"] == 7);
  CHECK(ops[0]["collective"] == "broadcast");
  CHECK(ops[0]["unfinished"] == 2);
  CHECK(ops[0]["lane"] == 1);
  CHECK(ops[0]["bytes"] == 1 << 20);
  CHECK(ops[0]["posted_s"] == 3.0);
  CHECK(ops[0]["first_chunk_s"] == 2.5);
  CHECK(ops[0]["since_s"] == 2.0);
  CHECK(ops[0]["retransmissions"] == 4);
  CHECK(ops[0]["waits_for"] == "upstream");
  CHECK(ops[0]["waits_for_rank"] == 2);

  status.waits_for_downstream = true;
  status.chunks_sent = status.credit_chunks = 100;
  CHECK_THAT(daemon.status_json()["ops"][0]["text"].get<std::string>(),
             Catch::Contains("downstream rank 1, which grants no credit"));
  status.credit_chunks = 200;
  status.bytes_in_flight = 9000;
  CHECK_THAT(daemon.status_json()["ops"][0]["text"].get<std::string>(),
             Catch::Contains("downstream rank 1 to acknowledge 9000 bytes"));
}

TEST_CASE("for whom ops waited is kept, the latest first, if that rank was late") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  collective::ShardStatus& status = daemon.reports.statuses[0];
  status.posted_op_seq = 8;
  status.done_op_seq = 6;
  status.downstream_posted_op_seq = 6;
  const auto wait = [&](TimeNs ns, TimeNs since) {
    for (const TimeNs end = daemon.now + ns; daemon.now < end;) {
      daemon.now += 50'000'000;
      status.progress_at = daemon.now - since;
      daemon.poll();
    }
  };
  const auto late = [&] { return daemon.status_json()["groups"][0]["late_ranks"]; };
  wait(300'000'000, 1'000'000);  // nobody is late who is 1 ms behind
  CHECK(late().empty());
  wait(2'000'000'000, 20'000'000);
  REQUIRE(late().size() == 1);
  CHECK(late()[0]["rank"] == 1);
  CHECK(late()[0]["waited_s"].get<double>() == Approx(2.0).margin(0.11));
  CHECK(late()[0]["last_s"].get<double>() <= 0.1);

  // It posted; now data is awaited from the rank upstream, which may wait for another itself.
  status.downstream_posted_op_seq = 8;
  wait(1'000'000'000, 20'000'000);
  CHECK(late().size() == 1);
  CHECK(late()[0]["waited_s"].get<double>() == Approx(2.0).margin(0.11));
  CHECK(late()[0]["last_s"].get<double>() == Approx(1.0).margin(0.11));

  // A process of this rank has not posted what another one has.
  daemon.reports.members = command::MembersWait{9, 1, false, daemon.now - 50'000'000};
  wait(3'000'000'000, 0);
  REQUIRE(late().size() == 2);
  CHECK(late()[0]["rank"] == 0);
  CHECK(late()[0]["waited_s"].get<double>() == Approx(3.0).margin(0.11));
  daemon.reports.members->computes = true;  // its GPU is still at its input
  wait(1'000'000'000, 0);
  CHECK(late()[0]["waited_s"].get<double>() == Approx(3.0).margin(0.11));
}

TEST_CASE("of many late ranks those are kept for which ops waited longest") {
  LateRanks late;
  for (std::uint16_t rank = 0; rank < 100; ++rank) {
    late.add(rank, rank < 10 ? 1000 - rank : 1, rank);
    late.add(3, 10, rank);
  }
  REQUIRE(late.ranks().size() == LateRanks::kMost);
  for (std::uint16_t rank = 0; rank < 10; ++rank) {
    const auto found = std::ranges::find(late.ranks(), rank, &LateRanks::Rank::rank);
    REQUIRE(found != late.ranks().end());
    CHECK(found->waited_ns == 1000 - rank + (rank == 3 ? 1000 : 0));
    CHECK(found->last_at == (rank == 3 ? 99 : rank));
  }
  CHECK(std::ranges::find(late.ranks(), 99, &LateRanks::Rank::rank) != late.ranks().end());
}

TEST_CASE("a rank that is late again and again is kept, whoever else was late before or between") {
  LateRanks late;
  TimeNs now = 0;
  // When a job starts many are late, and for long.
  for (std::uint16_t rank = 0; rank < LateRanks::kMost; ++rank) late.add(rank, 10'000, now);
  for (int look = 0; look < 20'000; ++look) {
    late.add(look % 2 == 0 ? 1'000 : static_cast<std::uint16_t>(20 + look % 900), 100, ++now);
  }
  const auto found = std::ranges::find(late.ranks(), 1'000, &LateRanks::Rank::rank);
  REQUIRE(found != late.ranks().end());
  CHECK(found->waited_ns > 900'000);
  CHECK(found->waited_ns <= 1'000'000);
  for (const LateRanks::Rank& other : late.ranks()) CHECK(other.waited_ns <= found->waited_ns);
}

TEST_CASE("a rank without members does not take what its host said long ago for what it posted") {
  Group group;
  group.table.resize(4);
  group.wanted.folding_ranks = 1;
  group.rank = 3;  // it hangs on rank 0
  collective::ShardStatus status;
  status.posted_op_seq = 8;
  status.done_op_seq = 7;
  status.progress_at = 1'000'000'000;
  // Rank 0 answers pings alone: it has posted more since.
  status.downstream_posted_op_seq = 6;
  status.is_contribution_missing = true;
  status.missing_rank = 2;
  const OpWait wait = op_wait(group, 0, status, 1'030'000'000);
  CHECK(wait.rank == 2);
  CHECK(wait.is_late);
  CHECK_THAT(wait.text, Catch::Contains("the contribution of rank 2, whose clients have not"));
}

TEST_CASE("an op that waits for a member of this rank says for which") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  daemon.reports.members = command::MembersWait{9, 1, false, daemon.now - 500'000'000};
  const json ops = daemon.status_json()["ops"];
  REQUIRE(ops.size() == 1);
  CHECK(ops[0]["waits_for"] == "this rank");
  CHECK(ops[0]["since_s"] == 0.5);
  CHECK_THAT(ops[0]["text"].get<std::string>(), Catch::Contains("member 1 of this rank"));
}

TEST_CASE("a lane's transport counters are those of all groups, gone ones too") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  daemon.reports.statuses[0].counters.retransmissions = 3;
  daemon.reports.gone.retransmissions = 40;
  daemon.reports.gone.drops[static_cast<int>(wire::Drop::kDuplicate)] = 5;
  const json transport = daemon.status_json()["lanes"][0]["transport"];
  CHECK(transport["retransmissions"] == 43);
  CHECK(transport["drops"][wire::name_of(wire::Drop::kDuplicate)] == 5);
  CHECK(daemon.group_json()["shards"][0]["counters"]["retransmissions"] == 3);
}

}  // namespace gradwire::control
