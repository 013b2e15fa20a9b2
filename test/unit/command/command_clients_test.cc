// SPDX-License-Identifier: BSD-3-Clause
// What a lane lets clients do: memory in use, removal, broken or idle rings.
#include <algorithm>
#include <catch2/catch.hpp>

#include "command/command_lane.h"
#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

TEST_CASE("memory of an unfinished op may be read by another, and written by none") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.add_memory(1, 3);
  fixture.add_group({1});
  fixture.add_group({1}, 0x2002);
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));  // reads 1, writes 2
  fixture.commands->poll();
  const auto ask = [&](std::uint32_t input, std::uint32_t output, std::uint64_t group) {
    auto command = CommandFixture::command(9);
    command.input_memory = input;
    command.output_memory = output;
    command.group_handle = group;
    REQUIRE(client.queue.push_command(command));
    fixture.commands->poll();
    return client.completion();
  };
  const auto writes_input = ask(3, 1, 0x2002);  // of any group
  CHECK(status_of(writes_input) == ErrorCode::kInvalidArgument);
  CHECK_THAT(std::string(writes_input->text), Catch::Contains("request 1"));
  CHECK(status_of(ask(2, 3, 0x2002)) == ErrorCode::kInvalidArgument);
  CHECK(status_of(ask(3, 2, CommandFixture::kGroup)) == ErrorCode::kInvalidArgument);
  CHECK_FALSE(ask(1, 3, 0x2002));  // only reads what the other reads

  fixture.op_done(1);
  CHECK(status_of(client.completion()) == ErrorCode::kOk);
  CHECK_FALSE(ask(2, 2, CommandFixture::kGroup));  // free again
}

TEST_CASE("memory comes back when no op refers to it, and is gone for new commands at once") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  Request remove;
  remove.type = RequestType::kRemoveMemory;
  remove.client_id = 1;
  remove.memory = 2;
  fixture.commands->remove_memory(&remove);
  CHECK(fixture.finished() == nullptr);
  auto command = CommandFixture::command(2);
  command.output_offset = 65'536;
  REQUIRE(client.queue.push_command(command));
  fixture.commands->poll();
  CHECK(status_of(client.completion()) == ErrorCode::kNotFound);
  fixture.op_done(1);
  CHECK(fixture.finished() == &remove);

  Request unknown = remove;
  fixture.commands->remove_memory(&unknown);
  CHECK(fixture.finished() == &unknown);
}

TEST_CASE("a removed client is read no more, and comes back when its groups are gone") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  Request remove;
  remove.type = RequestType::kRemoveClient;
  remove.client_id = 1;
  CHECK(fixture.commands->remove_client(&remove) == &client.port);
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  CHECK_FALSE(fixture.commands->poll());
  CHECK(fixture.finished() == nullptr);

  Request leave;
  leave.type = RequestType::kLeaveGroup;
  leave.group_handle = CommandFixture::kGroup;
  fixture.commands->leave_group(&leave);
  fixture.report(0, collective::EventType::kClosed);
  CHECK(fixture.finished() == &leave);
  CHECK(fixture.finished() == &remove);
  CHECK(fixture.commands->client_count() == 0);

  Request unknown = remove;
  CHECK(fixture.commands->remove_client(&unknown) == nullptr);
  CHECK(fixture.finished() == &unknown);
}

TEST_CASE("a client whose index cannot be is told once and read no more; others go on") {
  CommandFixture fixture(1);
  TestClient& bad = fixture.add_client(1);
  TestClient& good = fixture.add_client(2);
  fixture.add_group({2});
  bad.region->command_tail.store(100'000);
  REQUIRE(good.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  CHECK(fixture.ops(0));
  std::uint32_t client_id = 0;
  AbortReason why;
  REQUIRE(fixture.commands->has_news());
  REQUIRE(fixture.commands->pop_fault(client_id, why));
  CHECK(client_id == 1);
  CHECK(why.detail[0] != '\0');
  fixture.commands->poll();
  CHECK_FALSE(fixture.commands->pop_fault(client_id, why));
}

TEST_CASE("a client that never reads its completions stops only itself") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  TestClient& other = fixture.add_client(2);
  fixture.add_group({1});
  fixture.add_group({2}, 0x2002);
  // Far more commands than there are completions: each is refused, so each is answered at once.
  std::uint64_t pushed = 0;
  for (int round = 0; round < 400; ++round) {
    while (pushed < 4'000) {
      auto command = CommandFixture::command(pushed);
      command.datatype = 200;
      if (!client.queue.push_command(command)) break;
      ++pushed;
    }
    fixture.commands->poll();
  }
  // What the completion ring holds and what waits for room are answered; the rest was not read.
  CHECK(fixture.counters.commands == 2 * ipc::kCompletionEntries);
  auto command = CommandFixture::command(1);
  command.group_handle = 0x2002;
  REQUIRE(other.queue.push_command(command));
  fixture.commands->poll();
  CHECK(fixture.ops(0));

  // Once it reads, it gets every answer, in order.
  std::uint64_t expected = 0;
  for (int round = 0; round < 400; ++round) {
    while (const auto answer = client.completion()) CHECK(answer->request_id == expected++);
    fixture.commands->poll();
  }
  CHECK(expected == pushed);
}

TEST_CASE("one client is never outstanding more than completions there are") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  std::uint64_t pushed = 0;
  for (int round = 0; round < 100; ++round) {
    while (pushed < 600) {
      auto command = CommandFixture::command(pushed);
      command.count = 1;
      command.input_offset = command.output_offset = pushed * 64;
      if (!client.queue.push_command(command)) break;
      ++pushed;
    }
    fixture.commands->poll();
  }
  CHECK(fixture.ops(0)->op_seq == kOpSlots);
  // Ops may finish in any order: a slot that is taken makes its next user wait, not fail.
  for (std::uint64_t op_seq = 2; op_seq <= 256; ++op_seq) fixture.op_done(op_seq);
  for (int round = 0; round < 100; ++round) fixture.commands->poll();
  int answers = 0;
  while (client.completion()) ++answers;
  CHECK(answers == 255);
  CHECK_FALSE(fixture.ops(0));  // op 257 would be in the slot of op 1
  fixture.op_done(1);
  for (int round = 0; round < 100; ++round) fixture.commands->poll();
  CHECK(fixture.ops(0)->op_seq > 257);
}

TEST_CASE("a round takes a bounded number of commands, and each user gets its turn") {
  constexpr std::uint32_t kCrowd = 95;
  CommandFixture fixture(1);
  for (std::uint32_t id = 1; id <= kCrowd; ++id) fixture.add_client(id, 1000);
  TestClient& other = fixture.add_client(200, 1001);
  fixture.add_group({200});
  std::uint64_t answered = 0;
  for (int round = 0; round < 300; ++round) {
    for (std::uint32_t id = 1; id <= kCrowd; ++id) {
      TestClient& client = *fixture.clients[id - 1];
      while (client.completion()) ++answered;
      for (int i = 0; i < 16; ++i) {
        auto refused = CommandFixture::command(1);
        refused.group_handle = 0x77;
        (void)client.queue.push_command(refused);
      }
    }
    auto command = CommandFixture::command(static_cast<std::uint64_t>(round));
    REQUIRE(other.queue.push_command(command));
    const std::uint64_t commands = fixture.counters.commands;
    const std::uint64_t steps = fixture.commands->steps();
    fixture.commands->poll();
    CHECK(fixture.counters.commands - commands <= 2 * CommandLane::kCommandSteps);
    CHECK(fixture.commands->steps() - steps <= CommandLane::kStepsMax);
    // Whatever the other user's clients ask, this one's only command is taken in the same round.
    const auto ops = fixture.ops(0);
    REQUIRE(ops);
    CHECK(ops->op_seq == static_cast<std::uint64_t>(round) + 1);
    fixture.op_done(ops->op_seq);
    CHECK(status_of(other.completion()) == ErrorCode::kOk);
  }
  CHECK(answered > 300 * CommandLane::kCommandSteps / 8);
  // None of the crowd is left out.
  for (std::uint32_t id = 1; id <= kCrowd; ++id) {
    CHECK(fixture.clients[id - 1]->region->command_head.load() > 0);
  }
}

TEST_CASE("many users share a round, and nobody waits for ever") {
  constexpr std::uint32_t kUsers = 40;
  CommandFixture fixture(1);
  for (std::uint32_t id = 1; id <= kUsers; ++id) fixture.add_client(id, id);
  for (int round = 0; round < 40; ++round) {
    for (const auto& client : fixture.clients) {
      while (client->completion()) continue;
      auto refused = CommandFixture::command(1);
      refused.group_handle = 0x77;
      while (client->queue.push_command(refused)) continue;
    }
    const std::uint64_t steps = fixture.commands->steps();
    fixture.commands->poll();
    CHECK(fixture.commands->steps() - steps <= CommandLane::kStepsMax);
  }
  std::uint32_t least = UINT32_MAX;
  std::uint32_t most = 0;
  for (const auto& client : fixture.clients) {
    const std::uint32_t taken = client->region->command_head.load();
    least = std::min(least, taken);
    most = std::max(most, taken);
  }
  CHECK(least > 0);
  CHECK(most <= 2 * least);
}

TEST_CASE("a group with many unfinished calls ends in parts, and one beside it at once") {
  constexpr std::uint16_t kMembers = 64;
  constexpr std::uint32_t kCallsEach = ipc::kTransferCommands;
  CommandFixture fixture(1);
  std::vector<std::uint32_t> members;
  for (std::uint32_t id = 1; id <= kMembers; ++id) {
    fixture.add_client(id);
    members.push_back(id);
  }
  TestClient& other = fixture.add_client(200);
  fixture.add_group(members);
  fixture.add_group({200}, 0x2002);
  for (std::uint32_t call = 0; call < kCallsEach; ++call) {
    for (const std::uint32_t id : members) {
      auto receive = CommandFixture::command(call);
      receive.collective = Collective::kRecv;
      receive.root = 0;
      receive.count = 1;
      receive.output_offset = std::uint64_t{call} * 4;
      REQUIRE(fixture.clients[id - 1]->queue.push_command(receive));
    }
    fixture.commands->poll();
  }
  auto command = CommandFixture::command(1);
  command.group_handle = 0x2002;
  REQUIRE(other.queue.push_command(command));
  for (std::uint32_t i = 0; i < 2 * kCallsEach; ++i) {
    fixture.commands->poll();
    LaneTransfer transfer;
    while (rte_ring_sc_dequeue_elem(fixture.lanes[0].transfers, &transfer, sizeof transfer) == 0) {
    }
  }
  REQUIRE(fixture.counters.commands == kMembers * kCallsEach + 1);
  REQUIRE(fixture.counters.bad_commands == 0);

  Request leave;
  leave.type = RequestType::kLeaveGroup;
  leave.group_handle = CommandFixture::kGroup;
  fixture.commands->leave_group(&leave);
  std::uint64_t steps = fixture.commands->steps();
  fixture.report(0, collective::EventType::kAborted, 0, CommandFixture::kGroup, silence());
  fixture.report(0, collective::EventType::kClosed);
  CHECK(fixture.commands->steps() - steps <= CommandLane::kStepsMax);
  fixture.report(0, collective::EventType::kAborted, 0, 0x2002, silence());
  CHECK(status_of(other.completion()) == ErrorCode::kAborted);
  std::uint64_t ended = 0;
  std::uint64_t rounds = 0;
  Request* back = nullptr;
  while (!fixture.commands->pop_finished(back) && rounds < 10'000) {
    ++rounds;
    steps = fixture.commands->steps();
    fixture.commands->poll();
    CHECK(fixture.commands->steps() - steps <= CommandLane::kStepsMax);
    std::uint64_t now = 0;
    for (const std::uint32_t id : members) {
      while (const auto answer = fixture.clients[id - 1]->completion()) {
        CHECK(status_of(answer) == ErrorCode::kAborted);
        ++now;
      }
    }
    CHECK(now <= 2 * CommandLane::kEndingSteps);
    ended += now;
  }
  CHECK(back == &leave);
  CHECK(ended == kMembers * kCallsEach);
}

TEST_CASE("memory that waits to be freed costs rounds nothing, however much memory there is") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  std::vector<std::byte> region(4096);
  for (std::uint32_t handle = 10; handle < 1010; ++handle) {
    fixture.commands->add_memory({2, handle, region.data(), region.size()});
  }
  Request remove;
  remove.type = RequestType::kRemoveMemory;
  remove.client_id = 1;
  remove.memory = 2;
  fixture.commands->remove_memory(&remove);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t steps = fixture.commands->steps();
    CHECK(fixture.finished() == nullptr);
    CHECK(fixture.commands->steps() - steps <= 1);  // the look at the client
  }
  fixture.op_done(1);
  CHECK(fixture.finished() == &remove);
}
