// SPDX-License-Identifier: BSD-3-Clause
#include "status_text.h"

#include <fmt/format.h>

#include "table.h"
#include "views.h"

namespace gradwire::cli {
namespace {

using nlohmann::json;

void add_daemon(std::string& out, const json& daemon) {
  out += fmt::format("gradwired {}, pid {}, {}, up {} s, incarnation {}\n",
                     field(daemon, "version"), field(daemon, "pid"), field(daemon, "state"),
                     field(daemon, "uptime_s"), field(daemon, "incarnation"));
  out += fmt::format("  {} lanes from UDP port {}, payload up to {} bytes, NUMA node {}\n",
                     field(daemon, "lanes"), field(daemon, "base_udp_port"),
                     field(daemon, "max_payload_bytes"), field(daemon, "numa_node"));
  for (const json& address : elements(daemon, "addresses")) {
    out += fmt::format("  port {}: {}\n", field(address, "port"), field(address, "address"));
  }
  const std::size_t warnings = elements(daemon, "warnings").size();
  if (warnings > 0) {
    out += fmt::format("  {} warning{}, at the end\n", warnings, warnings == 1 ? "" : "s");
  }
}

void add_datapath(std::string& out, const json& daemon) {
  for (const json& line : elements(daemon, "datapath")) out += fmt::format("{}\n", text_of(line));
  for (const json& line : elements(daemon, "warnings")) {
    out += fmt::format("warning: {}\n", text_of(line));
  }
}

void add_faults(std::string& out, const json& faults) {
  const char* state =
      field(faults, "active") == "true" ? "FAULTS INJECTED" : "faults, now cleared,";
  out +=
      fmt::format("{} on port {}: {}\n", state, field(faults, "port"), field(faults, "settings"));
  if (!faults.is_object() || !faults.contains("counters")) return;
  std::string line;
  for (const auto& [name, value] : faults["counters"].items()) {
    if (value != 0) line += fmt::format(", {} {}", name, text_of(value));
  }
  if (!line.empty()) out += fmt::format("  so far{}\n", line.substr(1));
}

void add_neighbour(std::string& out, const char* name, const json& group) {
  if (!group.contains(name) || !group[name].is_object()) return;
  const json& neighbour = group[name];
  for (const json& path : elements(neighbour, "paths")) {
    out += fmt::format("  {} rank {}: {} at {}, from {} of port {}\n", name,
                       field(neighbour, "rank"), field(path, "remote_ip"),
                       field(path, "remote_mac"), field(path, "local_ip"), field(path, "port"));
  }
}

void add_group(std::string& out, const json& group) {
  out += fmt::format("group {} epoch {}: rank {} of {}, {} for {} s, {} lanes, payload {} bytes\n",
                     field(group, "group_id"), field(group, "epoch"), field(group, "rank"),
                     field(group, "nranks"), state_of(group), field(group, "state_since_s"),
                     field(group, "lanes"), field(group, "payload_bytes"));
  if (group.contains("aborted") && group["aborted"].is_string()) {
    out += fmt::format("  aborted: {}\n", text_of(group["aborted"]));
  }
  for (const json& what : elements(group, "waits_for")) {
    out += fmt::format("  waits for: {}\n", text_of(what));
  }
  for (const json& member : elements(group, "members")) {
    out += fmt::format("  member {}: client {}, pid {}, {}\n", field(member, "member"),
                       field(member, "client"), field(member, "pid"), field(member, "state"));
  }
  if (group.contains("retransmissions") && group["retransmissions"] != 0) {
    out += fmt::format("  retransmissions: {}\n", text_of(group["retransmissions"]));
  }
  add_neighbour(out, "downstream", group);
  add_neighbour(out, "upstream", group);
  if (group.contains("idle_networks") && group["idle_networks"] != 0) {
    out += fmt::format("  idle networks for want of lanes: {}\n", text_of(group["idle_networks"]));
  }
  for (const json& shard : elements(group, "shards")) {
    out += fmt::format(
        "  lane {}: {}, op {} posted, {} done, downstream posted {}, {} bytes in flight, rtt {} "
        "us\n",
        field(shard, "lane"), field(shard, "state"), field(shard, "posted_op_seq"),
        field(shard, "done_op_seq"), field(shard, "downstream_posted_op_seq"),
        field(shard, "bytes_in_flight"), rtt_of(shard));
  }
}

/// Whether a lane's value is worth its place on the line: not what is zero, false or a long story
/// (the daemon's own lines tell those).
bool is_telling(const std::string& name, const json& value) {
  constexpr std::size_t kShort = 24;
  if (name == "lane" || value == 0 || value == false) return false;
  if (value.is_string()) return value.get_ref<const std::string&>().size() <= kShort;
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

void add_client(std::string& out, const json& client) {
  out += fmt::format("client {}: pid {}, uid {}, {} for {} s, {} bytes in {} memories\n",
                     field(client, "client"), field(client, "pid"), field(client, "uid"),
                     field(client, "state"), field(client, "since_s"),
                     field(client, "memory_bytes"), elements(client, "memories").size());
}

}  // namespace

std::string status_text(const json& status) {
  std::string out;
  const json daemon = status.is_object() && status.contains("daemon") ? status["daemon"] : json();
  add_daemon(out, daemon);
  for (const json& faults : elements(status, "faults")) add_faults(out, faults);
  const json groups = elements(status, "groups");
  for (const json& group : groups) add_group(out, group);
  if (groups.empty()) out += "no group\n";
  for (const json& client : elements(status, "clients")) add_client(out, client);
  for (const json& lane : elements(status, "lanes")) {
    std::string line;
    add_values(line, lane);
    out += fmt::format("lane {}: {}\n", field(lane, "lane"), line.empty() ? "all zero" : line);
  }
  add_datapath(out, daemon);
  return out;
}

}  // namespace gradwire::cli
