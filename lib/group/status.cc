// SPDX-License-Identifier: BSD-3-Clause
// The status as JSON: what an operator asks first is who waits for whom since when. 64-bit ids are
// hexadecimal strings, since JSON numbers are doubles to many readers; times are seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "group/manager.h"
#include "group/shard_json.h"

namespace gradwire::group {
namespace {

using nlohmann::json;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

/// Lane i takes path i modulo their number.
json neighbour_status(std::span<const NeighbourPath> paths) {
  if (paths.empty()) return nullptr;
  json out = json::array();
  for (const NeighbourPath& path : paths) {
    out.push_back({{"port", path.port},
                   {"local_ip", wire::to_string(path.local_ip)},
                   {"remote_ip", wire::to_string(path.remote_ip)},
                   {"remote_mac",
                    path.remote_mac ? json(wire::to_string(*path.remote_mac)) : json(nullptr)}});
  }
  return {{"rank", paths.front().rank},
          {"incarnation", hex(paths.front().incarnation)},
          {"paths", std::move(out)}};
}

json reduce_json(const std::vector<ReduceTotal>& totals) {
  json out = json::array();
  for (const ReduceTotal& total : totals) {
    out.push_back({{"backend", total.backend},
                   {"path", total.path},
                   {"chunks_reduced", total.counters.chunks_reduced},
                   {"chunks_moved", total.counters.chunks_moved},
                   {"bytes", total.counters.bytes}});
  }
  return out;
}

OpWait members_op_wait(const Group& group, const lane::MembersWait& members) {
  OpWait wait;
  wait.op_seq = members.op_seq;
  wait.rank = group.rank;
  wait.since = members.since;
  wait.text = fmt::format(
      "op {}: member {} of this rank (pid {}), {}", members.op_seq, members.member,
      members.member < group.members.size() ? group.members[members.member].pid : 0,
      members.computes ? "whose stream still computes its input" : "which has not called it");
  return wait;
}

/// Takes away what a packet that this group believes would need.
void hide_names(const Group& group, json& status) {
  status["group_id"] = hidden_name(group.handle);
  status["table_digest"] = nullptr;
  for (const char* neighbour : {"downstream", "upstream"}) {
    if (status[neighbour].is_object()) status[neighbour]["incarnation"] = nullptr;
  }
  if (!group.reason.is_set()) return;
  AbortReason reason = group.reason;
  reason.detail[0] = '\0';  // it may tell a digest, or what a client wrote
  status["aborted"] = describe(reason);
}

/// Members that the group is kept for: they have not left yet.
std::string members_to_leave(const Group& group) {
  std::string text;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (group.members[i].left) continue;
    text += fmt::format("{}{}", text.empty() ? "member " : ", ", i);
  }
  return text + " to leave";
}

json lanes_to_close(const Group& group) {
  json lanes = json::array();
  for (std::uint8_t lane = 0; lane < group.agreement.lanes; ++lane) {
    if (!group.lanes_closed.test(lane)) lanes.push_back(fmt::format("lane {} to close", lane));
  }
  return lanes;
}

/// Unanswered requests for a text that a connection may have; its threads wait for answers.
constexpr std::size_t kAsksOfConnection = 64;

}  // namespace

Manager::Text::Text(const json& value)
    // Texts may come from clients: bytes that are no UTF-8 are replaced, not thrown at us.
    : text(value.dump(-1, ' ', false, json::error_handler_t::replace)),
      is_long(text.size() > ipc::kMaxMessageBytes - sizeof(ipc::MessageHeader)) {
  if (is_long) file = text_file(text);
}

json Manager::status(TimeNs now, uid_t viewer) const {
  json result;
  result["daemon"] = daemon_status(now);
  result["lanes"] = json::array();
  for (std::uint8_t lane = 0; lane < lanes_.lanes(); ++lane) {
    result["lanes"].push_back(lane_status(lane, now));
  }
  std::vector<ReduceTotal> totals = lanes_.reduce_totals();
  for (const auto& [handle, group] : groups_) {
    if (group->plan == nullptr) continue;
    for (std::uint8_t lane = 0; lane < group->agreement.lanes; ++lane) {
      const ring::ShardStatus shard = lanes_.shard_status(*group->plan, lane, now);
      if (*shard.backend_name == '\0') continue;  // the lane has published nothing yet
      add_to(totals, shard.backend_name, shard.backend_path, shard.backend);
    }
  }
  result["reduce"] = reduce_json(totals);
  result["faults"] = faults_status();
  result["groups"] = json::array();
  result["ops"] = json::array();
  for (const auto& [handle, group] : groups_) {
    const bool open = may_see(viewer, group->uid);
    result["groups"].push_back(group_status(*group, now));
    if (!open) hide_names(*group, result["groups"].back());
    for (json& op : ops_status(*group, now)) {
      if (!open) op["group_id"] = hidden_name(handle);
      result["ops"].push_back(std::move(op));
    }
  }
  result["ports"] = lanes_.ports_status();
  result["clients"] = json::array();
  for (const auto& [id, client] : clients_)
    result["clients"].push_back(client_status(*client, now));
  return result;
}

json Manager::lane_status(std::uint8_t lane, TimeNs now) const {
  json entry = lanes_.lane_status(lane);
  entry["lane"] = lane;
  entry["requests_unsent"] = unsent_[lane].size();
  // Of all groups that were ever here, so that the sums never go down.
  ring::ShardCounters total = lanes_.shard_totals(lane);
  for (const auto& [handle, group] : groups_) {
    if (group->plan == nullptr || lane >= group->agreement.lanes) continue;
    total += lanes_.shard_status(*group->plan, lane, now).counters;
  }
  entry["transport"] = counters_json(total);
  return entry;
}

json Manager::ops_status(const Group& group, TimeNs now) const {
  json ops = json::array();
  if (group.plan == nullptr || group.state != GroupState::kFormed || group.reason.is_set()) {
    return ops;
  }
  for (std::uint8_t lane = 0; lane < group.agreement.lanes; ++lane) {
    const ring::ShardStatus status = lanes_.shard_status(*group.plan, lane, now);
    const OpWait wait = op_wait(group, lane, status, now);
    if (wait.op_seq != 0) ops.push_back(op_json(group, lane, wait, status, now));
  }
  if (const auto members = lanes_.members_wait(group.handle)) {
    ops.push_back(op_json(group, 0, members_op_wait(group, *members), {}, now));
  }
  return ops;
}

json Manager::daemon_status(TimeNs now) const {
  const DaemonInfo& daemon = options_.daemon;
  json addresses = json::array();
  for (const LocalAddress& local : lanes_.addresses()) {
    addresses.push_back(
        {{"port", local.port},
         {"address", fmt::format("{}/{}", wire::to_string(local.ip), local.prefix_bits)}});
  }
  json warnings = daemon.warnings;
  // What passes is told as it is now.
  for (const json& port : lanes_.ports_status()) {
    if (port.value("up", true)) continue;
    warnings.push_back(
        fmt::format("port {}: the link is down: groups over it form when it comes up",
                    port.value("device", "?")));
  }
  static constexpr const char* kStates[] = {"running", "stopping", "closing"};
  static constexpr const char* kDrains[] = {"running", "draining", "drained"};
  const char* state = stop_ != StopState::kRunning ? kStates[static_cast<std::size_t>(stop_)]
                                                   : kDrains[static_cast<std::size_t>(drain_)];
  return {{"version", daemon.version},
          {"pid", ::getpid()},
          {"state", state},
          {"uptime_s", seconds(now - started_)},
          {"incarnation", hex(daemon.incarnation)},
          {"lanes", lanes_.lanes()},
          {"max_payload_bytes", daemon.max_payload_bytes},
          {"features", daemon.features},
          {"base_udp_port", daemon.base_udp_port},
          {"numa_node", daemon.numa_node},
          {"addresses", std::move(addresses)},
          {"datapath", daemon.datapath},
          {"warnings", std::move(warnings)},
          {"requests_outstanding", outstanding_.size()}};
}

json Manager::group_status(const Group& group, TimeNs now) const {
  json members = json::array();
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = group.members[i];
    const char* state = !member.joined() ? "missing" : member.left ? "left" : "joined";
    members.push_back(
        {{"member", i}, {"client", member.client_id}, {"pid", member.pid}, {"state", state}});
  }
  json waits = json::array();
  json shards = json::array();
  std::vector<std::string> held;  // after an abort
  std::uint64_t retransmissions = 0;
  if (group.plan != nullptr) {
    for (std::uint8_t lane = 0; lane < group.agreement.lanes; ++lane) {
      const ring::ShardStatus status = lanes_.shard_status(*group.plan, lane, now);
      shards.push_back(shard_json(lane, status));
      retransmissions += status.counters.retransmissions;
      if (group.reason.is_set() && status.in_backend > 0) {
        held.push_back(fmt::format(
            "lane {}: the backend {} to give back {} chunks: memory of unfinished ops stays with "
            "the daemon until then",
            lane, status.backend_name, status.in_backend));
      }
      if (group.state != GroupState::kFormed || group.reason.is_set()) continue;
      OpWait wait = op_wait(group, lane, status, now);
      if (wait.op_seq != 0) waits.push_back(std::move(wait.text));
    }
  }
  if (group.state == GroupState::kFormed && !group.reason.is_set()) {
    if (const auto late = lanes_.members_wait(group.handle)) {
      waits.push_back(members_op_wait(group, *late).text);
    }
  }
  if (group.state < GroupState::kFormed) waits.push_back(what_is_missing(group, now));
  if (group.state == GroupState::kClosing) waits = lanes_to_close(group);
  const bool members_wait = group.leave_deadline != kNever || group.reason.is_set();
  if ((group.state == GroupState::kFormed && members_wait) || group.state == GroupState::kClosed) {
    waits.push_back(members_to_leave(group));
  }
  for (std::string& what : held) waits.push_back(std::move(what));
  return {{"group_id", hex(group.key.group_id)},
          {"epoch", group.key.epoch},
          {"handle", group.handle},
          {"state", name_of(group.state)},
          {"state_since_s", seconds(now - group.since)},
          {"aborted", group.reason.is_set() ? json(describe(group.reason)) : json(nullptr)},
          {"waits_for", std::move(waits)},
          {"rank", group.rank},
          {"nranks", group.nranks()},
          {"uid", group.uid},
          {"lanes", group.agreement.lanes},
          {"payload_bytes", group.agreement.payload_bytes},
          {"table_digest", hex(group.digest)},
          {"retransmissions", retransmissions},
          {"members", std::move(members)},
          {"downstream", neighbour_status(group.downstream)},
          {"upstream", neighbour_status(group.upstream)},
          {"idle_networks", group.idle_networks},
          {"shards", std::move(shards)}};
}

json Manager::client_status(const Client& client, TimeNs now) const {
  json memories = json::array();
  static constexpr const char* kStates[] = {"making", "adding", "live", "removing", "lingering"};
  for (const auto& [handle, memory] : client.memories) {
    memories.push_back({{"memory", handle},
                        {"bytes", memory.bytes()},
                        {"on_gpu", memory.on_gpu()},
                        {"page_bytes", memory.mapping.page_bytes()},
                        {"numa_node", memory.mapping.numa_node()},
                        {"state", kStates[static_cast<std::size_t>(memory.state)]}});
  }
  return {{"client", client.id},
          {"pid", client.peer.pid},
          {"uid", client.peer.uid},
          {"since_s", seconds(now - client.since)},
          {"state", client.retired      ? "retired"
                    : client.open_reply ? "opening"
                                        : "open"},
          {"memory_bytes", client.memory_bytes()},
          {"memories", std::move(memories)}};
}

void Manager::reply_json(const PendingReply& to, const json& value) { reply_text(to, Text(value)); }

void Manager::reply_text(const PendingReply& to, const Text& text) {
  if (!text.is_long) return reply(to, std::as_bytes(std::span(text.text)));
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(for_reading(text.file));
  if (!fds.front()) {
    return reply_error(to, {ErrorCode::kSystem,
                            fmt::format("the {} has {} bytes, and no file for it could be made",
                                        ipc::name_of(to.type), text.text.size())});
  }
  reply(to, {}, std::move(fds));
}

void Manager::ask(Asks& asks, const PendingReply& to, uid_t viewer) {
  Asker& asker = asks.waiting[to.connection];
  asker.viewer = viewer == ::geteuid() ? 0 : viewer;  // who sees as much as root
  std::deque<PendingReply>& mine = asker.replies;
  if (mine.size() >= kAsksOfConnection) {
    return reply_error(to, {ErrorCode::kBusy,
                            fmt::format("{} requests for the {} of this connection are unanswered",
                                        mine.size(), ipc::name_of(to.type))});
  }
  mine.push_back(to);
}

void Manager::serve(Asks& asks, const std::function<std::function<json()>(uid_t)>& prepare) {
  if (asks.making || asks.waiting.empty()) return;
  std::set<uid_t> viewers;
  for (const auto& [connection, asker] : asks.waiting) viewers.insert(asker.viewer);
  const auto next = viewers.upper_bound(asks.last_viewer);
  const uid_t viewer = asks.last_viewer = next == viewers.end() ? *viewers.begin() : *next;
  std::vector<PendingReply> to;
  for (auto at = asks.waiting.begin(); at != asks.waiting.end();) {
    if (at->second.viewer != viewer) {
      ++at;
      continue;
    }
    to.push_back(at->second.replies.front());
    at->second.replies.pop_front();
    at = at->second.replies.empty() ? asks.waiting.erase(at) : std::next(at);
  }
  asks.making = true;
  const auto text = std::make_shared<Text>();
  worker_.submit(
      ipc::Worker::Order::kFirst,
      [text, make = prepare(viewer)] {
        *text = Text(make());
        return true;
      },
      [this, &asks, text, to = std::move(to), viewer] {
        asks.making = false;
        for (const PendingReply& one : to) reply_text(one, *text);
        if (text->file) lent_.lend(std::move(text->file), text->text.size(), viewer, polled_at_);
      });
}

void Manager::serve_texts(TimeNs now) {
  serve(status_asks_, [&](uid_t viewer) -> std::function<json()> {
    // Of what changes all the time, so that it has to be looked at here.
    return [value = std::make_shared<json>(status(now, viewer))] { return std::move(*value); };
  });
  serve(trace_asks_, [&](uid_t viewer) { return prepare_trace(now, viewer); });
}

}  // namespace gradwire::group
