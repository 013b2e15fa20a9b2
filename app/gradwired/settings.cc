// SPDX-License-Identifier: BSD-3-Clause
#include "settings.h"

#include <fmt/format.h>
#include <grp.h>

#include <algorithm>

#include "host/kernel_address.h"
#include "port/neighbors/neighbor_message.h"
#include "port/payload_split.h"

namespace gradwire::gradwired {
port::PortConfig port_config(const config::PortSection& port,
                             std::span<const config::RouteSection> routes) {
  port::PortConfig out(port);
  // The configuration holds canonical text, so this parses.
  out.ip = wire::parse_ip(port.ip).value();
  out.prefix_bits = static_cast<int>(port.prefix_bits);
  for (const config::RouteSection& route : routes) {
    const wire::IpAddress via = wire::parse_ip(route.via).value();
    if (!wire::same_network(via, out.ip, out.prefix_bits)) continue;
    out.routes.push_back(
        {wire::parse_ip(route.to).value(), static_cast<int>(route.prefix_bits), via});
  }
  if (!port.gateway.empty()) {
    out.routes.push_back(
        {wire::IpAddress{.family = out.ip.family}, 0, wire::parse_ip(port.gateway).value()});
  }
  return out;
}

FaultSettings fault_settings(const config::FaultsSection& faults, const config::PortSection& port) {
  if (!faults.port.empty() && faults.port != port.device) return {};
  return faults;
}

std::vector<port::XdpPort> xdp_ports(const config::DaemonConfig& config) {
  std::vector<port::XdpPort> out;
  // "auto" depends on the lcores, which only the EAL knows. Here it means one lane, the most that
  // this driver supports.
  const std::uint64_t lanes = config.lanes.count == config::kAuto ? 1 : config.lanes.count;
  for (const config::PortSection& port : config.ports) {
    port::XdpPort one;
    one.device = port.device;
    one.traffic.ip = wire::parse_ip(port.ip).value();
    one.traffic.first_udp_port = static_cast<std::uint16_t>(config.lanes.base_udp_port);
    one.traffic.udp_ports = static_cast<std::uint16_t>(lanes);
    one.traffic.vlan_id = static_cast<std::uint16_t>(port.vlan);
    one.steer = port.xdp_program == "gradwire";
    out.push_back(std::move(one));
  }
  return out;
}

Result<gid_t> group_id(const std::string& name) {
  const struct ::group* const found = getgrnam(name.c_str());
  if (found == nullptr) {
    return fail(ErrorCode::kNotFound,
                fmt::format("daemon.socket_group = {}: this host has no such group", name));
  }
  return found->gr_gid;
}

std::vector<std::string> address_warnings(const config::DaemonConfig& config) {
  std::vector<std::string> out;
  for (const config::PortSection& port : config.ports) {
    if (port.device.starts_with("net_memif")) continue;  // the kernel knows nothing of such a link
    const std::string interface = host::interface_with_address(port.ip);
    if (interface.empty()) continue;
    out.push_back(fmt::format(
        "port {}: ip = {} is also an address of the kernel, on {}. Both answer {} for it, so "
        "packets for the kernel may go to the daemon: give the port an address of its own",
        port.device, port.ip, interface, port::protocol_name(wire::parse_ip(port.ip).value())));
  }
  return out;
}

lane::PollingConfig polling_config(const config::LanesSection& lanes) {
  lane::PollingConfig out;
  out.mode = lane::parse_polling_mode(lanes.polling).value();
  return out;
}

std::uint32_t features(const config::DaemonConfig& config) {
  return collective::features_of(shard_config(config, 0));
}

Result<std::uint8_t> lane_count(const config::DaemonConfig& config, unsigned worker_lcores) {
  const std::uint64_t wanted = config.lanes.count;
  if (wanted == config::kAuto) {
    return static_cast<std::uint8_t>(std::min<unsigned>(worker_lcores, kMaxLanes));
  }
  if (wanted > worker_lcores) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("lanes.count = {}, but the EAL has {} lcores besides the main one: "
                            "name {} lcores in --lcores, or lower lanes.count",
                            wanted, worker_lcores, wanted + 1));
  }
  return static_cast<std::uint8_t>(wanted);
}

collective::ShardConfig shard_config(const config::DaemonConfig& config, std::uint32_t payload) {
  collective::ShardConfig out(config.transport, config.limits, config.timeouts);
  out.payload_bytes = payload;
  if (config.transport.window_packets == config::kAuto) {
    out.window_packets = window_packets_for(payload);
  }
  if (config.transport.transit_packets == config::kAuto) out.transit_packets = out.window_packets;
  out.sender.max_pto_ns = std::min(out.sender.max_pto_ns, out.timeouts.silence_ns / 10);
  if (!config.gpu.device.empty()) {
    out.batch_entries = reduce::Batch::kItems;
    out.pending_entries = collective::pending_entries_wanted(out);
  }
  return out;
}

Result<control::ClusterKeysPtr> read_keys(const config::SecuritySection& keys) {
  return control::read_cluster_keys({keys.key_file, keys.second_key_file});
}

control::KeyOptions key_options(const config::DaemonConfig& config, control::ClusterKeysPtr keys,
                                std::uint32_t max_payload, bool gpudirect) {
  control::KeyOptions options;
  options.mode = control::parse_mode(config.security.mode);
  options.minimum = control::parse_mode(config.security.minimum);
  options.files = {config.security.key_file, config.security.second_key_file};
  options.cluster = std::move(keys);
  options.sealed_payload_bytes = max_payload;
  for (const config::PortSection& port : config.ports) {
    const std::uint64_t most = config::max_payload_bytes(port.mtu - security::kTagBytes, port.ip);
    options.sealed_payload_bytes =
        std::min(options.sealed_payload_bytes, static_cast<std::uint32_t>(most));
  }
  if (gpudirect) {
    options.why_no_seals =
        "payloads stay in GPU memory (gpu.staging = gpudirect), and the CPU could not seal them: "
        "set gpu.staging to copy or mapped";
  }
  return options;
}

std::string why_no_gpudirect(const config::DaemonConfig& config) {
  // lib/config refuses the same if gpudirect is requested by name.
  if (config.daemon.capture) return "daemon.capture = true makes the CPU copy frames";
  if (config.faults.duplicate > 0 || config.faults.corrupt > 0) {
    return "faults.duplicate and faults.corrupt make the CPU copy and change frames";
  }
  if (config.security.mode != "off" || config.security.minimum != "off") {
    return "security.mode and security.minimum have packets sealed, which the CPU does";
  }
  if (config.ports.empty()) return "the daemon has no port";
  std::string reasons;
  for (const config::PortSection& port : config.ports) {
    const std::string why = port::why_no_payload_split(port.device);
    if (!why.empty()) reasons += (reasons.empty() ? "" : "; ") + why;
  }
  return reasons;
}

}  // namespace gradwire::gradwired
