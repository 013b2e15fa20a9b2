// SPDX-License-Identifier: BSD-3-Clause
#include "control/manager.h"

#include "fake_daemon.h"

namespace gradwire::control {

using ipc::MessageType;
using test::FakeDaemon;
using test::RequestType;

TEST_CASE("describe needs no open, and gives this daemon's entry") {
  FakeDaemon daemon;
  const std::uint32_t id = daemon.send(1, MessageType::kDescribe, {});
  const auto sent = daemon.take(1);
  CHECK(sent.header.request_id == id);
  const auto info = ipc::body_as<ipc::RankInfo>(sent.body).value();
  CHECK(info.incarnation == 100);
  CHECK(info.lanes == 2);
  CHECK(info.address_count == 1);
}

TEST_CASE("everything else needs an open first") {
  FakeDaemon daemon;
  for (const auto type : {MessageType::kAllocate, MessageType::kFree, MessageType::kJoin,
                          MessageType::kLeave, MessageType::kAbort}) {
    daemon.send(1, type, {});
    daemon.refused(1, ErrorCode::kInvalidArgument, "came before 'open'");
  }
  // Nor does one help whose answer is still to come.
  daemon.lanes.answers.clear();
  daemon.send(1, MessageType::kOpen, ipc::OpenRequest{});
  daemon.send(1, MessageType::kAllocate, ipc::AllocateRequest{4096});
  daemon.refused(1, ErrorCode::kInvalidArgument, "came before 'open'");
}

TEST_CASE("bodies of wrong size are refused, whatever the type") {
  FakeDaemon daemon;
  daemon.send(1, MessageType::kOpen, {});
  daemon.refused(1, ErrorCode::kInvalidArgument, "request 'open' of 0 bytes");
  daemon.open(1);
  const std::vector<std::byte> bytes(1000);
  for (const auto type : {MessageType::kOpen, MessageType::kAllocate, MessageType::kFree,
                          MessageType::kJoin, MessageType::kLeave, MessageType::kAbort}) {
    for (const std::size_t size : {0u, 1u, 7u, 1000u}) {
      daemon.send(1, type, std::span(bytes).first(size));
      CHECK(daemon.take(1).code() == ErrorCode::kInvalidArgument);
    }
  }
  CHECK(daemon.manager->client_count() == 1);
  CHECK(daemon.manager->group_count() == 0);
}

TEST_CASE("unknown types are refused, events of ours among them") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.send(1, static_cast<MessageType>(77), {});
  daemon.refused(1, ErrorCode::kUnsupported, "type 77");
  daemon.send(1, MessageType::kGroupAborted, {});
  daemon.refused(1, ErrorCode::kUnsupported, "type 100");
}

TEST_CASE("a full lane ring delays requests, and keeps their order") {
  FakeDaemon daemon;
  daemon.lanes.full = true;
  daemon.send(1, MessageType::kOpen, ipc::OpenRequest{});
  daemon.send(2, MessageType::kOpen, ipc::OpenRequest{});
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.status_json()["lanes"][0]["requests_unsent"] == 2);
  daemon.hang_up(1);
  daemon.lanes.full = false;
  daemon.poll();
  REQUIRE(daemon.lanes.log.size() == 3);
  CHECK(daemon.lanes.log[0].second == RequestType::kAddClient);
  CHECK(daemon.lanes.log[2].second == RequestType::kRemoveClient);
  CHECK(daemon.waiting(1) == 0);
  CHECK(daemon.take(2).code() == ErrorCode::kOk);
}

TEST_CASE("notices about what is unknown change nothing") {
  FakeDaemon daemon;
  daemon.open(1);
  command::Request foreign;
  daemon.lanes.done(0, &foreign);
  daemon.lanes.formed(99, 0);
  daemon.lanes.aborted(99, 0, {});
  command::Notice fault;
  fault.type = command::NoticeType::kClientFault;
  fault.client_id = 99;
  daemon.lanes.notices.push_back(fault);
  daemon.hang_up(77);
  daemon.poll();
  CHECK(daemon.manager->client_count() == 1);
  CHECK(daemon.waiting(1) == 0);
}

}  // namespace gradwire::control
