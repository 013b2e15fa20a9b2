// SPDX-License-Identifier: BSD-3-Clause
// Making and ending: hosts, pools, groups, faults, accounts. What happens in between is in
// world_run.cc.
#include "sim/world/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/require.h"
#include "sim/world/addresses.h"

namespace gradwire::sim {
namespace {

constexpr std::size_t kBackendEntries = 256;
/// As the daemon's datapath has it: acknowledgements, hellos and the like on their way out.
constexpr std::uint32_t kControlMbufsPerShard = 64;
constexpr std::uint32_t kControlRoom = 1280;
constexpr std::uint32_t kHeaderRoom = 192;  ///< headers, and the payload on a cache line

/// The group's configuration with what the host's daemon has otherwise.
collective::ShardConfig config_of(const GroupOptions& options, const HostProfile& host) {
  collective::ShardConfig config = options.shard;
  if (host.window_packets != 0) config.window_packets = host.window_packets;
  if (host.transit_packets != 0) config.transit_packets = host.transit_packets;
  if (host.max_active_ops != 0) config.max_active_ops = host.max_active_ops;
  return config;
}

}  // namespace

World::World(const WorldOptions& options, Trace& trace, Observer& observer)
    : options_(options),
      trace_(trace),
      observer_(observer),
      random_(options.seed),
      network_(std::size_t{options.hosts} * options.rails * options.spines, options.link,
               options.port, random_, events_, trace_),
      keys_(options.seed),
      hosts_(options.hosts) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i].profile = options.host;
    hosts_[i].incarnation = 100 + i;
  }
}

World::~World() {
  leaked_mbufs();
  put_pools();
}

void World::make_pools(const GroupOptions& options) {
  const std::uint32_t shards = options.lanes * options_.groups_per_host;
  const auto make = [&](std::uint32_t mbufs, std::uint32_t room) {
    pools_.push_back(PoolBank::instance().take(mbufs, room));
    return pools_.back().get();
  };
  Pool* packets = nullptr;
  Pool* control = nullptr;
  for (Host& host : hosts_) {
    if (packets == nullptr || !options_.one_pool) {
      const std::uint32_t held =
          host.profile.rx_descriptors +
          (host.profile.driver_holds_ns > 0 ? host.profile.tx_descriptors : 0);
      const std::uint32_t many = options_.one_pool ? static_cast<std::uint32_t>(hosts_.size()) : 1;
      const std::uint32_t need =
          (packet_mbufs_needed(config_of(options, host.profile)) * shards + held) * many;
      const std::uint32_t need_control = (kControlMbufsPerShard * shards + held) * many;
      packets = make(options_.packet_mbufs != 0 ? options_.packet_mbufs : need,
                     options.shard.payload_bytes + kHeaderRoom);
      control =
          make(options_.control_mbufs != 0 ? options_.control_mbufs : need_control, kControlRoom);
    }
    host.packets = packets;
    host.control = control;
  }
}

GroupId World::add_group(const GroupOptions& options) {
  if (pools_.empty()) make_pools(options);
  groups_.push_back(
      Group{options, std::vector<Rank>(options.hosts.size()), nullptr, nullptr, nullptr, nullptr});
  if (!options.ranks.empty()) {
    auto layout = ProcessLayout::make(options.ranks, ring_ranks(options));
    require(layout.has_value(), "a simulated group has processes that are no layout");
    // As daemons do it: a plain group has none.
    if (layout->is_plain()) {
      groups_.back().options.members = layout->members_of(0);
    } else {
      groups_.back().layout = std::make_shared<const ProcessLayout>(std::move(*layout));
    }
  }
  groups_.back().owners = owners_of(options);
  groups_.back().tile_shares = tile_shares_of(options);
  groups_.back().tile_costs = tile_costs_of(options);
  const GroupId group = groups_.size() - 1;
  for (std::uint16_t rank = 0; rank < options.hosts.size(); ++rank) make_rank(group, rank);
  return group;
}

void World::make_rank(GroupId group, std::uint16_t rank_index) {
  const GroupOptions& options = groups_[group].options;
  Rank& rank = groups_[group].ranks[rank_index];
  rank.host = options.hosts[rank_index];
  rank.lane_posted.assign(options.lanes, 0);
  Host& host = hosts_[rank.host];
  if (!host.alive) return;
  refill(host);
  const std::uint16_t n = ring_ranks(options);
  const bool folds_only = rank_index >= n;
  const auto hangs_on = static_cast<std::uint16_t>(rank_index % n);
  const auto up_rank = folds_only ? hangs_on : static_cast<std::uint16_t>((rank_index + n - 1) % n);
  const auto down_rank = folds_only ? hangs_on : static_cast<std::uint16_t>((rank_index + 1) % n);
  for (std::uint8_t lane = 0; lane < options.lanes; ++lane) {
    collective::ShardConfig config = config_of(options, host.profile);
    config.key = options.key;
    config.rank = rank_index;
    config.nranks = n;
    config.folding_ranks = options.folding_ranks;
    config.layout = groups_[group].layout.get();
    config.direct.owners = groups_[group].owners;
    config.tiles.shares = groups_[group].tile_shares;
    config.tiles.costs = groups_[group].tile_costs;
    config.member_count = options.members;
    if (config.layout != nullptr) {
      config.member_count = folds_only ? 1 : config.layout->members_of(rank_index);
    }
    config.lane = lane;
    config.lanes = options.lanes;
    config.incarnation = host.incarnation;
    const auto token = [&](std::uint16_t from, std::uint16_t to) {
      return keys_.token(options, ends_of(group, lane, from, to));
    };
    config.seals = make_seals(group, rank_index, lane);
    const auto rail = static_cast<std::uint8_t>(lane % options_.rails);
    const collective::SourcePorts sources{options_.source_ports, options_.source_ports > 1};
    const auto address_of = [&](std::uint16_t other_rank) -> collective::PeerAddress {
      const HostId other = options.hosts[other_rank];
      return {hosts_[other].incarnation,
              {token(rank_index, other_rank), token(other_rank, rank_index)},
              ip_of(other, rail, family_of(rail)),
              frame_between(rank.host, other, lane, rail, family_of(rail)),
              rail,
              other_paths(rank.host, other, lane),
              sources};
    };
    config.downstream = address_of(down_rank);
    config.upstream = address_of(up_rank);
    if (needs_all_ranks(config)) {
      for (std::uint16_t other_rank = 0; other_rank < options.hosts.size(); ++other_rank) {
        config.peers.push_back(address_of(other_rank));
      }
    }
    if (options.shard.transfers.alone) settle_transfers_alone(config);
    config.packet_pool = host.packets->get();
    config.control_pool = host.control->get();
    std::unique_ptr<reduce::Backend> backend;
    if (host.profile.slow_backend > 0) {
      auto slow =
          std::make_unique<SlowBackend>(kBackendEntries, host.profile.slow_backend, random_.next());
      rank.slow.push_back(slow.get());
      backend = std::move(slow);
    } else {
      backend = reduce::make_cpu_backend(kBackendEntries);
    }
    auto shard = collective::Shard::create(config, std::move(backend));
    if (!shard) throw std::runtime_error(shard.error().message);
    host.places.push_back({group, rank_index, lane, shard->get()});
    rank.shards.push_back(std::move(*shard));
  }
}

void World::start(GroupId group, std::uint16_t rank) {
  Rank& r = groups_[group].ranks[rank];
  Host& host = hosts_[r.host];
  trace_.mix(now_, 20, group, rank);
  trace_.line(now_, "host {:<3} group {} rank {} starts", r.host, group, rank);
  for (auto& shard : r.shards) shard->start(local(host, now_));
  wake(host, now_);
}

bool World::post(GroupId group, std::uint16_t rank, const collective::OpSpec& spec) {
  Rank& r = groups_[group].ranks[rank];
  if (r.failed || r.shards.empty()) return false;
  Host& host = hosts_[r.host];
  if (r.waiting.empty() && r.transfers.empty()) host.posting.emplace_back(group, rank);
  r.waiting.push_back(spec);
  trace_.mix(now_, 21, group, rank, spec.op_seq);
  trace_.line(now_, "host {:<3} group {} rank {} posts op {}: {} of {} {}", r.host, group, rank,
              spec.op_seq, name_of(spec.redop), spec.count, name_of(spec.datatype));
  if (!host.paused) retry_posts(group, rank);
  wake(host, now_);
  return true;
}

void World::leave(GroupId group, std::uint16_t rank) {
  Rank& r = groups_[group].ranks[rank];
  trace_.mix(now_, 22, group, rank);
  trace_.line(now_, "host {:<3} group {} rank {} leaves", r.host, group, rank);
  tell(r, [](collective::Shard& lane, TimeNs local_now) { lane.leave(local_now); });
  wake(hosts_[r.host], now_);
}

void World::abort(GroupId group, std::uint16_t rank, const AbortReason& reason) {
  Rank& r = groups_[group].ranks[rank];
  trace_.mix(now_, 23, group, rank, reason.code);
  trace_.line(now_, "host {:<3} group {} rank {} is told to abort: {}", r.host, group, rank,
              describe(reason));
  tell(r, [reason](collective::Shard& lane, TimeNs local_now) { lane.abort(reason, local_now); });
  wake(hosts_[r.host], now_);
}

void World::drop_rank(Rank& rank) {
  if (rank.shards.empty()) return;
  Host& host = hosts_[rank.host];
  std::erase_if(host.places, [&](const Place& place) {
    return std::any_of(rank.shards.begin(), rank.shards.end(),
                       [&](const auto& shard) { return shard.get() == place.shard; });
  });
  // A backend that still works on mbufs would keep them: a device is waited for, too.
  for (SlowBackend* slow : rank.slow) slow->hurry();
  for (auto& shard : rank.shards) {
    if (!rank.slow.empty()) shard->flush(local(host, now_));
  }
  rank.slow.clear();
  forget_lags(rank);
  rank.shards.clear();
  rank.waiting.clear();
  rank.transfers.clear();
  rank.unsized.clear();
}

void World::remove_group(GroupId group) {
  for (Rank& rank : groups_[group].ranks) drop_rank(rank);
}

bool World::formed(GroupId group, std::uint16_t rank) const {
  return groups_[group].ranks[rank].lanes_formed == groups_[group].options.lanes;
}

bool World::done(GroupId group, std::uint16_t rank, std::uint64_t op_seq) const {
  const auto& lanes_done = groups_[group].ranks[rank].lanes_done;
  return op_seq < lanes_done.size() && lanes_done[op_seq] == groups_[group].options.lanes;
}

bool World::closed(GroupId group, std::uint16_t rank) const {
  const Rank& r = groups_[group].ranks[rank];
  return r.shards.empty() || r.lanes_closed == groups_[group].options.lanes;
}

void World::pause(HostId host, TimeNs until) {
  trace_.mix(now_, 24, host, until);
  trace_.line(now_, "host {:<3} is paused for {} us", host, (until - now_) / 1000);
  hosts_[host].paused = true;
  hosts_[host].paused_until = until;
  wake(hosts_[host], until);
}

void World::resume(HostId host) {
  hosts_[host].paused = false;
  wake(hosts_[host], now_);
}

void World::free_driver_memory(Host& host) {
  for (const Held& held : host.held) rte_pktmbuf_free(held.mbuf);
  host.held.clear();
  for (const Received& received : host.rx) rte_pktmbuf_free(received.mbuf);
  host.rx.clear();
  for (rte_mbuf* mbuf : host.stock) rte_pktmbuf_free(mbuf);
  host.stock.clear();
}

void World::crash(HostId host_id) {
  Host& host = hosts_[host_id];
  trace_.mix(now_, 25, host_id);
  trace_.line(now_, "host {:<3} crashes", host_id);
  host.alive = false;
  host.next_poll = kNever;
  host.paused = false;
  for (Group& group : groups_) {
    for (Rank& rank : group.ranks) {
      if (rank.host == host_id) drop_rank(rank);
    }
  }
  host.posting.clear();
  host.packets->withhold(0);
  free_driver_memory(host);
}

void World::restart(HostId host_id) {
  Host& host = hosts_[host_id];
  trace_.mix(now_, 26, host_id);
  trace_.line(now_, "host {:<3} starts again", host_id);
  host.alive = true;
  host.incarnation = random_.next() | 1;
}

void World::drought(HostId host_id, std::uint32_t left) {
  Pool& pool = *hosts_[host_id].packets;
  const std::uint32_t free = pool.withhold_all_but(0);
  trace_.mix(now_, 27, host_id, left);
  trace_.line(now_, "host {:<3} has {} of {} free mbufs left", host_id, std::min(left, free), free);
  pool.withhold(pool.withhold_all_but(left));
  wake(hosts_[host_id], now_);
}

void World::at(TimeNs time, std::function<void()> action) {
  std::uint32_t index = 0;
  if (free_timers_.empty()) {
    index = static_cast<std::uint32_t>(timers_.size());
    timers_.emplace_back();
  } else {
    index = free_timers_.back();
    free_timers_.pop_back();
  }
  timers_[index] = std::move(action);
  events_.push(std::max(time, now_), QueuedEvent::Kind::kTimer, index);
}

std::uint64_t World::counter(std::uint64_t collective::ShardCounters::*member) const {
  std::uint64_t sum = 0;
  for (const Host& host : hosts_) {
    for (const Place& place : host.places) sum += place.shard->counters().*member;
  }
  return sum;
}

std::uint64_t World::drops(wire::Drop drop) const {
  std::uint64_t sum = 0;
  for (const Host& host : hosts_) {
    for (const Place& place : host.places) {
      sum += place.shard->counters().drops[static_cast<std::size_t>(drop)];
    }
  }
  return sum;
}

std::uint64_t World::double_frees() const {
  std::uint64_t sum = 0;
  for (const auto& pool : pools_) sum += pool->double_frees();
  return sum;
}

std::uint64_t World::pool_failures() const {
  std::uint64_t sum = 0;
  for (const auto& pool : pools_) sum += pool->failures();
  return sum;
}

std::uint32_t World::leaked_mbufs() {
  for (Group& group : groups_) {
    for (Rank& rank : group.ranks) drop_rank(rank);
  }
  for (Host& host : hosts_) free_driver_memory(host);
  std::uint32_t leaked = 0;
  for (const auto& pool : pools_) leaked += pool->in_use();
  return leaked;
}

void World::put_pools() {
  for (auto& pool : pools_) PoolBank::instance().put(std::move(pool));
  pools_.clear();
}

std::size_t World::replay() {
  // What is recorded while it is replayed is not replayed again.
  records_wanted_ = 0;
  for (const Recorded& each : recorded_) {
    network_.send(now_, each.from, each.to, each.bytes,
                  static_cast<std::uint32_t>(each.bytes.size()));
  }
  return recorded_.size();
}

}  // namespace gradwire::sim
