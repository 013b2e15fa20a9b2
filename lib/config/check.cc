// SPDX-License-Identifier: BSD-3-Clause
#include "config/check.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/load.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::config {
namespace {

/// Of canonical text.
wire::IpAddress address_of(const std::string& ip) {
  return wire::parse_ip(ip).value_or(wire::IpAddress{});
}

/// How the bits behind the prefix are: of all zeros and of all ones.
struct HostBits {
  bool zeros = true;
  bool ones = true;
};

HostBits host_bits(const wire::IpAddress& ip, std::uint64_t prefix_bits) {
  HostBits out;
  const std::uint64_t bits = ip.family == 4 ? 32 : 128;
  for (std::uint64_t i = prefix_bits; i < bits; ++i) {
    const bool set = (ip.bytes[i / 8] >> (7 - i % 8) & 1) != 0;
    out.zeros &= !set;
    out.ones &= set;
  }
  return out;
}

/// @return why no host of the port's network can have `text`; nothing if one can.
std::optional<std::string> why_no_host(const std::string& text, const PortSection& port) {
  constexpr std::uint8_t kLoopback = 127;
  const wire::IpAddress ip = address_of(text);
  if (ip.family == 4 && ip.bytes[0] == kLoopback) {
    return "is a loopback address, which no other host reaches: give the port one of its network";
  }
  if (!wire::same_network(ip, address_of(port.ip), static_cast<int>(port.prefix_bits))) {
    return std::nullopt;  // the link-local address of a router
  }
  // A link of /31, or /127, has two hosts and nothing else (RFC 3021, RFC 6164).
  if (port.prefix_bits > (ip.family == 4 ? 30u : 126u)) return std::nullopt;
  const HostBits host = host_bits(ip, port.prefix_bits);
  if (host.zeros && ip.family == 4) {
    return fmt::format("is the network's own address with /{}, which no host has",
                       port.prefix_bits);
  }
  if (host.zeros) {
    return fmt::format(
        "is the address of all routers of its network with /{}, which no host has "
        "alone (RFC 4291 section 2.6.1)",
        port.prefix_bits);
  }
  if (host.ones && ip.family == 4) {
    return fmt::format("is the broadcast address of its network with /{}, which no host has",
                       port.prefix_bits);
  }
  return std::nullopt;
}

bool in_network(const std::string& ip, const PortSection& port) {
  return wire::same_network(address_of(ip), address_of(port.ip),
                            static_cast<int>(port.prefix_bits));
}

void check_host_addresses(const DaemonConfig& config, std::vector<Conflict>& found) {
  std::string networks;
  for (std::size_t i = 0; i < config.ports.size(); ++i) {
    const PortSection& port = config.ports[i];
    networks += fmt::format("{}{}/{}", networks.empty() ? "" : ", ", port.ip, port.prefix_bits);
    const wire::IpAddress ip = address_of(port.ip);
    if (ip.family == 6 && wire::is_link_local(ip)) {
      found.push_back({fmt::format("port.{}.ip", i),
                       "is a link-local address, which each link has anew and no router forwards: "
                       "give the port one of its network's, as fd00:1::11/64"});
    } else if (auto why = why_no_host(port.ip, port)) {
      found.push_back({fmt::format("port.{}.ip", i), std::move(*why)});
    }
  }
  for (std::size_t i = 0; i < config.neighbors.size(); ++i) {
    const std::string& ip = config.neighbors[i].ip;
    const std::string key = fmt::format("neighbor.{}.ip", i);
    bool reached = false;
    for (const PortSection& port : config.ports) {
      if (!in_network(ip, port)) continue;
      reached = true;
      if (auto why = why_no_host(ip, port)) found.push_back({key, std::move(*why)});
      break;
    }
    if (!reached) {
      found.push_back({key, fmt::format("is in the network of no [[port]] ({}): a neighbor must be "
                                        "on the link of a port. A host behind a router needs a "
                                        "port.gateway or a [[route]], and no [[neighbor]]",
                                        networks)});
    }
  }
}

/// @return why `router` cannot be a router on the port's network; nothing if it can.
std::optional<std::string> why_no_router(const std::string& router, const PortSection& port) {
  const bool on_link = wire::is_link_local(address_of(router)) && address_of(port.ip).family == 6;
  if (!on_link && !in_network(router, port)) {
    return fmt::format("is not in the port's network {}/{}: a router must be on the port's link",
                       port.ip, port.prefix_bits);
  }
  if (router == port.ip) {
    return "is the port's own address: name the router of its network";
  }
  return why_no_host(router, port);
}

void check_routes(const DaemonConfig& config, std::vector<Conflict>& found) {
  for (std::size_t i = 0; i < config.ports.size(); ++i) {
    const PortSection& port = config.ports[i];
    if (!port.gateway.empty()) {
      if (auto why = why_no_router(port.gateway, port)) {
        found.push_back({fmt::format("port.{}.gateway", i), std::move(*why)});
      }
    }
    for (std::size_t j = 0; j < i && !port.rail.empty(); ++j) {
      if (config.ports[j].rail != port.rail) continue;
      found.push_back({fmt::format("port.{}.rail", i),
                       fmt::format("port.{}.rail has the same name: a rail is one port of each "
                                   "host, so give each port its own",
                                   j)});
    }
  }
  for (std::size_t i = 0; i < config.routes.size(); ++i) {
    const RouteSection& route = config.routes[i];
    const auto on_link = std::ranges::find_if(
        config.ports, [&](const PortSection& port) { return in_network(route.via, port); });
    if (on_link == config.ports.end()) {
      found.push_back({fmt::format("route.{}.via", i),
                       "is in the network of no [[port]]: a router must be on the link of a "
                       "port. One that has only a link-local address is named by port.gateway"});
    } else if (auto why = why_no_router(route.via, *on_link)) {
      found.push_back({fmt::format("route.{}.via", i), std::move(*why)});
    }
    if (address_of(route.to).family != address_of(route.via).family) {
      found.push_back({fmt::format("route.{}.to", i),
                       "is of another IP version than route.via: packets of one version go "
                       "through routers of the same"});
    }
    if (!host_bits(address_of(route.to), route.prefix_bits).zeros) {
      found.push_back(
          {fmt::format("route.{}.to", i),
           fmt::format("is a host's address with /{}: a route leads to a network, whose "
                       "bits behind the prefix are zero",
                       route.prefix_bits)});
    }
    for (std::size_t j = 0; j < i; ++j) {
      const RouteSection& before = config.routes[j];
      if (before.to != route.to || before.prefix_bits != route.prefix_bits) continue;
      if (on_link == config.ports.end() || !in_network(before.via, *on_link)) continue;
      found.push_back({fmt::format("route.{}.to", i),
                       fmt::format("route.{}.to is the same network on the same port: one router "
                                   "leads to each network",
                                   j)});
    }
  }
}

/// In the form that metrics::MetricsServer expects.
void check_metrics(const DaemonConfig& config, std::vector<Conflict>& found) {
  const std::string& metrics = config.daemon.metrics;
  if (metrics.empty()) return;
  const std::size_t colon = std::min(metrics.rfind(':'), metrics.size());
  const std::string host = metrics.substr(0, colon);
  const std::string port = metrics.substr(std::min(colon + 1, metrics.size()));
  in_addr address{};
  const bool loopback = host == "[::1]" || (inet_pton(AF_INET, host.c_str(), &address) == 1 &&
                                            host.starts_with("127."));
  std::uint16_t number = 0;
  const char* const end = port.data() + port.size();
  const auto [stopped, error] = std::from_chars(port.data(), end, number);
  if (!loopback || error != std::errc{} || stopped != end || number == 0) {
    found.push_back(
        {"daemon.metrics",
         "must be a loopback address with a port, such as 127.0.0.1:9464: the metrics are "
         "served without authentication"});
  }
}

/// The EAL creates a folder with this name.
void check_name(const DaemonConfig& config, std::vector<Conflict>& found) {
  const std::string& name = config.daemon.name;
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (control || name.find('/') != std::string::npos || name == "." || name == "..") {
    found.push_back({"daemon.name",
                     "must have no '/' and no control character, and must not be \".\" or \"..\": "
                     "the EAL makes a folder of this name in /run/dpdk"});
  }
}

void check_addresses(const DaemonConfig& config, std::vector<Conflict>& found) {
  for (std::size_t i = 0; i < config.ports.size(); ++i) {
    const PortSection& port = config.ports[i];
    for (std::size_t j = 0; j < i; ++j) {
      if (config.ports[j].ip == port.ip) {
        found.push_back(
            {fmt::format("port.{}.ip", i),
             fmt::format("port.{}.ip has the same address: give each port its own", j)});
      }
      if (config.ports[j].device == port.device) {
        found.push_back(
            {fmt::format("port.{}.device", i),
             fmt::format("port.{}.device is the same device: name each device once", j)});
      }
    }
  }
  for (std::size_t i = 0; i < config.neighbors.size(); ++i) {
    const std::string key = fmt::format("neighbor.{}.ip", i);
    for (std::size_t j = 0; j < config.ports.size(); ++j) {
      if (config.ports[j].ip == config.neighbors[i].ip) {
        found.push_back({key, fmt::format("port.{}.ip is this daemon's own address: a neighbor is "
                                          "another host's port",
                                          j)});
      }
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (config.neighbors[j].ip == config.neighbors[i].ip) {
        found.push_back(
            {key, fmt::format("neighbor.{}.ip has the same address: name each once", j)});
      }
    }
  }
}

void check_payload(const DaemonConfig& config, std::vector<Conflict>& found) {
  const std::uint64_t payload = config.transport.payload_bytes;
  if (payload == kAuto) return;
  if (payload % 64 != 0) {
    found.push_back(
        {"transport.payload_bytes", fmt::format("must be a multiple of 64, such as {} or {}",
                                                payload / 64 * 64, (payload / 64 + 1) * 64)});
  }
  for (std::size_t i = 0; i < config.ports.size(); ++i) {
    const PortSection& port = config.ports[i];
    if (port.mtu == kAuto) continue;  // compared when the port is open
    const std::uint64_t most = max_payload_bytes(port.mtu, port.ip);
    if (payload > most) {
      found.push_back({"transport.payload_bytes",
                       fmt::format("port.{}.mtu = {} carries at most {}: raise the MTU, or lower "
                                   "payload_bytes",
                                   i, port.mtu, most)});
    }
  }
}

void check_fault_port(const DaemonConfig& config, std::vector<Conflict>& found) {
  if (config.faults.port.empty()) return;
  std::string devices;
  for (const PortSection& port : config.ports) {
    if (port.device == config.faults.port) return;
    devices += (devices.empty() ? "" : ", ") + port.device;
  }
  found.push_back(
      {"faults.port", fmt::format("no [[port]] has this device: name one of {}", devices)});
}

/// Settings for which the CPU would have to access payloads in GPU memory. Whether the ports can
/// receive them there is checked once the ports exist.
void check_gpudirect(const DaemonConfig& config, std::vector<Conflict>& found) {
  if (config.gpu.staging != "gpudirect") return;
  if (config.gpu.device.empty()) {
    found.push_back({"gpu.staging", "gpudirect needs a GPU: name it in gpu.device"});
    return;
  }
  if (config.gpu.kernel == "persistent") {
    found.push_back(
        {"gpu.kernel",
         "gpu.staging = gpudirect needs gpu.kernel = launch: what a port writes into GPU "
         "memory is certain to be seen only by kernels that start afterwards"});
  }
  if (config.daemon.capture) {
    found.push_back(
        {"daemon.capture",
         "does not go with gpu.staging = gpudirect, because the CPU copies what is captured "
         "and payloads lie in GPU memory: set gpu.staging to copy or mapped"});
  }
  if (config.faults.duplicate > 0 || config.faults.corrupt > 0) {
    found.push_back(
        {config.faults.duplicate > 0 ? "faults.duplicate" : "faults.corrupt",
         "does not go with gpu.staging = gpudirect, because the CPU would have to copy or "
         "change payloads in GPU memory: set faults.drop, reorder or delay instead"});
  }
}

void check_integrity(const DaemonConfig& config, std::vector<Conflict>& found) {
  if (config.transport.integrity != "link") return;
  if (config.faults.corrupt > 0) {
    found.push_back({"faults.corrupt",
                     "does not go with transport.integrity = link, because nobody would notice a "
                     "bit that flips in a payload, and sums would be wrong"});
  }
  if (config.gpu.staging == "gpudirect") {
    found.push_back({"gpu.staging",
                     "gpudirect needs transport.integrity = payload: the GPU checks what a port "
                     "writes into its memory by the payload's CRC"});
  }
}

}  // namespace

std::vector<Conflict> find_conflicts(const DaemonConfig& config) {
  std::vector<Conflict> found;
  check_integrity(config, found);
  check_name(config, found);
  check_metrics(config, found);
  check_addresses(config, found);
  check_host_addresses(config, found);
  check_routes(config, found);
  check_payload(config, found);
  check_gpudirect(config, found);
  check_security(config, found);
  check_fault_port(config, found);
  // Without ECN there are no marks, and dctcp would see nothing but losses.
  if (config.transport.congestion == "dctcp" && !config.transport.ecn) {
    found.push_back(
        {"transport.congestion", "dctcp needs transport.ecn = true: it follows ECN marks"});
  }
  const std::uint64_t last_lane = config.lanes.base_udp_port + kMaxLanes - 1;
  if (config.transport.source_ports > 1 && last_lane >= wire::kSourcePortFirst &&
      config.lanes.base_udp_port < wire::kSourcePortFirst + wire::kSourcePorts) {
    found.push_back(
        {"lanes.base_udp_port",
         fmt::format("{} to {} are the ports from which daemons send (transport.source_ports): "
                     "choose one below {}, on all hosts, or set transport.source_ports = 1",
                     wire::kSourcePortFirst, wire::kSourcePortFirst + wire::kSourcePorts - 1,
                     wire::kSourcePortFirst - kMaxLanes)});
  }
  // At least two pings must be lost before a living neighbor looks dead.
  if (config.timeouts.ping_ms * 3 > config.timeouts.silence_ms) {
    found.push_back({"timeouts.ping_ms",
                     fmt::format("must be at most a third of timeouts.silence_ms = {}, so that two "
                                 "lost pings are not taken for a death",
                                 config.timeouts.silence_ms)});
  }
  return found;
}

std::uint64_t max_payload_bytes(std::uint64_t mtu, std::string_view ip) noexcept {
  const bool is_ipv6 = ip.find(':') != std::string_view::npos;
  const std::uint64_t around =
      wire::ip_header_bytes(is_ipv6 ? 6 : 4) + wire::kUdpBytes + wire::kHeaderBytes;
  return mtu <= around ? 0 : (mtu - around) / 64 * 64;
}

}  // namespace gradwire::config
