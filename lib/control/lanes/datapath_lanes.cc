// SPDX-License-Identifier: BSD-3-Clause
#include "control/lanes/datapath_lanes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "control/formation/table.h"

namespace gradwire::control {
namespace {

constexpr TimeNs kLinkLookIntervalNs = 20'000'000;
// Of Asking::kInTurn, after a burst: 1,024 hosts that all ask for all others are 100,000 questions
// a second in their network, for ten seconds.
constexpr TimeNs kInTurnNs = 10'000'000;
/// On a port. The manager's shares of 64 add up to more when a user comes and others still wait for
/// the answers to what they had asked before.
constexpr std::size_t kUnansweredMost = 128;

}  // namespace

std::uint16_t source_ports_of(lane::Datapath& datapath) {
  const bool hashes = std::ranges::any_of(
      datapath.ports(), [](const auto& port) { return port->report().hashed_queues != 0; });
  return hashes ? ipc::RankInfo::kOneSourcePort : ipc::RankInfo::kAnySourcePort;
}

DatapathLanes::DatapathLanes(lane::Datapath& datapath, const PlanSettings& settings,
                             std::span<const StaticNeighbor> neighbors, GpuLanes* gpu)
    : datapath_(datapath),
      plan_maker_(settings, datapath, gpu),
      watch_(datapath, plan_maker_, neighbors_) {
  for (std::uint16_t i = 0; i < datapath.ports().size(); ++i) {
    const port::Port& port = *datapath.ports()[i];
    addresses_.push_back({i, port.config().ip, static_cast<std::uint8_t>(port.config().prefix_bits),
                          !port.config().routes.empty(), rail_hash(port.config().rail),
                          port.row().in_memory, port.rate_bps(), port.report().rx_descriptors});
    in_turn_.emplace_back(kInTurnNs);
    unanswered_.emplace_back();
    port::NeighborsConfig config;
    config.mac = port.mac();
    config.ip = port.config().ip;
    config.prefix_bits = port.config().prefix_bits;
    config.vlan_id = port.config().vlan_id;
    set_times(config, plan_maker_.shard_settings().timeouts);
    link_up_.push_back(port.link_up());
    too_big_.emplace_back();
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
  std::ranges::fill(unanswered_, std::nullopt);
  if (now >= next_link_look_) tend_links();
  carry_frames();
  watch_.poll(now);
}

void DatapathLanes::tend_links() {
  const bool first = next_link_look_ == 0;
  next_link_look_ = now_ + kLinkLookIntervalNs;
  for (const std::string& text : datapath_.tend_links(now_)) spdlog::warn("{}", text);
  for (std::size_t i = 0; i < neighbors_.size(); ++i) {
    const port::Port& port = *datapath_.ports()[i];
    const bool up = port.link_up();
    if (first && up) neighbors_[i].on_link_up(now_);
    if (up == link_up_[i]) continue;
    link_up_[i] = up;
    spdlog::info("port {}: the link is {}", port.config().device, up ? "up" : "down");
    if (up) {
      addresses_[i].rate_bps = port.rate_bps();
      if (!first) neighbors_[i].on_link_up(now_);
    } else {
      neighbors_[i].forget_learnt();
    }
  }
}

void DatapathLanes::carry_frames() {
  lane::ControlFrame frame;
  // Only the frames that are waiting now, because a flood of ARP would otherwise keep this thread
  // here. Later frames ring the bell.
  for (std::size_t left = datapath_.frames_waiting(); left > 0; --left) {
    if (!datapath_.receive_frame(frame)) break;
    if (frame.port >= neighbors_.size()) continue;
    const std::span<const std::byte> bytes(frame.bytes.data(), frame.size);
    const port::Port& port = *datapath_.ports()[frame.port];
    if (const auto message = port::read_too_big(bytes, port.config().ip)) {
      if (too_big_[frame.port].add(*message)) untold_ = Untold{&port, *message};
    } else {
      neighbors_[frame.port].on_frame(bytes, now_);
    }
  }
  tell_too_big();
  for (std::uint16_t port = 0; port < neighbors_.size(); ++port) {
    neighbors_[port].poll(now_);
    port::NeighborFrame out;
    while (neighbors_[port].take_frame(out)) {
      // If there is no room, the frame is dropped, as it might be on the wire: ARP requests are
      // repeated.
      if (!datapath_.send_frame(port, out.view())) break;
    }
    port::NeighborEvent event;
    while (neighbors_[port].take_event(event)) tell(*datapath_.ports()[port], event);
  }
}

void DatapathLanes::tell(const port::Port& port, const port::NeighborEvent& event) const {
  const std::string& device = port.config().device;
  const std::string ip = wire::to_string(event.ip);
  const std::string known = wire::to_string(event.known);
  const std::string other = wire::to_string(event.other);
  switch (event.type) {
    case port::NeighborEvent::Type::kMoved:
      spdlog::warn("port {}: {} does not answer at {} any more, and does at {}: packets go there",
                   device, ip, known, other);
      return;
    case port::NeighborEvent::Type::kClaimed:
      spdlog::warn(
          "port {}: {} says that it has the address {}, which is {}: ignored. Two hosts "
          "may have this address, or somebody forges {}",
          device, other, ip, known, port::protocol_name(event.ip));
      return;
    case port::NeighborEvent::Type::kDuplicate:
      spdlog::error(
          "port {}: {} has this port's address {} too: give one of the two another "
          "address, or groups will lose packets",
          device, other, ip);
      return;
  }
}

void DatapathLanes::tell_too_big() {
  // Whoever makes up routers does not fill the log, nor keep the last word from it.
  constexpr TimeNs kTellNs = 1'000'000'000;
  if (!untold_ || now_ < next_too_big_) return;
  next_too_big_ = now_ + kTellNs;
  spdlog::warn("port {}: {}", untold_->port->config().device, text_of(untold_->message));
  untold_.reset();
}

bool DatapathLanes::next_notice(command::Notice& out) {
  while (datapath_.receive(out)) {
    if (!watch_.take(out)) return true;
  }
  return false;
}

std::optional<wire::MacAddress> DatapathLanes::mac_of(std::uint16_t port,
                                                      const wire::IpAddress& ip) const {
  const auto hop = hop_to(*datapath_.ports()[port], ip);
  return hop ? neighbors_[port].lookup(*hop) : std::nullopt;
}

Resolution DatapathLanes::resolve(std::uint16_t port, const wire::IpAddress& ip, Asking asking) {
  Resolution out;
  port::Neighbors& neighbors = neighbors_.at(port);
  const auto hop = hop_to(*datapath_.ports()[port], ip);
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
  const port::NeighborState state = neighbors.state(*hop);
  const bool asks = state == port::NeighborState::kUnknown || state == port::NeighborState::kFailed;
  if (asks && asking == Asking::kNotNow) return out;
  if (asks && asking == Asking::kInTurn) {
    // Counted once a round, since it looks at all.
    if (!unanswered_[port]) unanswered_[port] = neighbors.unanswered();
    if (*unanswered_[port] >= kUnansweredMost || !in_turn_[port].allow(now_)) return out;
    ++*unanswered_[port];
  }
  // Starts again if nobody answered, because only the manager has a time limit.
  if (auto asked = neighbors.resolve(*hop, now_); !asked) {
    out.state = ResolveState::kFailed;
    out.error = asked.error().message;
  } else if (const auto mac = neighbors.lookup(*hop)) {
    out.state = ResolveState::kResolved;
    out.mac = *mac;
  } else {
    out.asked = true;
  }
  return out;
}

Result<void> DatapathLanes::check_path(const NeighborPath& path,
                                       std::uint32_t payload_bytes) const {
  const port::Port& port = *datapath_.ports()[path.port];
  const std::uint32_t packet_bytes = wire::full_packet_bytes(payload_bytes, path.remote_ip.family);
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

Result<command::GroupPlan*> DatapathLanes::create_plan(std::uint64_t handle,
                                                       const PlanRequest& request) {
  for (const auto* paths : {&request.downstream, &request.upstream}) {
    for (const NeighborPath& path : *paths) {
      if (auto ok = check_path(path, request.payload_bytes + seal_bytes(request)); !ok) {
        return tl::unexpected(ok.error());
      }
    }
  }
  auto plan = plan_maker_.create(handle, request);
  if (plan) watch_.add(*plan, request);
  return plan;
}

void DatapathLanes::destroy_plan(command::GroupPlan* plan) {
  watch_.remove(plan);
  plan_maker_.destroy(plan);
}

}  // namespace gradwire::control
