// SPDX-License-Identifier: BSD-3-Clause
// A member leaves and others of its rank stay: what needs it is aborted, and nothing else is.
#include <catch2/catch.hpp>
#include <string>

#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

namespace {

/// Rank 1 of two ranks of two processes: processes 2 and 3.
struct Siblings {
  CommandFixture fixture;
  TestClient& first = fixture.add_client(1);
  TestClient& second = fixture.add_client(2);

  Siblings() { fixture.add_group({1, 2}); }
  void post(TestClient& client, ipc::CommandEntry command) {
    REQUIRE(client.queue.push_command(command));
    fixture.commands->poll();
  }
  void leave(std::uint32_t client_id) {
    fixture.commands->member_left(CommandFixture::kGroup, client_id);
  }
  /// Why the group was aborted since; empty if it was not.
  std::string aborted() {
    std::uint64_t handle = 0;
    AbortReason reason;
    if (!fixture.commands->pop_abort(handle, reason)) return {};
    CHECK(handle == CommandFixture::kGroup);
    CHECK(reason.code == AbortCode::kPeerLeft);
    CHECK(reason.culprit_rank == 1);
    return describe(reason);
  }
  /// Both members' next op, begun and ended.
  void op(std::uint64_t op_seq) {
    post(first, CommandFixture::command(10 * op_seq));
    post(second, CommandFixture::command(10 * op_seq));
    fixture.op_done(op_seq);
    REQUIRE(status_of(first.completion()) == ErrorCode::kOk);
    REQUIRE(status_of(second.completion()) == ErrorCode::kOk);
  }
  static ipc::CommandEntry transfer(Collective collective, std::uint32_t other,
                                    std::uint64_t request_id = 1) {
    ipc::CommandEntry command = CommandFixture::command(request_id);
    command.collective = collective;
    command.root = other;
    if (collective == Collective::kSend) command.output_memory = 0;
    if (collective == Collective::kRecv) command.input_memory = 0;
    return command;
  }
  /// Both lanes are given all transfers that there are. @return the ids.
  std::vector<std::uint64_t> transfers() {
    fixture.commands->poll();
    std::vector<std::uint64_t> ids;
    for (std::size_t lane = 0; lane < fixture.lanes.size(); ++lane) {
      ids.clear();
      LaneTransfer each;
      while (rte_ring_sc_dequeue_elem(fixture.lanes[lane].transfers, &each, sizeof each) == 0) {
        ids.push_back(each.spec->id);
      }
    }
    return ids;
  }
  void transfer_done(std::uint64_t id) {
    fixture.report(0, collective::EventType::kTransferDone, id);
    fixture.report(1, collective::EventType::kTransferDone, id);
  }
};

}  // namespace

TEST_CASE("an op that a sibling calls after a member has left aborts the group at once") {
  Siblings rank;
  rank.op(1);
  rank.leave(1);
  CHECK(rank.aborted().empty());
  rank.post(rank.second, CommandFixture::command(2));
  CHECK(
      rank.aborted() ==
      "rank 1 left the group, op 2: process 2 left and had not called it, and process 3 has (seen "
      "by rank 1)");
  rank.fixture.report(0, collective::EventType::kAborted);
  rank.fixture.report(1, collective::EventType::kAborted);
  const auto ended = rank.second.completion();
  CHECK(status_of(ended) == ErrorCode::kAborted);
  CHECK_THAT(ended->text, Catch::Contains("process 2 left"));
}

TEST_CASE("an op that a sibling has called and a member has not aborts when the member leaves") {
  Siblings rank;
  rank.post(rank.second, CommandFixture::command(1));
  CHECK(rank.aborted().empty());
  rank.leave(1);
  CHECK_THAT(rank.aborted(), Catch::Contains("op 1: process 2 left and had not called it"));
}

TEST_CASE("an op of its own that a member has not seen end aborts when it leaves") {
  Siblings rank;
  rank.post(rank.first, CommandFixture::command(1));
  rank.leave(1);
  CHECK_THAT(rank.aborted(), Catch::Contains("op 1: process 2 left and had not waited for the op"));
}

TEST_CASE("a command that is read after its member has left is refused, and aborts the group") {
  Siblings rank;
  REQUIRE(rank.first.queue.push_command(CommandFixture::command(1)));
  rank.leave(1);
  CHECK(rank.aborted().empty());
  rank.fixture.commands->poll();
  CHECK(status_of(rank.first.completion()) == ErrorCode::kAborted);
  CHECK_THAT(rank.aborted(), Catch::Contains("process 2 left and had called more"));
}

TEST_CASE("what the next rank has posted aborts if a member left without it, and nothing before") {
  Siblings rank;
  rank.fixture.commands->heard_posted(CommandFixture::kGroup, 7);
  rank.op(1);
  rank.leave(2);
  rank.fixture.commands->heard_posted(CommandFixture::kGroup, 1);
  CHECK(rank.aborted().empty());
  rank.fixture.commands->heard_posted(CommandFixture::kGroup, 2);
  CHECK_THAT(rank.aborted(),
             Catch::Contains("op 2: process 3 left and had not called it, and the next rank has"));
}

TEST_CASE("transfers with a member that left abort, and those with others go on") {
  Siblings rank;
  rank.post(rank.second, Siblings::transfer(Collective::kSend, 0, 1));
  REQUIRE(rank.transfers().size() == 1);
  rank.leave(1);
  rank.post(rank.second, Siblings::transfer(Collective::kSend, 1, 2));
  CHECK(rank.aborted().empty());
  rank.post(rank.second, Siblings::transfer(Collective::kRecv, 2, 3));
  CHECK_THAT(rank.aborted(),
             Catch::Contains("process 2 left, and process 3 has a transfer with it unfinished"));
}

TEST_CASE("transfers of its own that a member has not seen end abort when it leaves") {
  Siblings rank;
  rank.post(rank.first, Siblings::transfer(Collective::kSend, 0));
  rank.leave(1);
  CHECK_THAT(rank.aborted(), Catch::Contains("process 2 left, and transfer calls of its own"));
}

TEST_CASE("a transfer between siblings that has ended at the one that left is no reason") {
  Siblings rank;
  rank.post(rank.first, Siblings::transfer(Collective::kSend, 3, 1));
  rank.post(rank.second, Siblings::transfer(Collective::kRecv, 2, 2));
  const auto ids = rank.transfers();
  REQUIRE(ids.size() == 2);
  rank.transfer_done(ids[0]);
  REQUIRE(status_of(rank.first.completion()) == ErrorCode::kOk);
  rank.leave(1);
  CHECK(rank.aborted().empty());
  rank.transfer_done(ids[1]);
  CHECK(status_of(rank.second.completion()) == ErrorCode::kOk);
  // The next one has nobody.
  rank.post(rank.second, Siblings::transfer(Collective::kRecv, 2, 3));
  CHECK_THAT(rank.aborted(), Catch::Contains("process 2 left"));
}
