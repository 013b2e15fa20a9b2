// SPDX-License-Identifier: BSD-3-Clause
#include "control/status_maker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "control/formation/formation_missing.h"
#include "control/shard_status.h"
#include "control/trace.h"

namespace gradwire::control {
namespace {
using nlohmann::json;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<status::Neighbor> neighbor_status(std::span<const NeighborPath> paths,
                                                const LaneControl& lanes) {
  if (paths.empty()) return std::nullopt;
  status::Neighbor out;
  out.rank = paths.front().rank;
  out.incarnation = hex(paths.front().incarnation);
  for (const NeighborPath& path : paths) {
    status::Path& entry = out.paths.emplace_back();
    entry.port = path.port;
    entry.local_ip = wire::to_string(path.local_ip);
    entry.remote_ip = wire::to_string(path.remote_ip);
    // A neighbor may have moved since the group was formed.
    const auto mac = lanes.mac_of(path.port, path.remote_ip);
    if (mac || path.remote_mac) entry.remote_mac = wire::to_string(mac ? *mac : *path.remote_mac);
  }
  return out;
}

std::vector<status::Reduce> reduce_status(const std::vector<ReduceTotal>& totals) {
  std::vector<status::Reduce> out;
  for (const ReduceTotal& total : totals) {
    out.push_back({total.backend, total.path, total.counters.chunks_reduced,
                   total.counters.chunks_moved, total.counters.bytes, total.counters.batches});
  }
  return out;
}

OpWait members_op_wait(const Group& group, const command::MembersWait& members) {
  OpWait wait;
  wait.op_seq = members.op_seq;
  wait.rank = group.rank;
  wait.since = members.since;
  wait.text = fmt::format(
      "op {}: member {} of this rank (pid {}), {}", members.op_seq, members.member,
      members.member < group.members.size() ? group.members[members.member].pid : 0,
      members.computes ? "whose stream is still computing its input" : "which has not posted it");
  return wait;
}

/// Removes everything that somebody would need to forge a packet of this group.
void hide_names(const Group& group, status::Group& shown) {
  shown.group_id = status::hidden_name(group.handle);
  shown.table_digest.reset();
  shown.job_key.clear();
  for (auto* neighbor : {&shown.downstream, &shown.upstream}) {
    if (*neighbor) (*neighbor)->incarnation.reset();
  }
  if (!group.reason.is_set()) return;
  AbortReason reason = group.reason;
  reason.detail[0] = '\0';  // it may contain a digest, or a client's text
  shown.aborted = describe(reason);
}

/// The members that have not left yet, for which the group is kept.
std::string members_to_leave(const Group& group) {
  std::string text;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (group.members[i].left) continue;
    text += fmt::format("{}{}", text.empty() ? "member " : ", ", i);
  }
  return text + " to leave";
}

std::vector<std::string> lanes_to_close(const Group& group) {
  std::vector<std::string> lanes;
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    if (!group.lanes_closed.test(lane)) lanes.push_back(fmt::format("lane {} to close", lane));
  }
  return lanes;
}

std::vector<status::LateRank> late_ranks(const Group& group, TimeNs now) {
  std::vector<status::LateRank> out;
  for (const LateRanks::Rank& late : group.late_ranks.ranks()) {
    out.push_back({late.rank, seconds(late.waited_ns), seconds(now - late.last_at)});
  }
  std::ranges::sort(out, std::greater{}, &status::LateRank::waited_s);
  return out;
}

std::vector<status::Op> ops_status(const Group& group, const Published& published, TimeNs now) {
  std::vector<status::Op> ops;
  if (group.plan == nullptr || group.state != GroupState::kFormed || group.reason.is_set()) {
    return ops;
  }
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    const collective::ShardStatus& shard = published_of(published, group, lane).status;
    const OpWait wait = op_wait(group, lane, shard, now);
    if (wait.op_seq != 0) ops.push_back(op_status(group, lane, wait, shard, now));
    if (auto transfer = transfer_status(group, lane, shard, now)) {
      ops.push_back(std::move(*transfer));
    }
  }
  const command::MembersWait& members = published_of(published, group, 0).members;
  if (members.op_seq != 0) {
    ops.push_back(op_status(group, 0, members_op_wait(group, members), {}, now));
  }
  return ops;
}

status::Client client_status(const Client& client, TimeNs now) {
  static constexpr const char* kStates[] = {"making", "adding", "live", "removing", "lingering"};
  status::Client out;
  out.client = client.id;
  out.pid = client.peer.pid;
  out.uid = client.peer.uid;
  out.since_s = seconds(now - client.since);
  out.state = client.retired ? "retired" : client.open_reply ? "opening" : "open";
  out.memory_bytes = client.memory_bytes();
  for (const auto& [handle, memory] : client.memories) {
    out.memories.push_back({handle, memory.bytes(), memory.on_gpu(), memory.mapping.page_bytes(),
                            memory.mapping.numa_node(),
                            kStates[static_cast<std::size_t>(memory.state)]});
  }
  return out;
}

}  // namespace

status::DaemonStatus StatusMaker::make(TimeNs now, uid_t viewer) const {
  const Published published = read_published(from_.reports, from_.lanes.lanes());
  status::DaemonStatus out;
  out.ports = from_.reports.ports_status();
  out.daemon = daemon_status(out.ports, now);
  for (std::uint8_t lane = 0; lane < from_.lanes.lanes(); ++lane) {
    out.lanes.push_back(lane_status(lane, published));
  }
  std::vector<ReduceTotal> totals = from_.reports.reduce_totals();
  for (const auto& [handle, group] : from_.groups.all()) {
    if (group->plan == nullptr) continue;
    for (std::uint8_t lane = 0; lane < group->wanted.lanes; ++lane) {
      const collective::ShardStatus& shard = published_of(published, *group, lane).status;
      if (*shard.backend_name == '\0') continue;  // the lane has published nothing yet
      add_to(totals, shard.backend_name, shard.backend_path, shard.backend);
    }
  }
  out.reduce = reduce_status(totals);
  out.faults = from_.faults.status();
  for (const auto& [handle, group] : from_.groups.all()) {
    const bool open = may_see(viewer, group->uid);
    out.groups.push_back(group_status(*group, published, now));
    if (!open) hide_names(*group, out.groups.back());
    for (status::Op& op : ops_status(*group, published, now)) {
      if (!open) op.group_id = status::hidden_name(handle);
      out.ops.push_back(std::move(op));
    }
  }
  for (const auto& [id, client] : from_.clients.all())
    out.clients.push_back(client_status(*client, now));
  return out;
}

std::function<json()> StatusMaker::prepare_trace(TimeNs now, uid_t viewer) const {
  return control::prepare_trace(from_.reports, from_.lanes.lanes(),
                                from_.options.daemon.incarnation, from_.groups, now, viewer);
}

status::Lane StatusMaker::lane_status(std::uint8_t lane, const Published& published) const {
  status::Lane out = from_.reports.lane_status(lane);
  out.lane = lane;
  out.requests_unsent = from_.requests.unsent(lane);
  // All groups that were ever here count, so that the sums never go down.
  collective::ShardCounters total = from_.reports.shard_totals(lane);
  for (const auto& [handle, group] : from_.groups.all()) {
    if (group->plan == nullptr || lane >= group->wanted.lanes) continue;
    const collective::ShardStatus& shard = published_of(published, *group, lane).status;
    total += shard.counters;
    out.heap_bytes += shard.scratch_bytes;
  }
  out.transport = transport_status(total);
  return out;
}

status::Daemon StatusMaker::daemon_status(std::span<const status::Port> ports, TimeNs now) const {
  const DaemonInfo& daemon = from_.options.daemon;
  status::Daemon out;
  out.version = daemon.version;
  out.pid = ::getpid();
  out.state = from_.stopping.running() ? from_.drain.name() : from_.stopping.name();
  out.uptime_s = seconds(now - started_);
  out.incarnation = hex(daemon.incarnation);
  out.lanes = from_.lanes.lanes();
  out.max_payload_bytes = daemon.max_payload_bytes;
  out.features = daemon.features;
  out.base_udp_port = daemon.base_udp_port;
  out.numa_node = daemon.numa_node;
  for (const LocalAddress& local : from_.lanes.addresses()) {
    out.addresses.push_back(
        {local.port, fmt::format("{}/{}", wire::to_string(local.ip), local.prefix_bits)});
  }
  out.security = security::name_of(from_.keys.mode());
  out.security_minimum = security::name_of(from_.keys.minimum());
  out.keys = from_.keys.ids();
  out.datapath = daemon.datapath;
  out.warnings = daemon.warnings;
  // What passes is told as it is now.
  for (const status::Port& port : ports) {
    if (port.up) continue;
    out.warnings.push_back(fmt::format(
        "port {}: the link is down: groups that use it form when it comes up", port.device));
  }
  const Group* largest = nullptr;  // of many, it says enough
  for (const auto& [handle, group] : from_.groups.all()) {
    if (group->state != GroupState::kFormed || group->wanted.direct_bytes == 0) continue;
    if (largest == nullptr || group->all_ranks() > largest->all_ranks()) largest = group.get();
  }
  if (largest != nullptr) {
    if (auto text = short_receive_ring(*largest, from_.lanes); !text.empty())
      out.warnings.push_back(text);
  }
  out.requests_outstanding = from_.requests.outstanding();
  for (const auto& [handle, group] : from_.groups.all())
    out.open_questions += group->questions.open.size();
  if (from_.options.facts) from_.options.facts(out);
  return out;
}

status::Group StatusMaker::group_status(const Group& group, const Published& published,
                                        TimeNs now) const {
  status::Group out;
  const GroupProcesses processes = group.processes();
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = group.members[i];
    const char* state = !member.joined() ? "missing" : member.left ? "left" : "joined";
    // A rank without members has a client, and no process.
    const std::uint32_t process =
        group.folds_only() ? UINT32_MAX
                           : processes.process_of(group.rank, static_cast<std::uint32_t>(i));
    out.members.push_back({i, process, member.client_id, member.pid, state});
  }
  out.group_id = hex(group.key.group_id);
  out.epoch = group.key.epoch;
  out.handle = group.handle;
  out.state = name_of(group.state);
  out.state_since_s = seconds(now - group.since);
  if (group.reason.is_set()) out.aborted = describe(group.reason);
  out.rank = group.rank;
  out.nranks = group.all_ranks();
  out.uid = group.uid;
  out.lanes = group.wanted.lanes;
  out.payload_bytes = group.wanted.payload_bytes;
  out.table_digest = hex(group.wanted.table_digest);
  out.security = security::name_of(group.wanted.security.mode);
  if (is_key(group.wanted.security.key)) out.key = security::text_of(group.wanted.security.key);
  if (group.job != nullptr) out.job_key = security::text_of(group.job->id);
  if (group.key_room != nullptr) out.key_memory_bytes = group.key_room->bytes();
  out.downstream = neighbor_status(group.wanted.downstream, from_.lanes);
  out.upstream = neighbor_status(group.wanted.upstream, from_.lanes);
  out.idle_networks = group.idle_networks;
  out.direct_kib = static_cast<std::uint32_t>(group.wanted.direct_bytes >> 10);
  out.two_step_kib = static_cast<std::uint32_t>(group.wanted.two_step_op_bytes() >> 10);
  out.two_step_owners = group.wanted.two_step_owners();
  for (std::size_t rank = 0; rank < group.table.size(); ++rank) {
    // Packets to itself go by no fabric.
    if (rank == group.rank || group.table[rank].source_ports == ipc::RankInfo::kAnySourcePort) {
      continue;
    }
    ++out.ranks_of_one_source_port;
  }
  out.transfers_alone = group.wanted.transfers_alone;
  out.gathered_kib = static_cast<std::uint32_t>(group.wanted.gathered_bytes >> 10);
  out.tiles = group.wanted.tiles && !group.wanted.tiles_for_formats_alone;
  out.tiles_by_model = group.wanted.tile_costs != nullptr;
  out.tile_share_percent = group.wanted.tile_share_percent();
  out.why_no_tiles = group.wanted.why_no_tiles;
  out.formats = group.wanted.tiles && group.wanted.why_no_formats.empty();
  out.why_no_formats = group.wanted.why_no_formats;
  out.why_not_direct = group.wanted.why_not_direct;
  for (std::uint8_t lane = 0; group.plan != nullptr && lane < group.wanted.lanes; ++lane) {
    const collective::ShardStatus& shard = published_of(published, group, lane).status;
    out.shards.push_back(shard_status(lane, shard, group.wanted.downstream, now));
    out.retransmissions += shard.counters.retransmissions;
  }
  out.waits_for = waits_of(group, published, now);
  out.late_ranks = late_ranks(group, now);
  return out;
}

std::vector<std::string> StatusMaker::waits_of(const Group& group, const Published& published,
                                               TimeNs now) const {
  std::vector<std::string> waits;
  std::vector<std::string> held;  // after an abort
  const bool runs = group.state == GroupState::kFormed && !group.reason.is_set();
  for (std::uint8_t lane = 0; group.plan != nullptr && lane < group.wanted.lanes; ++lane) {
    const collective::ShardStatus& shard = published_of(published, group, lane).status;
    if (group.reason.is_set() && shard.in_backend > 0) {
      held.push_back(
          fmt::format("lane {}: backend {} to return {} chunks; until then the daemon keeps the "
                      "memory of unfinished ops",
                      lane, shard.backend_name, shard.in_backend));
    }
    if (!runs) continue;
    OpWait wait = op_wait(group, lane, shard, now);
    if (wait.op_seq != 0) waits.push_back(std::move(wait.text));
    if (auto transfer = transfer_status(group, lane, shard, now)) {
      waits.push_back(std::move(transfer->text));
    }
  }
  if (const command::MembersWait& late = published_of(published, group, 0).members;
      runs && late.op_seq != 0) {
    waits.push_back(members_op_wait(group, late).text);
  }
  if (group.state < GroupState::kFormed)
    waits.push_back(what_is_missing(group, published, from_.lanes));
  if (group.state == GroupState::kClosing) waits = lanes_to_close(group);
  const bool members_wait = group.leave_deadline != kNever || group.reason.is_set();
  if ((group.state == GroupState::kFormed && members_wait) || group.state == GroupState::kClosed) {
    waits.push_back(members_to_leave(group));
  }
  for (std::string& what : held) waits.push_back(std::move(what));
  return waits;
}

}  // namespace gradwire::control
