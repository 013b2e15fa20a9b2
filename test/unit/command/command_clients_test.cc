// SPDX-License-Identifier: BSD-3-Clause
// What a lane lets clients do: memory in use, removal, broken or idle rings.
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
