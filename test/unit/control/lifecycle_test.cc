// SPDX-License-Identifier: BSD-3-Clause
#include "fake_daemon.h"

namespace gradwire::control {
namespace {

using ipc::MessageType;
using test::FakeDaemon;
using test::is_mapped;
using test::join_body;
using test::RequestType;
using test::table_of;

AbortReason silence_of(std::uint16_t rank) {
  AbortReason reason;
  reason.code = AbortCode::kSilence;
  reason.culprit_rank = rank;
  reason.duration_ns = 2'000'000'000;
  return reason;
}

}  // namespace

TEST_CASE("a leave is answered when every lane has closed") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1});
  daemon.leave(1, handle);
  CHECK(daemon.lanes.holding(RequestType::kLeaveGroup).size() == 2);
  CHECK(daemon.waiting(1) == 0);
  // One lane alone is not enough.
  const auto [lane, request] = daemon.lanes.held.front();
  daemon.lanes.held.pop_front();
  daemon.lanes.done(lane, request);
  daemon.poll();
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.lanes.plans_destroyed == 0);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.lanes.plans_destroyed == 1);
  CHECK(daemon.manager->group_count() == 0);
  daemon.leave(1, handle);
  daemon.refused(1, ErrorCode::kNotFound, "group handle 1");
}

TEST_CASE("a leave that nobody waits for is not answered, nor told of an abort") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  daemon.send(2, MessageType::kLeave, ipc::bytes_of(ipc::GroupRequest{handle}), 500, ipc::kNoReply);
  daemon.send(2, MessageType::kLeave, ipc::bytes_of(ipc::GroupRequest{99}), 500, ipc::kNoReply);
  daemon.lanes.aborted(handle, 0, silence_of(1));
  daemon.poll();
  daemon.take_abort_event(1, handle);
  daemon.leave(1, handle);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.waiting(2) == 0);
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a client names only its own groups, and only once they are formed") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1});
  daemon.leave(2, handle);
  daemon.refused(2, ErrorCode::kNotFound, "does not name a group that this client is a member of");
  ipc::AbortRequest abort;
  abort.group_handle = handle;
  daemon.send(2, MessageType::kAbort, abort);
  daemon.refused(2, ErrorCode::kNotFound, "group handle 1");
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
  // A handle that can be guessed is none before the join reply.
  auto body = join_body(0, table_of(2));
  body.request.group_id = 5;
  daemon.join(2, body);
  daemon.leave(2, handle + 1);
  daemon.refused(2, ErrorCode::kNotFound, "group handle 2");
}

TEST_CASE("the group leaves when its last member does") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  daemon.leave(2, handle);
  CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 0);
  // The command lane knows then what can no more be done.
  REQUIRE(daemon.lanes.count(RequestType::kMemberLeft) == 1);
  CHECK(daemon.lanes.log.back().first == 0);
  CHECK(daemon.group_json()["waits_for"][0] == "member 0 to leave");
  daemon.leave(2, handle);
  daemon.refused(2, ErrorCode::kNotFound, "group handle");
  daemon.leave(1, handle);
  CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 2);
  CHECK(daemon.lanes.count(RequestType::kMemberLeft) == 1);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
}

TEST_CASE("members that do not follow one that left abort the group in bounded time") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  daemon.leave(2, handle);
  daemon.advance(daemon.options.limits.leave_grace_ns - 1);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
  daemon.advance(1);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
  const std::string text = daemon.take_abort_event(1, handle);
  CHECK_THAT(text, Catch::Contains("member 0 (pid 1001) did not leave, member 1 (pid 1002) left"));
  daemon.take_abort_event(2, handle);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  // The other member still has its handle, and leaves in its own time.
  daemon.leave(1, handle);
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a shard's abort reaches the other lanes and every member, once") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2}, 3);
  daemon.lanes.aborted(handle, 1, silence_of(2));
  daemon.lanes.aborted(handle, 0, silence_of(1));  // crossed on the way
  daemon.poll();
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 1);
  CHECK(daemon.lanes.log.back().first == 0);
  CHECK_THAT(daemon.take_abort_event(1, handle), Catch::Contains("rank 2 was silent for 2000 ms"));
  CHECK_THAT(daemon.take_abort_event(2, handle), Catch::Contains("rank 2 was silent"));
  CHECK(daemon.waiting(1) == 0);
  // It stays until a member leaves; then nobody is waited for.
  CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 0);
  daemon.leave(1, handle);
  CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 2);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.group_json()["state"] == "closed");
  daemon.leave(2, handle);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a member's abort carries its text, without control characters") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  ipc::AbortRequest abort;
  abort.group_handle = handle;
  ipc::copy_text(abort.text, "loss is\n\033[31mNaN \xff\xc3\xa4 \xe2\x82");
  daemon.send(1, MessageType::kAbort, abort);
  // The event comes before the answer: when gw_group_abort() returns the group is aborted.
  for (const ipc::ConnectionId connection : {1, 2}) {
    CHECK_THAT(daemon.take_abort_event(connection, handle),
               Catch::Contains("a client of rank 0 aborted the group: process 0 (pid 1001): loss "
                               "is??[31mNaN ?\xc3\xa4 ??"));
  }
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
  daemon.send(2, MessageType::kAbort, abort);  // again: answered, and nothing else
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
  CHECK(daemon.waiting(1) == 0);
}

TEST_CASE("abort text without an end is cut, not read past") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1});
  ipc::AbortRequest abort;
  abort.group_handle = handle;
  std::memset(abort.text, 'x', sizeof(abort.text));
  daemon.send(1, MessageType::kAbort, abort);
  CHECK(daemon.take_abort_event(1, handle).size() < ipc::kErrorTextBytes);
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
}

TEST_CASE("an abort while the group closes is told to who waits for the close") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1});
  daemon.leave(1, handle);
  daemon.lanes.aborted(handle, 0, silence_of(1));
  daemon.poll();
  CHECK_THAT(daemon.take_abort_event(1, handle), Catch::Contains("silent"));
  CHECK(daemon.lanes.count(RequestType::kLeaveGroup) == 2);  // not told again
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
}

TEST_CASE("a client that dies takes down its groups and nothing else") {
  FakeDaemon daemon;
  for (const ipc::ConnectionId connection : {1, 2, 3}) daemon.open(connection);
  daemon.lanes.answers.erase(RequestType::kAddMemory);
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{4096});
  std::byte* base = daemon.lanes.holding(RequestType::kAddMemory).at(0)->region.base;
  daemon.lanes.finish(RequestType::kAddMemory);
  daemon.poll();
  daemon.take(1);
  const std::uint64_t shared = daemon.form({1, 2}, 2, 11);
  const std::uint64_t other = daemon.form({3}, 2, 12);
  daemon.lanes.log.clear();
  daemon.hang_up(1);

  // Its groups end before what they refer to: the lane's contract.
  std::vector<RequestType> order;
  for (const auto& [lane, type] : daemon.lanes.log) {
    if (lane == 0) order.push_back(type);
  }
  CHECK(order == std::vector<RequestType>{RequestType::kAbortGroup, RequestType::kLeaveGroup,
                                          RequestType::kRemoveMemory, RequestType::kRemoveClient});
  CHECK_THAT(daemon.take_abort_event(2, shared),
             Catch::Contains("a client process of rank 0 died: member 0 (pid 1001) hung up"));
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.waiting(3) == 0);

  CHECK(is_mapped(base));
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(is_mapped(base));
  daemon.lanes.finish(RequestType::kRemoveMemory);
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  CHECK_FALSE(is_mapped(base));
  CHECK(daemon.manager->client_count() == 2);

  // The member that lives leaves the closed group; the other group never noticed.
  CHECK(daemon.manager->group_count() == 2);
  daemon.leave(2, shared);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  CHECK(daemon.manager->group_count() == 1);
  CHECK(daemon.group_json()["handle"] == other);
  CHECK(daemon.group_json()["state"] == "formed");
  CHECK(daemon.group_json()["aborted"].is_null());
}

TEST_CASE("a client that closes by itself is not called dead") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  daemon.send(1, MessageType::kClose, {});
  CHECK(daemon.sink.hung_up.contains(1));
  CHECK_THAT(daemon.take_abort_event(2, handle),
             Catch::Contains("rank 0 left the group: member 0 (pid 1001) closed its client"));
  daemon.hang_up(1);
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.waiting(2) == 0);
}

TEST_CASE("a client that dies after it left aborts nothing") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.open(2);
  const std::uint64_t handle = daemon.form({1, 2});
  daemon.leave(1, handle);
  daemon.hang_up(1);
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
  daemon.leave(2, handle);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("a client may die while its group closes, or after an abort") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t handle = daemon.form({1});
  SECTION("closing") { daemon.leave(1, handle); }
  SECTION("aborted") {
    daemon.lanes.aborted(handle, 0, silence_of(1));
    daemon.poll();
    daemon.take_abort_event(1, handle);
  }
  daemon.hang_up(1);
  CHECK(daemon.lanes.holding(RequestType::kLeaveGroup).size() == 2);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.lanes.finish(RequestType::kRemoveClient);
  daemon.poll();
  CHECK(daemon.manager->group_count() == 0);
  CHECK(daemon.manager->client_count() == 0);
  CHECK(daemon.lanes.plans_destroyed == 1);
}

TEST_CASE("two groups of one client are independent") {
  FakeDaemon daemon;
  daemon.open(1);
  const std::uint64_t a = daemon.form({1}, 2, 11);
  const std::uint64_t b = daemon.form({1}, 2, 12);
  daemon.lanes.aborted(a, 0, silence_of(1));
  daemon.poll();
  daemon.take_abort_event(1, a);
  daemon.leave(1, b);
  for (const command::Request* request : daemon.lanes.holding(RequestType::kLeaveGroup)) {
    CHECK(request->group_handle == b);
  }
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.manager->group_count() == 1);
  daemon.leave(1, a);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
}

TEST_CASE("a stopping daemon takes nothing new and lets members leave") {
  FakeDaemon daemon;
  daemon.lanes.answers.insert({RequestType::kRemoveClient, RequestType::kRemoveMemory});
  for (const ipc::ConnectionId connection : {1, 2}) daemon.open(connection);
  const std::uint64_t handle = daemon.form({1});
  daemon.join(2, join_body(0, table_of(2), 0, 1));
  daemon.take(2);  // the same key: refused
  auto body = join_body(0, table_of(2), 0, 2);
  body.request.group_id = 9;
  daemon.join(2, body);
  daemon.manager->begin_stop(daemon.now);
  daemon.refused(2, ErrorCode::kUnavailable, "the daemon of rank 0 was stopped");
  daemon.send(3, MessageType::kOpen, ipc::OpenRequest{});
  daemon.refused(3, ErrorCode::kUnavailable, "stopping");
  daemon.join(2, body);
  daemon.refused(2, ErrorCode::kUnavailable, "stopping");
  daemon.send(2, MessageType::kAllocate, ipc::AllocateRequest{4096});
  daemon.refused(2, ErrorCode::kUnavailable, "stopping");
  CHECK_FALSE(daemon.manager->stopped(daemon.now));
  CHECK(daemon.sink.hung_up.empty());
  daemon.leave(1, handle);
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.take(1).code() == ErrorCode::kOk);
  CHECK(daemon.sink.hung_up == std::set<ipc::ConnectionId>{1, 2});
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 0);
  CHECK(daemon.manager->stopped(daemon.now));
  CHECK(daemon.manager->leftovers().empty());
}

TEST_CASE("who does not leave a stopping daemon is aborted, and the stop is bounded") {
  FakeDaemon daemon;
  daemon.lanes.answers.insert({RequestType::kRemoveClient, RequestType::kRemoveMemory});
  daemon.open(1);
  daemon.allocate(1);
  const std::uint64_t handle = daemon.form({1});
  daemon.manager->begin_stop(daemon.now);
  daemon.advance(daemon.options.limits.stop_drain_ns - 1);
  CHECK(daemon.waiting(1) == 0);
  daemon.advance(1);
  CHECK_THAT(daemon.take_abort_event(1, handle),
             Catch::Contains("the daemon of rank 0 was stopped"));
  CHECK(daemon.sink.hung_up == std::set<ipc::ConnectionId>{1});
  CHECK_FALSE(daemon.manager->stopped(daemon.now));
  SECTION("the lanes close in time") {
    daemon.lanes.finish(RequestType::kLeaveGroup);
    daemon.poll();
    CHECK(daemon.manager->stopped(daemon.now));
    CHECK(daemon.manager->leftovers().empty());
  }
  SECTION("they do not") {
    daemon.advance(daemon.options.limits.stop_close_ns);
    CHECK(daemon.manager->stopped(daemon.now));
    CHECK_THAT(daemon.manager->leftovers(),
               Catch::Contains("group 000000000000feed epoch 1 is closing (closed on 0 of 2"));
  }
  daemon.manager.reset();
  CHECK(daemon.lanes.plans.empty());
}

TEST_CASE("stopping while a group forms ends it on the lanes") {
  FakeDaemon daemon;
  daemon.lanes.answers.insert(RequestType::kRemoveClient);
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(2)));
  daemon.manager->begin_stop(daemon.now);
  daemon.poll();
  daemon.refused(1, ErrorCode::kUnavailable, "was stopped");
  CHECK(daemon.lanes.count(RequestType::kAbortGroup) == 2);
  CHECK_FALSE(daemon.manager->stopped(daemon.now));
  daemon.lanes.finish(RequestType::kLeaveGroup);
  daemon.poll();
  CHECK(daemon.manager->stopped(daemon.now));
}

}  // namespace gradwire::control
