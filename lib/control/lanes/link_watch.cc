// SPDX-License-Identifier: BSD-3-Clause
#include "control/lanes/link_watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace gradwire::control {
namespace {

constexpr TimeNs kProbeNsMin = 5'000'000;
constexpr TimeNs kProbeNsMax = 200'000'000;
constexpr TimeNs kSayAgainNs = 10'000'000'000;    // another source port, of a link
constexpr std::uint32_t kWindowPacketsMin = 128;  // what window_packets = "auto" comes to at most

/// Time since the last acknowledgement. Without data, pings are acknowledged, so several must have
/// been lost.
TimeNs suspicious_ns(const collective::ShardTimeouts& timeouts) noexcept {
  return std::max(3 * timeouts.ping_interval_ns, timeouts.silence_ns / 16);
}

std::string key_text(const command::GroupPlan& plan) {
  const GroupKey& key = plan.shards.front().shard->config().key;
  return fmt::format("group {:016x} epoch {}", key.group_id, key.epoch);
}

}  // namespace

void set_times(port::NeighborsConfig& config, const collective::ShardTimeouts& timeouts) noexcept {
  config.probe_ns = std::clamp(timeouts.silence_ns / 16, kProbeNsMin, kProbeNsMax);
  config.delay_ns = config.probe_ns;
  config.reachable_ns = timeouts.silence_ns / 4;
}

std::optional<wire::IpAddress> hop_to(const port::Port& port, const wire::IpAddress& ip) {
  const port::PortConfig& config = port.config();
  return port::next_hop(ip, config.ip, config.prefix_bits, config.routes);
}

void LinkWatch::add(const command::GroupPlan* plan, const PlanRequest& request) {
  Links& links = links_[plan];
  by_handle_.emplace(plan->group_handle, plan);
  if (request.transfers_alone) {
    // There may be a thousand, of which nobody waits for anything: such a rank is looked for as
    // those off the ring are.
    peers_[plan] = {{request.downstream.front().rank, {}, request.downstream}};
    return;
  }
  for (std::uint8_t lane = 0; lane < request.lanes && !request.downstream.empty(); ++lane) {
    add_paths(links, request.downstream, lane, true);
    // With two ranks, one link carries both directions.
    if (request.nranks > 2 && !request.folds_only()) {
      add_paths(links, request.upstream, lane, false);
    }
  }
  if (!request.peers.empty()) peers_[plan] = request.peers;
  for (WatchedLink& link : links) {
    const auto hop = hop_to(*datapath_.ports()[link.path.port], link.path.remote_ip);
    if (!hop) continue;
    link.path.hop = *hop;
    link.held = neighbors_[link.path.port].hold(*hop);
  }
}

void LinkWatch::add_paths(Links& links, std::span<const NeighborPath> paths, std::uint8_t lane,
                          bool is_acked) {
  const std::size_t first = first_path(paths, lane);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    WatchedLink& link = links.emplace_back();
    link.lane = lane;
    link.is_first = i == 0;
    link.is_acked = is_acked;
    link.path = paths[(first + i) % paths.size()];
    link.in_use = link.is_first;
  }
}

void LinkWatch::remove(const command::GroupPlan* plan) {
  const auto found = links_.find(plan);
  if (found == links_.end()) return;
  for (const WatchedLink& link : found->second) {
    if (link.held) neighbors_[link.path.port].release(link.path.hop);
  }
  links_.erase(found);
  peers_.erase(plan);
  by_handle_.erase(plan->group_handle);
  for (auto& [request, move] : moves_) {
    if (move.plan == plan) move.plan = nullptr;
  }
}

void LinkWatch::poll(TimeNs now) {
  const bool looks = now >= next_look_;
  if (looks) {
    next_look_ = now + plans_.shard_settings().timeouts.ping_interval_ns / 2;
    look(now);
  }
  if (const std::uint64_t moves = moved(); looks || moves != moved_) {
    if (moves != moved_ || peers_asked_) move_peers();
    moved_ = moves;
    move_links();
  }
}

std::uint64_t LinkWatch::moved() const noexcept {
  std::uint64_t sum = 0;
  for (const port::Neighbors& neighbors : neighbors_) sum += neighbors.counters().moved;
  return sum;
}

void LinkWatch::look(TimeNs now) {
  if (links_.empty()) return;
  for (std::uint8_t lane = 0; lane < datapath_.lanes(); ++lane) {
    const auto all = datapath_.lane(lane).published(lane::Lane::Which::kNotIdle);
    for (const command::PublishedStatus& published : all) {
      const auto found = by_handle_.find(published.group_handle);
      if (found == by_handle_.end()) continue;  // It was removed.
      const command::GroupPlan* const plan = found->second;
      for (WatchedLink& link : links_.at(plan)) {
        if (link.lane != lane) continue;
        note_path(*plan, link, published.status, now);
        look_at(link, published.status, now);
      }
      look_off_ring(plan, published.status, now);
    }
  }
  // If several groups use one router, one group that it still serves confirms it for all.
  for (auto& [plan, links] : links_) {
    for (const WatchedLink& link : links) {
      if (link.silent) neighbors_[link.path.port].suspect(link.path.hop, now);
    }
  }
}

void LinkWatch::look_off_ring(const command::GroupPlan* plan, const collective::ShardStatus& status,
                              TimeNs now) {
  look_for(plan,
           {status.least_heard_rank, status.least_heard_ns, status.least_heard_unanswered,
            status.least_heard_ip},
           now);
  const collective::TransferWait& wait = status.transfer;
  look_for(plan, {wait.rank, wait.rank_silent_ns, wait.rank_unanswered, wait.rank_ip}, now);
}

void LinkWatch::look_for(const command::GroupPlan* plan, const SilentRank& silent, TimeNs now) {
  // A rank that is late is asked now and then, and silent in between.
  constexpr std::uint32_t kUnanswered = 2;
  if (silent.for_ns < suspicious_ns(plans_.shard_settings().timeouts) ||
      silent.unanswered < kUnanswered) {
    return;
  }
  const auto found = peers_.find(plan);
  if (found == peers_.end()) return;
  const auto peer = std::ranges::find(found->second, silent.rank, &PeerPaths::rank);
  if (peer == found->second.end()) return;
  for (const NeighborPath& path : peer->paths) {
    port::Neighbors& neighbors = neighbors_[path.port];
    // One that nobody asked for lately may have gone from the table.
    if (!neighbors.resolve(path.hop, now)) continue;
    if (path.remote_ip == silent.ip) {
      neighbors.suspect(path.hop, now);
    } else {
      // The lane may take it next.
      neighbors.check(path.hop, now);
    }
    peers_asked_ = true;
  }
}

void LinkWatch::look_at(WatchedLink& link, const collective::ShardStatus& status, TimeNs now) {
  link.silent = false;
  if (!link.held) return;
  if (!link.in_use) {
    link.news_ns = 0;
    return;
  }
  const bool formed = status.state == collective::ShardState::kFormed ||
                      status.state == collective::ShardState::kLeaving;
  if (!formed) {
    link.news_ns = 0;
  } else if (link.is_acked) {
    look_at_acks(link, status.counters, now);
  } else {
    look_at_data(link, status.counters, now);
  }
}

void LinkWatch::note_path(const command::GroupPlan& plan, WatchedLink& link,
                          const collective::ShardStatus& status, TimeNs now) const {
  const wire::IpAddress& taken = link.is_acked ? status.downstream_ip : status.upstream_ip;
  if (taken.family == 0) return;  // It has told nothing yet.
  link.in_use = taken == link.path.remote_ip;
  if (link.in_use) note_source_port(plan, link, status, now);
  // What the other rank chose, its own daemon says.
  if (!link.is_first || !link.is_acked || link.left == !link.in_use) return;
  link.left = !link.in_use;
  const std::string_view device = datapath_.ports()[link.path.port]->config().device;
  if (link.left) {
    spdlog::warn("{}: lane {} leaves port {}: rank {} ({}) is silent there, and answers at {}",
                 key_text(plan), link.lane, device, link.path.rank,
                 wire::to_string(link.path.remote_ip), wire::to_string(taken));
  } else {
    spdlog::warn("{}: lane {} takes port {} again: rank {} ({}) answers there", key_text(plan),
                 link.lane, device, link.path.rank, wire::to_string(link.path.remote_ip));
  }
}

void LinkWatch::note_source_port(const command::GroupPlan& plan, WatchedLink& link,
                                 const collective::ShardStatus& status, TimeNs now) {
  if (status.state != collective::ShardState::kFormed) return;
  // With two ranks one link carries all.
  const bool same = status.downstream_ip == status.upstream_ip;
  if (!link.is_acked && same) return;
  const std::uint16_t port =
      link.is_acked ? status.downstream_source_port : status.upstream_source_port;
  const std::uint16_t before = std::exchange(link.source_port, port);
  const bool first =
      port < wire::kSourcePortFirst || port >= wire::kSourcePortFirst + wire::kSourcePorts;
  if (port == before || (before == 0 && first)) return;
  // What goes off the ring may look for a port for as long as a rank stands still.
  if (link.source_port_said != 0 && link.source_port_said + kSayAgainNs > now) return;
  link.source_port_said = now;
  const char* const silent =
      link.is_acked ? "nothing arrives there from port" : "it hears nothing from port";
  const std::string why = before != 0 ? fmt::format("{} {}", silent, before)
                                      : "while the group formed it answered no other one";
  spdlog::warn("{}: lane {} {} rank {} ({}) from UDP port {} now: {}", key_text(plan), link.lane,
               link.is_acked ? "sends to" : "acknowledges to", link.path.rank,
               wire::to_string(link.path.remote_ip), port, why);
}

void LinkWatch::look_at_acks(WatchedLink& link, const collective::ShardCounters& counters,
                             TimeNs now) {
  if (link.news_ns == 0 || counters.acks_received != link.acks) {
    if (link.news_ns != 0) neighbors_[link.path.port].confirm(link.path.hop, now);
    link.acks = counters.acks_received;
    link.news_ns = now;
  }
  link.silent = now - link.news_ns >= suspicious_ns(plans_.shard_settings().timeouts);
}

/// Acknowledgements go there alone. If they arrive, new data comes, more of it than a window holds.
/// If they do not, what comes is what came before.
void LinkWatch::look_at_data(WatchedLink& link, const collective::ShardCounters& counters,
                             TimeNs now) {
  const collective::ShardConfig& settings = plans_.shard_settings();
  const std::uint64_t repeated = counters.drops[static_cast<std::size_t>(wire::Drop::kDuplicate)];
  const std::uint64_t two_windows = 2 * std::max(settings.window_packets, kWindowPacketsMin);
  if (link.news_ns == 0 || counters.data_packets_received != link.acks) {
    if (link.news_ns == 0) link.confirmed = counters.data_packets_received;
    link.acks = counters.data_packets_received;
    link.repeated = repeated;
    link.news_ns = now;
  }
  if (link.acks - link.confirmed > two_windows) {
    link.confirmed = link.acks;
    neighbors_[link.path.port].confirm(link.path.hop, now);
  }
  link.silent = repeated != link.repeated && now - link.news_ns >= suspicious_ns(settings.timeouts);
}

void LinkWatch::move_links() {
  for (auto& [plan, links] : links_) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      const WatchedLink& link = links[i];
      if (!link.held || link.being_moved) continue;
      const auto mac = neighbors_[link.path.port].lookup(link.path.hop);
      if (mac && mac != link.path.remote_mac) move_link(*plan, links, i, *mac);
    }
  }
}

void LinkWatch::move_link(const command::GroupPlan& plan, Links& links, std::size_t index,
                          const wire::MacAddress& mac) {
  WatchedLink& link = links[index];
  // If the lane's ring is full, the next check tries again.
  link.being_moved = send_move(plan, link.lane, index, link.path, mac);
}

void LinkWatch::move_peers() {
  peers_asked_ = false;
  for (auto& [plan, peers] : peers_) {
    const auto lanes = static_cast<std::uint8_t>(plan->shards.size());
    for (PeerPaths& peer : peers) {
      for (NeighborPath& path : peer.paths) {
        const auto mac = neighbors_[path.port].lookup(path.hop);
        if (!mac || mac == path.remote_mac) continue;
        bool sent = true;
        for (std::uint8_t lane = 0; lane < lanes; ++lane) {
          sent &= send_move(*plan, lane, kNoLink, path, *mac);
        }
        if (sent) path.remote_mac = mac;
        peers_asked_ |= !sent;
      }
    }
  }
}

bool LinkWatch::send_move(const command::GroupPlan& plan, std::uint8_t lane, std::size_t link,
                          const NeighborPath& to, const wire::MacAddress& mac) {
  NeighborPath path = to;
  path.remote_mac = mac;
  const auto frame = plans_.frames_to(path, lane);
  if (!frame) return false;
  auto request = std::make_unique<command::Request>();
  request->type = command::RequestType::kMoveLink;
  request->group_handle = plan.group_handle;
  request->rank = path.rank;
  request->path_ip = path.remote_ip;
  request->frame = *frame;
  if (!datapath_.send(lane, request.get())) return false;
  const command::Request* key = request.get();
  moves_.emplace(key, Move{std::move(request), &plan, link, mac});
  return true;
}

bool LinkWatch::take(const command::Notice& notice) {
  if (notice.type != command::NoticeType::kRequestDone) return false;
  const auto found = moves_.find(notice.request);
  if (found == moves_.end()) return false;
  const Move& move = found->second;
  if (move.plan != nullptr && move.link != kNoLink) {
    WatchedLink& link = links_.at(move.plan)[move.link];
    link.being_moved = false;
    // If a lane does not have the group yet, it is told again.
    if (move.request->taken) link.path.remote_mac = move.mac;
  }
  moves_.erase(found);
  return true;
}

}  // namespace gradwire::control
