// SPDX-License-Identifier: BSD-3-Clause
// The status as JSON: what an operator asks first is who waits for whom since when. 64-bit ids are
// hexadecimal strings, since JSON numbers are doubles to many readers; times are seconds.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

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

/// Members that have left before the others.
std::string members_left(const Group& group) {
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

/// A sealed memfd that holds `text`: for a status that no message can hold.
ipc::UniqueFd text_file(const std::string& text) {
  ipc::UniqueFd fd(::memfd_create("gradwire-status", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return {};
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote <= 0) return {};
    done += static_cast<std::size_t>(wrote);
  }
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return {};
  return fd;
}

}  // namespace

json Manager::status(TimeNs now) const {
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
    result["groups"].push_back(group_status(*group, now));
    for (json& op : ops_status(*group, now)) result["ops"].push_back(std::move(op));
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
    OpWait wait;
    wait.op_seq = members->op_seq;
    wait.rank = group.rank;
    wait.since = members->since;
    wait.text = fmt::format(
        "op {}: member {} of this rank, {}", members->op_seq, members->member,
        members->computes ? "whose stream still computes its input" : "which has not called it");
    ops.push_back(op_json(group, 0, wait, {}, now));
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
  std::uint64_t retransmissions = 0;
  if (group.plan != nullptr) {
    for (std::uint8_t lane = 0; lane < group.agreement.lanes; ++lane) {
      const ring::ShardStatus status = lanes_.shard_status(*group.plan, lane, now);
      shards.push_back(shard_json(lane, status));
      retransmissions += status.counters.retransmissions;
      if (group.state != GroupState::kFormed || group.reason.is_set()) continue;
      OpWait wait = op_wait(group, lane, status, now);
      if (wait.op_seq != 0) waits.push_back(std::move(wait.text));
    }
  }
  if (group.state < GroupState::kFormed) waits.push_back(what_is_missing(group, now));
  if (group.state == GroupState::kClosing) waits = lanes_to_close(group);
  const bool members_wait = group.leave_deadline != kNever || group.reason.is_set();
  if ((group.state == GroupState::kFormed && members_wait) || group.state == GroupState::kClosed) {
    waits.push_back(members_left(group));
  }
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
  static constexpr const char* kStates[] = {"adding", "live", "removing", "lingering"};
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

void Manager::reply_json(const PendingReply& to, const json& value) {
  // Texts may come from clients: bytes that are no UTF-8 are replaced, not thrown at us.
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= ipc::kMaxMessageBytes - sizeof(ipc::MessageHeader)) {
    return reply(to, std::as_bytes(std::span(text)));
  }
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(text_file(text));
  if (!fds.front()) {
    return reply_error(to, {ErrorCode::kSystem, "no memfd for the status could be made"});
  }
  reply(to, {}, std::move(fds));
}

}  // namespace gradwire::group
