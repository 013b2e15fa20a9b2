// SPDX-License-Identifier: BSD-3-Clause
// Ops whose inputs are not there yet: ready events of a client.
#include <catch2/catch.hpp>

#include "command/command_lane.h"
#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

namespace {

struct TestEvent final : reduce::ReadyEvent {
  State next = State::kPending;
  int asked = 0;
  State state() noexcept override {
    ++asked;
    return next;
  }
};

}  // namespace

TEST_CASE("an op is handed out when every member's input is there, in order") {
  using State = reduce::ReadyEvent::State;
  CommandFixture fixture;
  TestClient& first = fixture.add_client(1);
  TestClient& second = fixture.add_client(2);
  fixture.add_group({1, 2});
  TestEvent early;
  TestEvent late;
  fixture.commands->add_event(1, 5, &early);
  fixture.commands->add_event(2, 6, &late);
  CHECK_FALSE(fixture.commands->waits_for_input());
  auto command = CommandFixture::command(1);
  command.ready_event = 5;
  REQUIRE(first.queue.push_command(command));
  command.ready_event = 6;
  REQUIRE(second.queue.push_command(command));
  // The next op's inputs are there: it still comes after.
  auto next = CommandFixture::command(2);
  next.input_offset = next.output_offset = 65'536;
  REQUIRE(first.queue.push_command(next));
  REQUIRE(second.queue.push_command(next));
  fixture.commands->poll();
  CHECK(fixture.commands->waits_for_input());
  CHECK_FALSE(fixture.ops(0));
  early.next = State::kReady;
  fixture.commands->poll();
  CHECK_FALSE(fixture.ops(0));
  const MembersWait wait = fixture.commands->members_wait(CommandFixture::kGroup);
  CHECK(wait.op_seq == 1);
  CHECK(wait.member == 1);
  CHECK(wait.computes);
  const int asked = early.asked;
  early.next = State::kPending;  // its client marks it again, for a later op
  late.next = State::kReady;
  CHECK(fixture.commands->poll());
  CHECK(early.asked == asked);
  REQUIRE(fixture.ops(1));
  const auto ops = fixture.ops(0);
  REQUIRE(ops);
  CHECK(ops->op_seq == 2);
  CHECK_FALSE(fixture.commands->waits_for_input());
  fixture.op_done(1);
  CHECK(status_of(first.completion()) == ErrorCode::kOk);
}

TEST_CASE("an event of another client, or of none, is refused; a stream that failed aborts") {
  CommandFixture fixture;
  TestClient& client = fixture.add_client(1);
  fixture.add_client(2);
  fixture.add_group({1});
  TestEvent event;
  fixture.commands->add_event(2, 1, &event);
  auto command = CommandFixture::command(1);
  command.ready_event = 1;
  REQUIRE(client.queue.push_command(command));
  fixture.commands->poll();
  const auto refused = client.completion();
  CHECK(status_of(refused) == ErrorCode::kNotFound);
  CHECK_THAT(refused->text, Catch::Contains("event 1"));
  CHECK(event.asked == 0);

  fixture.commands->add_event(1, 1, &event);
  REQUIRE(client.queue.push_command(command));
  fixture.commands->poll();
  CHECK(fixture.commands->waits_for_input());
  event.next = reduce::ReadyEvent::State::kFailed;
  fixture.commands->poll();
  std::uint64_t handle = 0;
  AbortReason reason;
  REQUIRE(fixture.commands->pop_abort(handle, reason));
  CHECK(reason.code == AbortCode::kReduceFailed);
  CHECK_THAT(reason.detail, Catch::Contains("member 0") && Catch::Contains("stream"));
  CHECK_FALSE(fixture.commands->waits_for_input());
  CHECK_FALSE(fixture.ops(0));
}

TEST_CASE("an abort does not wait for an input, and its event is not asked again") {
  CommandFixture fixture;
  TestClient& client = fixture.add_client(1);
  fixture.add_group({1});
  TestEvent event;
  fixture.commands->add_event(1, 1, &event);
  auto command = CommandFixture::command(1);
  command.ready_event = 1;
  REQUIRE(client.queue.push_command(command));
  fixture.commands->poll();
  for (std::uint8_t lane = 0; lane < 2; ++lane) {
    fixture.report(lane, collective::EventType::kAborted, 0, CommandFixture::kGroup, silence());
  }
  CHECK(status_of(client.completion()) == ErrorCode::kAborted);
  const int asked = event.asked;
  fixture.commands->poll();
  CHECK(event.asked == asked);
}
