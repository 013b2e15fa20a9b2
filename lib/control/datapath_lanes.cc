// SPDX-License-Identifier: BSD-3-Clause
#include "control/datapath_lanes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "control/table.h"

namespace gradwire::control {
namespace {

constexpr TimeNs kLinkLookIntervalNs = 20'000'000;

}  // namespace

DatapathLanes::DatapathLanes(lane::Datapath& datapath, const PlanSettings& settings,
                             std::span<const StaticNeighbor> neighbors, GpuLanes* gpu)
    : datapath_(datapath), plan_maker_(settings, datapath, gpu) {
  for (std::uint16_t i = 0; i < datapath.ports().size(); ++i) {
    const port::Port& port = *datapath.ports()[i];
    addresses_.push_back({i, port.config().ip, static_cast<std::uint8_t>(port.config().prefix_bits),
                          !port.config().routes.empty(), rail_hash(port.config().rail)});
    port::NeighborsConfig config;
    config.mac = port.mac();
    config.ip = port.config().ip;
    config.prefix_bits = port.config().prefix_bits;
    config.vlan_id = port.config().vlan_id;
    link_up_.push_back(port.link_up());
    port::Neighbors& added = neighbors_.emplace_back(config);
    for (const StaticNeighbor& neighbor : neighbors) {
      if (wire::same_network(neighbor.ip, config.ip, config.prefix_bits)) {
        added.add_static(neighbor.ip, neighbor.mac);
      }
    }
  }
}

void DatapathLanes::poll(TimeNs now) {
  now_ = now;
  carry_frames();
  if (now >= next_link_look_) tend_links();
}

void DatapathLanes::tend_links() {
  next_link_look_ = now_ + kLinkLookIntervalNs;
  for (const std::string& text : datapath_.tend_links(now_)) spdlog::warn("{}", text);
  for (std::size_t i = 0; i < neighbors_.size(); ++i) {
    const port::Port& port = *datapath_.ports()[i];
    const bool up = port.link_up();
    if (up == link_up_[i]) continue;
    link_up_[i] = up;
    spdlog::info("port {}: the link is {}", port.config().device, up ? "up" : "down");
    if (!up) neighbors_[i].forget_learnt();
  }
}

void DatapathLanes::carry_frames() {
  lane::ControlFrame frame;
  // What is there now and no more: whoever floods the lanes with ARP would keep this thread here.
  // What comes later rings the bell.
  for (std::size_t left = datapath_.frames_waiting(); left > 0; --left) {
    if (!datapath_.receive_frame(frame)) break;
    if (frame.port >= neighbors_.size()) continue;
    neighbors_[frame.port].on_frame({frame.bytes.data(), frame.size}, now_);
  }
  for (std::uint16_t port = 0; port < neighbors_.size(); ++port) {
    neighbors_[port].poll(now_);
    port::NeighborFrame out;
    while (neighbors_[port].take_frame(out)) {
      // Where there is no room the frame is lost, as it may be on the wire: ARP asks again.
      if (!datapath_.send_frame(port, out.view())) break;
    }
  }
}

std::optional<wire::IpAddress> DatapathLanes::hop_to(std::uint16_t port,
                                                     const wire::IpAddress& ip) const {
  const port::PortConfig& config = datapath_.ports()[port]->config();
  return port::next_hop(ip, config.ip, config.prefix_bits, config.routes);
}

Resolution DatapathLanes::resolve(std::uint16_t port, const wire::IpAddress& ip) {
  Resolution out;
  port::Neighbors& neighbors = neighbors_.at(port);
  const auto hop = hop_to(port, ip);
  if (!hop) {
    const port::PortConfig& config = datapath_.ports()[port]->config();
    out.state = ResolveState::kFailed;
    out.error = fmt::format(
        "{} is not on the network {}/{} of port {}, and no [[route]] leads there: set the port's "
        "gateway, or add a [[route]]",
        wire::to_string(ip), wire::to_string(config.ip), config.prefix_bits, config.device);
    return out;
  }
  out.hop = *hop;
  // Asks anew if nobody answered: the manager alone has the bound.
  if (auto asked = neighbors.resolve(*hop, now_); !asked) {
    out.state = ResolveState::kFailed;
    out.error = asked.error().message;
  } else if (const auto mac = neighbors.lookup(*hop)) {
    out.state = ResolveState::kResolved;
    out.mac = *mac;
  }
  return out;
}

Result<void> DatapathLanes::check_path(const NeighbourPath& path,
                                       std::uint32_t payload_bytes) const {
  const port::Port& port = *datapath_.ports()[path.port];
  const std::uint32_t packet_bytes = wire::full_packet_bytes(payload_bytes);
  if (!path.remote_mac || port.carries(*path.remote_mac, packet_bytes)) return {};
  return fail(
      ErrorCode::kUnavailable,
      fmt::format(
          "port {}: the kernel drops full packets of {} bytes to rank {} ({}) but sends short "
          "ones: the MTU of this port's interface, or of the one at the other end, is now too "
          "small. Set both to {} or more, or set a smaller mtu in [[port]] and restart the daemon",
          port.config().device, packet_bytes, path.rank, wire::to_string(path.remote_ip),
          packet_bytes));
}

Result<command::GroupPlan*> DatapathLanes::create_plan(const PlanRequest& request) {
  for (const auto* paths : {&request.downstream, &request.upstream}) {
    for (const NeighbourPath& path : *paths) {
      if (auto ok = check_path(path, request.payload_bytes); !ok) {
        return tl::unexpected(ok.error());
      }
    }
  }
  auto plan = plan_maker_.create(request);
  if (!plan) return plan;
  for (const auto* paths : {&request.downstream, &request.upstream}) {
    for (const NeighbourPath& path : *paths) {
      const auto hop = hop_to(path.port, path.remote_ip);
      if (hop && neighbors_[path.port].hold(*hop)) {
        held_.emplace(*plan, HeldNeighbor{path.port, *hop});
      }
    }
  }
  return plan;
}

void DatapathLanes::destroy_plan(command::GroupPlan* plan) {
  const auto [begin, end] = held_.equal_range(plan);
  for (auto it = begin; it != end; ++it) neighbors_[it->second.port].release(it->second.ip);
  held_.erase(begin, end);
  plan_maker_.destroy(plan);
}

}  // namespace gradwire::control
