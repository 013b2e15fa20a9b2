// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
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
  daemon.reports.totals = {{"cpu avx2", "cpu", {1, 2, 3}}, {"emu", "mapped", {10, 20, 30}}};
  daemon.reports.statuses[0].backend_name = "emu";
  daemon.reports.statuses[0].backend_path = "mapped";
  daemon.reports.statuses[0].backend = {5, 6, 7};
  // Lane 1 has published nothing yet.
  const json reduce = daemon.status_json()["reduce"];
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

TEST_CASE("what names a group on the wire is for its user, root and the daemon's user alone") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 3);
  daemon.reports.statuses[1].posted_op_seq = 1;
  daemon.reports.traces = {{}};
  daemon.reports.traces[0].group_handle = 1;
  const uid_t stranger = 4711;
  for (const uid_t viewer : {uid_t{0}, ::geteuid(), test::kUid, stranger}) {
    INFO("uid " << viewer);
    const bool sees = viewer != stranger;
    for (const MessageType type : {MessageType::kStatus, MessageType::kTrace}) {
      daemon.send(9, type, {}, viewer);
      const auto sent = daemon.take(9);
      const std::string text(reinterpret_cast<const char*>(sent.body.data()), sent.body.size());
      INFO(text);
      CHECK((text.find("000000000000feed") != std::string::npos) == sees);
      CHECK((text.find("hidden-1") != std::string::npos) == !sees);
      if (type == MessageType::kTrace) continue;
      const json status = json::parse(text);
      const json& group = status["groups"].at(0);
      CHECK(group["table_digest"].is_null() == !sees);
      CHECK(group["downstream"]["incarnation"].is_null() == !sees);
      CHECK(group["upstream"]["incarnation"].is_null() == !sees);
      CHECK(status["ops"].at(0)["rank"] == 0);
    }
  }
}

TEST_CASE("clients and their memory are shown") {
  FakeDaemon daemon;
  const std::uint32_t id = daemon.open(4);
  const std::uint32_t memory = daemon.allocate(4, 12288);
  const json client = daemon.status_json()["clients"].at(0);
  CHECK(client["client"] == id);
  CHECK(client["pid"] == 1004);
  CHECK(client["uid"] == 500);
  CHECK(client["state"] == "open");
  CHECK(client["memory_bytes"] == 12288);
  CHECK(client["memories"][0]["memory"] == memory);
  CHECK(client["memories"][0]["state"] == "live");
  daemon.hang_up(4);
  const json after = daemon.status_json()["clients"].at(0);
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
  collective::ShardStatus& status = daemon.reports.statuses[1];
  status.posted_op_seq = 8;
  status.done_op_seq = 6;
  status.downstream_posted_op_seq = 6;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 7 on lane 1: downstream rank 1, whose clients have posted ops only up to 6");
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

TEST_CASE("an op that all ranks must have posted names the late rank, not a neighbor") {
  // Rank 0 of 5; the shard of lane 1 has a barrier.
  FakeDaemon daemon;
  daemon.open(1);
  daemon.form({1}, 5);
  collective::ShardStatus& status = daemon.reports.statuses[1];
  status.posted_op_seq = status.downstream_posted_op_seq = 1;
  status.waits_for_posts = true;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 1 on lane 1: one of ranks 2 to 4, whose clients have not posted it");
  const json op = daemon.status_json()["ops"].at(0);
  CHECK(op["waits_for"] == "ranks");
  CHECK(op["waits_for_rank"] == 2);
  // Who is silent is named before who is late, and so is a neighbor that has not posted.
  status.downstream_posted_op_seq = 0;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 1 on lane 1: downstream rank 1, whose clients have posted ops only up to 0");
  status.downstream_posted_op_seq = 1;
  status.upstream_silence_ns = 1'500'000'000;
  CHECK(daemon.group_json()["waits_for"][0] ==
        "op 1 on lane 1: upstream rank 4, silent for 1.500 s");
}

TEST_CASE("of three ranks each names the one that is late") {
  struct Case {
    std::uint16_t rank;
    bool posted_onwards;
    const char* text;
  };
  for (const Case& c : {Case{0, false, "rank 2, whose clients have not posted it"},
                        Case{1, true, "rank 0, whose clients have not posted it"},
                        Case{2, false, "rank 1, whose clients have not posted it"}}) {
    Group group;
    group.rank = c.rank;
    group.table = test::table_of(3);
    collective::ShardStatus status;
    status.posted_op_seq = status.downstream_posted_op_seq = 1;
    status.waits_for_posts = true;
    status.posted_onwards = c.posted_onwards;
    const OpWait wait = op_wait(group, 0, status, 0);
    CHECK(wait.text == fmt::format("op 1 on lane 0: {}", c.text));
    CHECK(wait.neighbor == std::string("rank"));
  }
}

TEST_CASE("a rank names its oldest unfinished transfer, and what that waits for") {
  Group group;
  group.key = {0x12, 1};
  group.rank = 1;
  group.table = test::table_of(3);
  collective::ShardStatus status;
  CHECK_FALSE(transfer_status(group, 0, status, 0));
  collective::TransferWait& wait = status.transfer;
  wait.unfinished = 4;
  wait.end = collective::TransferEnd::kDestination;
  wait.rank = 2;
  wait.pair = {5, 3};
  wait.sequence = 7;
  wait.terms.bytes = 4096;
  wait.posted_at = 1'000'000'000;
  const auto text = [&] { return transfer_status(group, 1, status, 3'500'000'000)->text; };
  CHECK(
      text() ==
      "recv of 4096 bytes on lane 1, transfer 7 of process 5 to process 3: waits for that process "
      "of rank 2, which has not posted it");
  const status::Op op = *transfer_status(group, 1, status, 3'500'000'000);
  CHECK(op.collective == "recv");
  CHECK(op.op_seq == 7);
  CHECK(op.unfinished == 4);
  CHECK(op.waits_for == "rank");
  CHECK(op.waits_for_rank == 2);
  CHECK(op.since_s == 2.5);
  wait.posted_there = true;
  wait.moved_at = 3'000'000'000;
  CHECK(text().ends_with("waits for data from rank 2"));
  CHECK(transfer_status(group, 1, status, 3'500'000'000)->since_s == 0.5);
  wait.rank_silent_ns = 200'000'000;
  CHECK(text().ends_with("waits for rank 2, silent for 0.200 s"));
  wait.rank_silent_ns = 0;
  wait.end = collective::TransferEnd::kSource;
  CHECK(text().starts_with("send of 4096 bytes"));
  CHECK(text().ends_with("waits for pulls of rank 2"));
  wait.terms.call = wire::TransferCall::kAllToAll;
  CHECK(text().starts_with("all-to-all of 4096 bytes"));
  wait.rank = 1;
  CHECK(text().ends_with("waits for its turn to be copied"));
  wait.posted_there = false;
  CHECK(text().ends_with("waits for that process, which has not posted it"));
  CHECK(transfer_status(group, 1, status, 0)->waits_for == "this rank");
}

TEST_CASE("a formed group names the member of this rank that is late") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  command::MembersWait late;
  late.op_seq = 3;
  late.member = 1;
  daemon.reports.members = late;
  CHECK(daemon.group_json()["waits_for"] ==
        json::array({"op 3: member 1 of this rank (pid 1002), which has not posted it"}));
  daemon.reports.members->computes = true;
  CHECK_THAT(daemon.group_json()["waits_for"][0].get<std::string>(),
             Catch::Contains("whose stream is still computing its input"));
  daemon.reports.members.reset();
  daemon.leave(1, handle);
  CHECK(daemon.group_json()["waits_for"][0] == "member 1 to leave");
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
  daemon.reports.statuses[1].in_backend = 3;
  daemon.reports.statuses[1].backend_name = "emu";
  CHECK_THAT(daemon.group_json()["waits_for"].at(1).get<std::string>(),
             Catch::StartsWith("lane 1: backend emu to return 3 chunks"));
  daemon.reports.statuses[1].in_backend = 0;
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

TEST_CASE("whoever asks for the status without end keeps nobody waiting") {
  test::FakeWorker worker;
  FakeDaemon daemon({}, &worker);
  daemon.open(1);
  for (int i = 0; i < 64; ++i) daemon.send(2, MessageType::kStatus, {});
  const auto mine = daemon.send(3, MessageType::kStatus, {});
  daemon.send(4, MessageType::kTrace, {});
  CHECK(worker.jobs.size() == 2);  // one status and one trace, whoever asks how often
  worker.run();                    // the first one's
  daemon.poll();
  CHECK(daemon.waiting(2) == 1);
  worker.run();  // the trace
  CHECK(daemon.waiting(4) == 1);
  worker.run();
  CHECK(daemon.waiting(2) == 2);
  CHECK(daemon.take(3).header.request_id == mine);
  daemon.poll();
  CHECK(worker.jobs.size() == 1);
  // There is a bound, and who has gone is forgotten.
  for (int i = 0; i < 3; ++i) daemon.send(2, MessageType::kStatus, {});
  CHECK(daemon.waiting(2) == 2);
  daemon.send(2, MessageType::kStatus, {});
  CHECK(daemon.waiting(2) == 3);
  daemon.take(2);
  daemon.take(2);
  daemon.refused(2, ErrorCode::kBusy,
                 "this connection already has 64 unanswered requests for 'status'");
  daemon.hang_up(2);
  worker.run();
  daemon.poll();
  CHECK(worker.jobs.empty());
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

  // Who has it can neither change it nor keep its memory.
  const int fd = message.fds.front().get();
  CHECK(::ftruncate(fd, 0) == -1);
  CHECK(::write(fd, "x", 1) == -1);
  daemon.advance(LentTexts::kAge);
  CHECK(ipc::status_text(message).error().code == ErrorCode::kBusy);
  struct stat info = {};
  REQUIRE(::fstat(fd, &info) == 0);
  CHECK(info.st_size == 0);
  CHECK(info.st_blocks == 0);
}

TEST_CASE("a user who is given long texts without end holds the newest of them") {
  constexpr std::uint64_t kHalf = LentTexts::kBytesOfUser / 2;
  LentTexts lent;
  std::vector<ipc::UniqueFd> held;
  const auto lend = [&](std::uint64_t bytes, uid_t user, TimeNs now) {
    ipc::UniqueFd file = text_file("a text");
    held.push_back(for_reading(file));
    lent.lend(std::move(file), bytes, user, now);
  };
  const auto is_there = [&](std::size_t which) {
    char first = 0;
    return ::pread(held[which].get(), &first, 1, 0) == 1;
  };
  lend(kHalf, 7, 0);
  lend(kHalf, 8, 0);
  lend(kHalf, 7, 1);
  lend(kHalf, 7, 2);  // two and the newest
  CHECK(is_there(0));
  lend(1, 7, 3);
  CHECK_FALSE(is_there(0));
  CHECK(is_there(1));  // another user's
  CHECK(is_there(2));
  CHECK(lent.bytes() == 3 * kHalf + 1);
  for (std::size_t i = 0; i <= LentTexts::kFilesOfUser; ++i) lend(1, 7, 4);
  CHECK_FALSE(is_there(4));
  CHECK(is_there(5));
  lent.take_back(LentTexts::kAge);
  CHECK_FALSE(is_there(1));
  CHECK(is_there(5));
  lent.take_back(LentTexts::kAge + 4);
  CHECK(lent.bytes() == 0);
}

}  // namespace gradwire::control
