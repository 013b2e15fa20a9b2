// SPDX-License-Identifier: BSD-3-Clause
#include "settings.h"

#include <fmt/format.h>
#include <grp.h>

#include <algorithm>

#include "host/kernel_address.h"
#include "port/neighbors/neighbor_message.h"
#include "port/payload_split.h"

namespace gradwire::gradwired {
namespace {

constexpr TimeNs kNsPerMs = 1'000'000;

TimeNs ms(std::uint64_t value) { return static_cast<TimeNs>(value) * kNsPerMs; }

}  // namespace

port::PortConfig port_config(const config::PortSection& port,
                             std::span<const config::RouteSection> routes) {
  port::PortConfig out;
  out.device = port.device;
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
  out.rail = port.rail;
  if (port.vlan != 0) out.vlan_id = static_cast<std::uint16_t>(port.vlan);
  out.mtu = static_cast<std::uint32_t>(port.mtu);  // both say 0 for "as large as can be"
  out.rate_bps = static_cast<std::uint64_t>(port.rate_gbps * 1e9);
  out.rx_descriptors = static_cast<std::uint16_t>(port.rx_descriptors);
  out.tx_descriptors = static_cast<std::uint16_t>(port.tx_descriptors);
  return out;
}

FaultSettings fault_settings(const config::FaultsSection& faults, const config::PortSection& port) {
  if (!faults.port.empty() && faults.port != port.device) return {};
  FaultSettings out;
  out.seed = faults.seed;
  out.drop = faults.drop;
  out.duplicate = faults.duplicate;
  out.reorder = faults.reorder;
  out.reorder_frames = static_cast<std::uint32_t>(faults.reorder_frames);
  out.corrupt = faults.corrupt;
  out.delay = faults.delay;
  out.delay_us = static_cast<std::uint32_t>(faults.delay_us);
  return out;
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

control::Limits group_limits(const config::DaemonConfig& config) {
  control::Limits out;
  out.clients = static_cast<std::uint32_t>(config.limits.clients);
  out.clients_per_user = static_cast<std::uint32_t>(config.limits.user_clients);
  out.bytes_per_client = config.limits.client_memory_mib << 20;
  out.bytes_per_user = config.limits.user_memory_mib << 20;
  out.regions_per_client = static_cast<std::uint32_t>(config.limits.client_regions);
  out.groups_per_client = static_cast<std::uint32_t>(config.limits.client_groups);
  out.groups = static_cast<std::uint32_t>(config.limits.groups);
  out.groups_per_user = static_cast<std::uint32_t>(config.limits.user_groups);
  out.formation_default_ns = ms(config.timeouts.formation_ms);
  out.leave_grace_ns = ms(config.timeouts.leave_grace_ms);
  out.stop_drain_ns = ms(config.timeouts.drain_ms);
  out.stop_close_ns = ms(config.timeouts.close_ms);
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
  collective::ShardConfig out;
  out.payload_bytes = payload;
  static_assert(config::kAuto == 0);
  out.window_packets = static_cast<std::uint32_t>(config.transport.window_packets);
  out.transit_packets = static_cast<std::uint32_t>(config.transport.transit_packets);
  collective::settle_windows(out, payload);
  out.eager_packets = static_cast<std::uint32_t>(config.transport.eager_packets);
  out.exchange_bytes = config.transport.exchange_kib << 10;
  out.payload_crc = config.transport.integrity == "payload";
  out.max_active_ops = static_cast<std::uint32_t>(config.limits.active_ops);
  out.max_chunks = static_cast<std::uint32_t>(config.limits.lane_chunks);
  out.congestion = transport::parse_congestion(config.transport.congestion).value();
  out.swift_target_ns = static_cast<TimeNs>(config.transport.swift_target_us) * 1'000;
  out.sender.rate_bps = static_cast<std::uint64_t>(config.transport.rate_gbps * 1e9);
  out.timeouts.formation_ns = ms(config.timeouts.formation_ms);
  out.timeouts.hello_interval_ns = ms(config.timeouts.hello_ms);
  out.timeouts.silence_ns = ms(config.timeouts.silence_ms);
  // Ten pings within the silence limit, so that lost packets do not look like a death.
  out.timeouts.ping_interval_ns =
      std::min(ms(config.timeouts.ping_ms), out.timeouts.silence_ns / 10);
  out.sender.max_pto_ns = std::min(out.sender.max_pto_ns, out.timeouts.silence_ns / 10);
  out.timeouts.leave_ns = ms(config.timeouts.leave_ms);
  if (!config.gpu.device.empty()) {
    out.batch_entries = reduce::Batch::kItems;
    out.pending_entries = collective::pending_entries_wanted(out);
  }
  return out;
}

std::string why_no_gpudirect(const config::DaemonConfig& config) {
  // lib/config refuses the same if gpudirect is requested by name.
  if (config.daemon.capture) return "daemon.capture = true makes the CPU copy frames";
  if (config.faults.duplicate > 0 || config.faults.corrupt > 0) {
    return "faults.duplicate and faults.corrupt make the CPU copy and change frames";
  }
  if (config.ports.empty()) return "the daemon has no port";
  std::string reasons;
  for (const config::PortSection& port : config.ports) {
    const std::string why = port::why_no_payload_split(port.device);
    if (!why.empty()) reasons += (reasons.empty() ? "" : "; ") + why;
  }
  return reasons;
}

reduce::GpuOptions gpu_options(const config::GpuSection& gpu) {
  reduce::GpuOptions out;
  out.device = gpu.device;
  out.staging = gpu.staging == "mapped"      ? reduce::Staging::kMapped
                : gpu.staging == "gpudirect" ? reduce::Staging::kGpuDirect
                : gpu.staging == "auto"      ? reduce::Staging::kAuto
                                             : reduce::Staging::kCopy;
  out.kernel =
      gpu.kernel == "persistent" ? reduce::KernelMode::kPersistent : reduce::KernelMode::kLaunch;
  out.persistent_sms = static_cast<std::uint32_t>(gpu.persistent_sms);
  out.client_memory = gpu.client_memory == "gpu";
  return out;
}

}  // namespace gradwire::gradwired
