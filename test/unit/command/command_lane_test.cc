// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_lane.h"

#include <catch2/catch.hpp>
#include <string>

#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

TEST_CASE("a drained lane begins no op, and says when those begun are done") {
  CommandFixture fixture;
  TestClient& first = fixture.add_client(1);
  TestClient& second = fixture.add_client(2);
  fixture.add_group({1, 2});
  REQUIRE(first.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  const MembersWait wait = fixture.commands->members_wait(CommandFixture::kGroup);
  CHECK(wait.op_seq == 1);
  CHECK(wait.member == 1);

  Request drain;
  fixture.commands->drain(&drain);
  CHECK(fixture.finished() == nullptr);
  // The other member's part of an op that is under way is taken, the next op is not.
  REQUIRE(second.queue.push_command(CommandFixture::command(2)));
  REQUIRE(first.queue.push_command(CommandFixture::command(3)));
  fixture.commands->poll();
  CHECK(fixture.commands->members_wait(CommandFixture::kGroup).op_seq == 0);
  const auto refused = first.completion();
  REQUIRE(refused);
  CHECK(refused->request_id == 3);
  CHECK(refused->status == static_cast<std::uint32_t>(ErrorCode::kUnavailable));
  CHECK_THAT(refused->text, Catch::Contains("is draining and starts no new op"));
  CHECK(fixture.finished() == nullptr);
  fixture.op_done(1);
  CHECK(fixture.finished() == &drain);
  REQUIRE(second.completion());

  fixture.commands->resume();
  REQUIRE(first.queue.push_command(CommandFixture::command(4)));
  fixture.commands->poll();
  CHECK(fixture.commands->members_wait(CommandFixture::kGroup).op_seq == 2);
  // With an op under way a drain is held, and given back when the lane resumes.
  Request again;
  fixture.commands->drain(&again);
  CHECK(fixture.finished() == nullptr);
  fixture.commands->resume();
  CHECK(fixture.finished() == &again);
}

TEST_CASE("the nth command is op n, on every lane, and is answered when all lanes are done") {
  CommandFixture fixture;
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  auto command = CommandFixture::command(11);
  command.count = 100;
  command.tag = 7;
  command.datatype = static_cast<std::uint8_t>(DataType::kBfloat16);
  command.redop = static_cast<std::uint8_t>(RedOp::kAvg);
  command.input_offset = 64;
  command.output_offset = 128;
  REQUIRE(client.queue.push_command(command));
  command.request_id = 12;
  command.input_offset = 4096;
  command.output_offset = 4096;
  REQUIRE(client.queue.push_command(command));
  CHECK(fixture.commands->poll());
  CHECK_FALSE(fixture.commands->poll());

  for (std::size_t lane = 0; lane < 2; ++lane) {
    const auto ops = fixture.ops(lane);
    REQUIRE(ops);
    CHECK(ops->group_handle == CommandFixture::kGroup);
    CHECK(ops->op_seq == 2);
    const collective::OpSpec& spec = ops->specs[1];
    CHECK(spec.op_seq == 1);
    CHECK(spec.count == 100);
    CHECK(spec.tag == 7);
    CHECK(spec.datatype == DataType::kBfloat16);
    CHECK(spec.redop == RedOp::kAvg);
    CHECK(spec.inputs[0] == fixture.memories[0]->data() + 64);
    CHECK(spec.outputs[0] == fixture.memories[1]->data() + 128);
    CHECK(ops->specs[2].op_seq == 2);
  }

  fixture.report(0, collective::EventType::kOpDone, 1);
  CHECK_FALSE(client.completion());
  fixture.report(0, collective::EventType::kOpDone, 1);  // the same lane twice is not two lanes
  CHECK_FALSE(client.completion());
  fixture.report(1, collective::EventType::kOpDone, 1);
  const auto answer = client.completion();
  CHECK(status_of(answer) == ErrorCode::kOk);
  CHECK(answer->request_id == 11);
  CHECK(answer->op_seq == 1);
  CHECK(answer->text[0] == '\0');
  fixture.op_done(2);
  CHECK(client.completion()->request_id == 12);
}

TEST_CASE("only a client that waits is sent to, and one that has closed its end ends nobody") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  fixture.op_done(1);
  std::uint64_t value = 0;
  CHECK(read(client.completion_fd, &value, sizeof value) < 0);
  client.queue.set_client_waits(true);
  REQUIRE(client.queue.push_command(CommandFixture::command(2)));
  fixture.commands->poll();
  fixture.op_done(2);
  CHECK(read(client.completion_fd, &value, sizeof value) == 8);
  shutdown(client.completion_fd, SHUT_RDWR);
  client.queue.set_client_waits(true);
  REQUIRE(client.queue.push_command(CommandFixture::command(3)));
  fixture.commands->poll();
  fixture.op_done(3);  // a SIGPIPE would end this process
}

TEST_CASE("an op waits for every member, and each brings its own memory") {
  CommandFixture fixture;
  TestClient& first = fixture.add_client(1);
  TestClient& second = fixture.add_client(2);
  fixture.add_group({2, 1});  // member 0 is client 2
  REQUIRE(first.queue.push_command(CommandFixture::command(1)));
  REQUIRE(first.queue.push_command([] {
    auto command = CommandFixture::command(2);
    command.input_offset = command.output_offset = 8192;
    return command;
  }()));
  fixture.commands->poll();
  CHECK_FALSE(fixture.ops(0));
  REQUIRE(second.queue.push_command(CommandFixture::command(5)));
  fixture.commands->poll();
  const auto ops = fixture.ops(0);
  REQUIRE(ops);
  CHECK(ops->op_seq == 1);
  CHECK(ops->specs[1].inputs[0] == fixture.memories[2]->data());
  CHECK(ops->specs[1].inputs[1] == fixture.memories[0]->data());
  CHECK(ops->specs[1].outputs[0] == fixture.memories[3]->data());
  fixture.op_done(1);
  CHECK(first.completion()->request_id == 1);
  CHECK(second.completion()->request_id == 5);
  CHECK_FALSE(first.completion());
}

TEST_CASE("members that call different things abort the group, with both values") {
  const auto run = [](auto change, const char* first_said, const char* second_said) {
    CommandFixture fixture;
    TestClient& first = fixture.add_client(1);
    TestClient& second = fixture.add_client(2);
    fixture.add_group({1, 2});
    REQUIRE(first.queue.push_command(CommandFixture::command(1)));
    auto other = CommandFixture::command(2);
    change(other);
    REQUIRE(second.queue.push_command(other));
    fixture.commands->poll();
    CHECK_FALSE(fixture.ops(0));
    REQUIRE(fixture.commands->has_news());
    std::uint64_t handle = 0;
    AbortReason reason;
    REQUIRE(fixture.commands->pop_abort(handle, reason));
    CHECK(handle == CommandFixture::kGroup);
    CHECK(reason.code == AbortCode::kMismatch);
    CHECK(reason.culprit_rank == 1);
    CHECK(reason.op_seq == 1);
    CHECK_THAT(std::string(reason.detail),
               Catch::Contains(first_said) && Catch::Contains(second_said) &&
                   Catch::Contains("member 0 of rank 1") && Catch::Contains("member 1 called"));
    CHECK_FALSE(fixture.commands->pop_abort(handle, reason));

    // Nobody is answered while a lane may still touch memory.
    CHECK_FALSE(first.completion());
    fixture.report(0, collective::EventType::kAborted, 0, CommandFixture::kGroup, reason);
    CHECK_FALSE(first.completion());
    fixture.report(1, collective::EventType::kAborted, 0, CommandFixture::kGroup, reason);
    CHECK(status_of(first.completion()) == ErrorCode::kAborted);
    const auto answer = second.completion();
    CHECK(status_of(answer) == ErrorCode::kAborted);
    CHECK_THAT(std::string(answer->text), Catch::Contains(second_said));
  };
  run([](auto& c) { c.count = 255; }, "sum of 256 fp32", "sum of 255 fp32");
  run([](auto& c) { c.tag = 9; }, "tag 0", "tag 9");
  run([](auto& c) { c.datatype = 1; }, "fp32", "fp64");
  run([](auto& c) { c.redop = 2; }, "sum", "min");
}

TEST_CASE("after an abort commands are answered at once with the reason") {
  CommandFixture fixture;
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  fixture.report(1, collective::EventType::kAborted, 0, CommandFixture::kGroup, silence());
  CHECK_FALSE(client.completion());  // lane 0 has not let go yet
  REQUIRE(client.queue.push_command(CommandFixture::command(2)));
  fixture.commands->poll();
  const auto second = client.completion();
  CHECK(status_of(second) == ErrorCode::kAborted);
  CHECK(second->request_id == 2);
  CHECK(std::string(second->text) == describe(silence()));

  // An op that was done before lane 0 heard of the abort is done.
  fixture.report(0, collective::EventType::kAborted, 0, CommandFixture::kGroup, silence());
  const auto first = client.completion();
  CHECK(status_of(first) == ErrorCode::kAborted);
  CHECK(first->request_id == 1);
  CHECK(std::string(first->text) == describe(silence()));
  fixture.op_done(1);  // too late: nothing is answered twice
  CHECK_FALSE(client.completion());
}

TEST_CASE("a group takes no commands before every lane formed it, nor after it is left") {
  CommandFixture fixture;
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1}, CommandFixture::kGroup, false);
  const auto ask = [&](std::uint64_t id) {
    REQUIRE(client.queue.push_command(CommandFixture::command(id)));
    fixture.commands->poll();
    return client.completion();
  };
  CHECK(status_of(ask(1)) == ErrorCode::kBusy);
  fixture.report(0, collective::EventType::kFormed);
  CHECK(status_of(ask(2)) == ErrorCode::kBusy);
  fixture.report(1, collective::EventType::kFormed);
  CHECK_FALSE(ask(3));

  Request leave;
  leave.type = RequestType::kLeaveGroup;
  leave.group_handle = CommandFixture::kGroup;
  fixture.commands->leave_group(&leave);
  CHECK(status_of(ask(4)) == ErrorCode::kNotFound);
  CHECK(fixture.finished() == nullptr);
  fixture.report(0, collective::EventType::kClosed);
  CHECK(fixture.finished() == nullptr);
  CHECK_FALSE(client.completion());
  fixture.report(1, collective::EventType::kClosed);
  CHECK(status_of(client.completion()) == ErrorCode::kAborted);  // request 3 was unfinished
  CHECK(fixture.finished() == &leave);
  CHECK(status_of(ask(5)) == ErrorCode::kNotFound);

  Request again = leave;
  fixture.commands->leave_group(&again);
  CHECK(fixture.finished() == &again);
}

TEST_CASE("a group of fewer lanes than the daemon waits for its own only") {
  CommandFixture fixture(3);
  TestClient& client = fixture.add_client(1);
  const std::vector<std::uint32_t> members = {1};
  OpLimits limits = CommandFixture::kLimits;  // two lanes
  fixture.commands->add_group(CommandFixture::kGroup, members, 0, limits);
  fixture.report(0, collective::EventType::kFormed);
  fixture.report(1, collective::EventType::kFormed);
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  CHECK(fixture.ops(0));
  CHECK(fixture.ops(1));
  CHECK_FALSE(fixture.ops(2));
  fixture.report(0, collective::EventType::kOpDone, 1);
  fixture.report(1, collective::EventType::kOpDone, 1);
  CHECK(status_of(client.completion()) == ErrorCode::kOk);
}

TEST_CASE("a lane whose ring is full gets the ops later") {
  CommandFixture fixture(2, 2);  // a ring of two holds one message
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto command = CommandFixture::command(i);
    command.input_offset = command.output_offset = i * 4096;
    REQUIRE(client.queue.push_command(command));
    fixture.commands->poll();
    if (i < 2) CHECK(fixture.ops(0)->op_seq == i + 1);
  }
  CHECK(fixture.ops(1)->op_seq == 1);  // what was in it when it was full
  CHECK(fixture.commands->poll());
  CHECK(fixture.ops(1)->op_seq == 3);
}

TEST_CASE("sleeping: clients see the flag, and a command that came first is seen") {
  CommandFixture fixture(1);
  TestClient& client = fixture.add_client(1);
  fixture.commands->set_sleeping(true);
  CHECK(client.queue.daemon_sleeps());
  CHECK_FALSE(fixture.commands->has_command());
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  CHECK(fixture.commands->has_command());
  fixture.commands->set_sleeping(false);
  CHECK_FALSE(client.queue.daemon_sleeps());
}
