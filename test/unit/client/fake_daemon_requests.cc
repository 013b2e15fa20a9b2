// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <stdexcept>

#include "fake_daemon.h"
#include "ipc/join_message.h"

namespace gradwire::test {

using ipc::MessageType;

void FakeDaemon::on_message(const Place& place, ipc::Message&& message) {
  const ipc::MessageHeader header = message.header;
  if (message.type() == MessageType::kFree) ++frees;
  if (message.type() == MessageType::kLeave) ++leaves;
  if (ignore_requests) return;
  switch (message.type()) {
    case MessageType::kOpen:
      return open(place, message);
    case MessageType::kAllocate:
      return allocate(place, message);
    case MessageType::kFree: {
      const auto body = *ipc::body_as<ipc::FreeRequest>(message.body);
      Client& client = clients_.at(place);
      const auto it = client.memories.find(body.memory);
      if (it == client.memories.end()) {
        return refuse(place, header, ErrorCode::kNotFound, "no such memory");
      }
      client.memory_bytes -= it->second.bytes();
      client.memories.erase(it);
      return reply(place, header, {});
    }
    case MessageType::kDescribe: {
      ipc::RankInfo info;
      info.incarnation = place.rank_index + 1000;
      info.lanes = 1;
      if (const auto wanted = ipc::body_as<ipc::DescribeRequest>(message.body); wanted && !is_old) {
        // Where the entry has the wish, and the id of the job's key: here the key's first bytes.
        info.keys[2] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(wanted->mode) - 1);
        if (wanted->has_job_key != 0) std::copy_n(wanted->job_key, 8, info.keys + 88);
      }
      described_bytes = message.body.size();
      return reply(place, header, ipc::bytes_of(info));
    }
    case MessageType::kJoin:
      return join(place, message);
    case MessageType::kLeave: {
      Group* group = group_by_handle(ipc::body_as<ipc::GroupRequest>(message.body)->group_handle);
      for (Member& member : group->all) member.left |= member.place == place;
      return reply(place, header, {});
    }
    case MessageType::kAbort: {
      const auto body = *ipc::body_as<ipc::AbortRequest>(message.body);
      abort(*group_by_handle(body.group_handle),
            fmt::format("a member of rank {} aborted: {}", place.rank_index,
                        ipc::text_of(body.text)));
      return reply(place, header, {});
    }
    case MessageType::kMakeEvent:
      return make_event(place, message);
    case MessageType::kStatus:
      return status(place, message);
    case MessageType::kClose:
      return;
    case MessageType::kInject:
    case MessageType::kLoadKeys:
    case MessageType::kTrace:
    case MessageType::kDrain:
    case MessageType::kGroupAborted:
    case MessageType::kCutOff:
      break;
  }
  refuse(place, header, ErrorCode::kUnsupported, "no such message");
}

void FakeDaemon::join(const Place& place, const ipc::Message& message) {
  const auto body = ipc::parse_join(message);
  if (!body) return refuse(place, message.header, body.error().code, body.error().message);
  const ipc::JoinRequest& request = body->request;
  if (body->table[request.rank].incarnation != place.rank_index + 1000) {
    return refuse(place, message.header, ErrorCode::kInvalidArgument,
                  "this daemon is not that rank");
  }
  joined_mode = body->wants.mode;
  joined_job = body->wants.job[0];
  Group& group = groups_[{request.group_id, request.epoch}];
  if (group.all.empty()) {
    group.handle = next_id_++;
    group.nranks = request.nranks;
    group.ranks = body->ranks;
    if (group.ranks.empty()) {
      for (std::uint16_t rank = 0; rank < group.nranks; ++rank) {
        group.ranks.insert(group.ranks.end(), request.member_count, rank);
      }
    }
    group.all.resize(group.ranks.size());
  }
  std::size_t process = 0;
  for (int before = request.member; group.ranks[process] != request.rank || before-- > 0;) {
    ++process;
  }
  Member& member = group.all[process];
  if (member.joined) return refuse(place, message.header, ErrorCode::kBusy, "joined already");
  member.joined = true;
  member.place = place;
  member.join_request = message.header.request_id;
  for (const Member& other : group.all) {
    if (!other.joined) return;
  }
  group.formed = true;
  for (const Member& other : group.all) {
    ipc::JoinReply formed;
    formed.group_handle = group.handle;
    formed.payload_bytes = 8192;
    formed.lanes = 1;
    ipc::MessageHeader header;
    header.type = static_cast<std::uint16_t>(MessageType::kJoin);
    header.request_id = other.join_request;
    reply(other.place, header, ipc::bytes_of(formed));
  }
}

void FakeDaemon::status(const Place& place, const ipc::Message& message) {
  if (abort_if_asked) {
    for (auto& [key, group] : groups_) abort(group, "it ended meanwhile");
  }
  std::string groups;
  for (const auto& [key, group] : groups_) {
    groups += fmt::format(
        R"({}{{"handle":{},"group_id":"{:016x}","epoch":{},"state":"formed","rank":{},"nranks":{},)"
        R"("payload_bytes":8192,"formats":{},"why_no_formats":"{}",)"
        R"("aborted":null,"waits_for":["op {} on lane 0: data from upstream rank {}"]}})",
        groups.empty() ? "" : ",", group.handle, key.first, key.second, place.rank_index,
        group.nranks, !no_formats && group.nranks > 1, no_formats ? "it was told so" : "",
        group.op_seq + 1, (place.rank_index + group.nranks - 1) % group.nranks);
  }
  const std::string text = fmt::format(
      R"({{"daemon":{{"version":"fake","pid":1,"state":"running","uptime_s":1.0}},"lanes":[],)"
      R"("groups":[{}],"clients":[]}})",
      groups);
  reply(place, message.header, std::as_bytes(std::span(text)));
}

void FakeDaemon::reply(const Place& place, const ipc::MessageHeader& to,
                       std::span<const std::byte> body, std::vector<ipc::UniqueFd> fds) {
  if (to.request_id == ipc::kNoReply) return;
  ipc::MessageHeader header;
  header.type = to.type;
  header.request_id = to.request_id;
  servers_[place.rank_index]->send(place.connection, header, body, std::move(fds));
}

void FakeDaemon::refuse(const Place& place, const ipc::MessageHeader& to, ErrorCode code,
                        const std::string& text) {
  ++refusals;
  if (to.request_id == ipc::kNoReply) return;
  ipc::MessageHeader header;
  header.type = to.type;
  header.request_id = to.request_id;
  header.error_code = static_cast<std::uint32_t>(code);
  servers_[place.rank_index]->send(place.connection, header, ipc::bytes_of(ipc::error_body(text)),
                                   {});
}

FakeDaemon::Group* FakeDaemon::group_by_handle(std::uint64_t handle) {
  for (auto& [key, group] : groups_) {
    if (group.handle == handle) return &group;
  }
  throw std::logic_error("a client named a group that is not there");
}

}  // namespace gradwire::test
