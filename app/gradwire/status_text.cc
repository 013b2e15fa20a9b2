// SPDX-License-Identifier: BSD-3-Clause
#include "status_text.h"

#include <fmt/format.h>

#include "table.h"
#include "views.h"

namespace gradwire::cli {
namespace {

using nlohmann::json;

void add_daemon(std::string& out, const status::Daemon& daemon) {
  out += fmt::format("gradwired {}, pid {}, {}, up {:.3f} s, incarnation {}\n", daemon.version,
                     daemon.pid, daemon.state, daemon.uptime_s, daemon.incarnation);
  out +=
      fmt::format("  {} lanes from UDP port {}, payload up to {} bytes, NUMA node {}\n",
                  daemon.lanes, daemon.base_udp_port, daemon.max_payload_bytes, daemon.numa_node);
  for (const status::Address& address : daemon.addresses) {
    out += fmt::format("  port {}: {}\n", address.port, address.address);
  }
  if (!daemon.keys.empty()) {
    out += fmt::format("  security: {}, minimum {}, key {}", daemon.security,
                       daemon.security_minimum, daemon.keys.front());
    if (daemon.keys.size() > 1) out += fmt::format(", second key {}", daemon.keys[1]);
    out += '\n';
  }
  const std::size_t warnings = daemon.warnings.size();
  if (warnings > 0) {
    out += fmt::format("  {} warning{}, see the end\n", warnings, warnings == 1 ? "" : "s");
  }
}

void add_datapath(std::string& out, const status::Daemon& daemon) {
  for (const std::string& line : daemon.datapath) out += line + "\n";
  for (const std::string& line : daemon.warnings) out += fmt::format("warning: {}\n", line);
}

void add_faults(std::string& out, const status::Faults& faults) {
  const char* state = faults.active ? "FAULTS INJECTED" : "faults, now cleared,";
  out += fmt::format("{} on port {}: {}\n", state, faults.port, faults.settings);
  std::string line;
  const json counters = faults.counters;
  for (const auto& [name, value] : counters.items()) {
    if (value != 0) line += fmt::format(", {} {}", name, text_of(value));
  }
  if (!line.empty()) out += fmt::format("  so far{}\n", line.substr(1));
}

void add_neighbor(std::string& out, const char* name,
                  const std::optional<status::Neighbor>& neighbor) {
  if (!neighbor) return;
  for (const status::Path& path : neighbor->paths) {
    out += fmt::format("  {} rank {}: {} at {}, from {} of port {}\n", name, neighbor->rank,
                       path.remote_ip, path.remote_mac.value_or("?"), path.local_ip, path.port);
  }
}

std::string owners_text(const status::Group& group) {
  if (group.two_step_kib == 0 || group.two_step_owners == group.nranks) return "";
  return fmt::format(", summed by {} of {} ranks", group.two_step_owners, group.nranks);
}

void add_group(std::string& out, const status::Group& group) {
  out +=
      fmt::format("group {} epoch {}: rank {} of {}, {} for {:.3f} s, {} lanes, payload {} bytes\n",
                  group.group_id, group.epoch, group.rank, group.nranks, state_of(group),
                  group.state_since_s, group.lanes, group.payload_bytes);
  if (!group.key.empty()) {
    out += fmt::format("  security: {} by key {}{}\n", group.security, group.key,
                       group.job_key.empty() ? "" : " and the job's " + group.job_key);
  }
  if (group.aborted) out += fmt::format("  aborted: {}\n", *group.aborted);
  for (const std::string& what : group.waits_for) out += fmt::format("  waits for: {}\n", what);
  for (const status::Member& member : group.members) {
    out += fmt::format("  member {}: client {}, pid {}, {}\n", member.member, member.client,
                       member.pid, member.state);
  }
  if (group.retransmissions != 0) {
    out += fmt::format("  retransmissions: {}\n", group.retransmissions);
  }
  add_neighbor(out, "downstream", group.downstream);
  add_neighbor(out, "upstream", group.upstream);
  if (group.idle_networks != 0) {
    out += fmt::format("  networks that stay idle because there are too few lanes: {}\n",
                       group.idle_networks);
  }
  if (group.transfers_alone) out += "  it is for transfers alone\n";
  if (group.direct_kib != 0) {
    out += fmt::format(
        "  ops are direct up to {} KiB of all ranks' inputs, all-reduces in two steps up to {} "
        "KiB{}\n",
        group.direct_kib, group.two_step_kib, owners_text(group));
    if (group.gathered_kib != 0) {
      out += fmt::format(
          "  all-reduces, all-gathers and barriers are gathered up to {} KiB of all ranks' "
          "inputs\n",
          group.gathered_kib);
    }
  } else if (!group.why_not_direct.empty()) {
    out += fmt::format("  no op is direct: {}\n", group.why_not_direct);
  }
  if (group.tiles) {
    out += "  larger all-reduces, reduce-scatters and all-gathers go by tiles";
    if (group.tiles_by_model) out += ", if they take less time so by the cost model";
    if (group.tile_share_percent != 0) {
      out += fmt::format("; this rank sums {:.1f} % of an all-reduce", group.tile_share_percent);
    }
    out += '\n';
  } else if (!group.why_no_tiles.empty()) {
    out += fmt::format("  no op without a wire format goes by tiles: {}\n", group.why_no_tiles);
  }
  if (group.formats) {
    out += "  a sum may travel as bf16 or int8, if its call says so: it then goes by tiles\n";
  } else if (!group.why_no_formats.empty()) {
    out += fmt::format("  no sum may travel as bf16 or int8: {}\n", group.why_no_formats);
  }
  if (group.ranks_of_one_source_port != 0) {
    out += fmt::format(
        "  to {} ranks packets keep their source port in any case: it chooses the receive queue "
        "there, or their release does not know of it\n",
        group.ranks_of_one_source_port);
  }
  for (const status::Shard& shard : group.shards) {
    if (group.direct_kib != 0) {
      out += fmt::format("  lane {}: of {} ops, {} were direct, {} in two steps and {} gathered\n",
                         shard.lane, shard.counters.ops_done, shard.counters.ops_direct,
                         shard.counters.ops_two_step, shard.counters.ops_gathered);
    }
    if (group.tiles || shard.counters.ops_tiles != 0) {
      out += fmt::format("  lane {}: {} of {} ops went by tiles, {} as bf16 and {} as int8\n",
                         shard.lane, shard.counters.ops_tiles, shard.counters.ops_done,
                         shard.counters.ops_bf16, shard.counters.ops_int8);
    }
    if (shard.on_other_path) {
      out += fmt::format(
          "  lane {}: its data has gone to {} for {:.3f} s, because its first path is silent\n",
          shard.lane, shard.downstream_ip, shard.downstream_ip_s);
    }
    if (shard.peers_on_other_path != 0) {
      out += fmt::format(
          "  lane {}: to {} ranks off the ring it does not send by its first path, which was "
          "silent\n",
          shard.lane, shard.peers_on_other_path);
    }
    const status::Transport& counters = shard.counters;
    if (counters.source_port_moves + counters.peer_source_port_moves != 0) {
      out += fmt::format(
          "  lane {}: sends from UDP port {}, acknowledges from {}, after {} changes of source "
          "port "
          "on the ring and {} off it\n",
          shard.lane, shard.downstream_source_port, shard.upstream_source_port,
          counters.source_port_moves, counters.peer_source_port_moves);
    }
    out += fmt::format(
        "  lane {}: {}, op {} posted, {} done, downstream posted {}, {} bytes in flight, rtt {} "
        "us\n",
        shard.lane, shard.state, shard.posted_op_seq, shard.done_op_seq,
        shard.downstream_posted_op_seq, shard.bytes_in_flight, rtt_of(shard));
  }
}

/// Whether to show a lane's value: not if it is zero, false or a long text, which other lines show.
bool is_telling(const std::string& name, const json& value) {
  constexpr std::size_t kShort = 24;
  if (name == "lane" || value == 0 || value == false) return false;
  if (value.is_string()) {
    const std::size_t size = value.get_ref<const std::string&>().size();
    return size > 0 && size <= kShort;
  }
  return value.is_number() || value.is_boolean();
}

void add_values(std::string& line, const json& object) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      add_values(line, value);
    } else if (is_telling(name, value)) {
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, text_of(value));
    }
  }
}

void add_client(std::string& out, const status::Client& client) {
  out += fmt::format("client {}: pid {}, uid {}, {} for {:.3f} s, {} bytes in {} memories\n",
                     client.client, client.pid, client.uid, client.state, client.since_s,
                     client.memory_bytes, client.memories.size());
}

}  // namespace

std::string status_text(const status::DaemonStatus& status) {
  std::string out;
  add_daemon(out, status.daemon);
  for (const status::Faults& faults : status.faults) add_faults(out, faults);
  for (const status::Group& group : status.groups) add_group(out, group);
  if (status.groups.empty()) out += "no group\n";
  for (const status::Client& client : status.clients) add_client(out, client);
  for (const status::Lane& lane : status.lanes) {
    std::string line;
    add_values(line, lane);
    out += fmt::format("lane {}: {}\n", lane.lane, line.empty() ? "all zero" : line);
  }
  add_datapath(out, status.daemon);
  return out;
}

}  // namespace gradwire::cli
