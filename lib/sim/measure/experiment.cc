// SPDX-License-Identifier: BSD-3-Clause
#include "sim/measure/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/shapes/partition.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

constexpr std::uint32_t kRxDescriptors = 64;

/// The value of element `i` at a rank: cheap to compute, and a wrong chunk gives a wrong sum.
std::int32_t value_of(std::uint16_t rank, std::uint64_t i) {
  return static_cast<std::int32_t>(i * 2'654'435'761u + rank * 40'503u);
}

class Experiment final : public Observer {
 public:
  explicit Experiment(const ExperimentOptions& options)
      : options_(options), world_(world_options(options), trace_, *this) {}

  ExperimentResult run();

  void on_formed(GroupId, std::uint16_t) override { ++formed_; }
  void on_done(GroupId, std::uint16_t, std::uint64_t) override { ++done_; }
  void on_failed(GroupId, std::uint16_t rank, const AbortReason& reason) override {
    if (result_.failure.empty()) {
      result_.failure = fmt::format("rank {} aborted: {}", rank, describe(reason));
    }
  }

 private:
  static WorldOptions world_options(const ExperimentOptions& o);
  [[nodiscard]] GroupOptions group_options(std::uint16_t group) const;
  [[nodiscard]] std::uint64_t count() const { return o().bytes / o().payload_scale / kElement; }
  [[nodiscard]] const ExperimentOptions& o() const { return options_; }
  void post(std::uint16_t group);
  void sample();
  void cross();
  void check();
  void fill_ideal();

  ExperimentOptions options_;
  Trace trace_;
  World world_;
  std::vector<std::vector<std::vector<std::byte>>> memory_;  ///< [group][rank], in place
  std::vector<std::uint64_t> accepted_before_;               ///< [group]
  std::uint32_t formed_ = 0;
  std::uint32_t done_ = 0;
  ExperimentResult result_;
};

WorldOptions Experiment::world_options(const ExperimentOptions& o) {
  WorldOptions world;
  world.hosts = o.ranks;
  world.seed = o.seed;
  world.link.delay_ns = o.delay_ns;
  world.link.loss = 0;  // Until the group is formed.
  world.port = {.rate_bps = o.rate_bps, .queue_bytes = o.queue_bytes, .mark_bytes = o.mark_bytes};
  world.host.round_ns = 200;
  world.host.round_jitter_ns = 400;
  world.host.rx_descriptors = kRxDescriptors;
  world.payload_scale = o.payload_scale;
  world.one_pool = true;
  world.groups_per_host = o.groups;
  const std::uint32_t each =
      o.groups * (3 * o.window_packets + 64) + kRxDescriptors;  // as many as are ever used
  world.packet_mbufs = each * o.ranks;
  world.control_mbufs = 64u * o.groups * o.ranks;
  return world;
}

GroupOptions Experiment::group_options(std::uint16_t index) const {
  GroupOptions group;
  group.key.group_id = 1000u + index;
  for (HostId host = 0; host < o().ranks; ++host) group.hosts.push_back(host);
  collective::ShardConfig& shard = group.shard;
  shard.payload_bytes = o().payload_bytes;
  shard.payload_scale = o().payload_scale;
  shard.window_packets = o().window_packets;
  shard.transit_packets = o().window_packets;
  shard.congestion = o().congestion;
  shard.swift_target_ns = o().swift_target_ns;
  shard.sender.rate_bps = o().pace_bps;
  // The values for isolated cores, which no scheduler takes away: doc/protocol/limits.md,
  // Constants.
  shard.sender.granularity_ns = 20'000;
  shard.sender.max_ack_delay_ns = 50'000;
  shard.sender.initial_rtt_ns = 1'000'000;
  shard.receiver.max_ack_delay_ns = 20'000;
  shard.max_active_ops = 2;
  shard.max_chunks = static_cast<std::uint32_t>(
      collective::Partition(count(), DataType::kInt32, o().ranks, o().payload_bytes)
          .total_chunks() +
      64);
  return group;
}

void Experiment::post(std::uint16_t group) {
  for (std::uint16_t rank = 0; rank < o().ranks; ++rank) {
    collective::OpSpec spec;
    spec.op_seq = 1;
    spec.count = count();
    spec.datatype = DataType::kInt32;
    spec.inputs[0] = memory_[group][rank].data();
    spec.outputs[0] = memory_[group][rank].data();
    world_.post(group, rank, spec);
  }
}

void Experiment::sample() {
  const double seconds = static_cast<double>(o().sample_ns) / 1e9;
  for (std::uint16_t group = 0; group < o().groups; ++group) {
    const std::uint64_t accepted =
        world_.rank(group, 0).shards[0]->counters().data_bytes_received * o().payload_scale;
    result_.accepted_bps[group].push_back(static_cast<double>(accepted - accepted_before_[group]) *
                                          8 / seconds);
    accepted_before_[group] = accepted;
  }
  std::uint64_t deepest = 0;
  for (HostId host = 0; host < o().ranks; ++host) {
    deepest = std::max(deepest, world_.network().most_queued_bytes(host));
  }
  result_.queued_bytes.push_back(deepest);
  result_.most_queued_bytes = std::max(result_.most_queued_bytes, deepest);
  world_.network().forget_most_queued();
  world_.at(world_.now() + o().sample_ns, [this] { sample(); });
}

void Experiment::cross() {
  // One port after the other, in packets, as an incast's senders would give them.
  constexpr std::uint32_t kPacket = 9'038;
  for (HostId host = 0; host < o().ranks; ++host) {
    for (std::uint64_t sent = 0; sent < o().cross_bytes; sent += kPacket) {
      world_.network().cross_traffic(world_.now(), host, kPacket);
    }
  }
  world_.at(world_.now() + o().cross_interval_ns, [this] { cross(); });
}

void Experiment::check() {
  for (std::uint16_t group = 0; group < o().groups; ++group) {
    for (std::uint64_t i = 0; i < count(); ++i) {
      std::uint32_t sum = 0;
      for (std::uint16_t rank = 0; rank < o().ranks; ++rank) {
        sum += static_cast<std::uint32_t>(value_of(rank, i));
      }
      for (std::uint16_t rank = 0; rank < o().ranks; ++rank) {
        std::uint32_t value = 0;
        std::memcpy(&value, &memory_[group][rank][i * kElement], kElement);
        if (value == sum) continue;
        result_.failure = fmt::format("group {} rank {} element {}: {} instead of {}", group, rank,
                                      i, value, sum);
        return;
      }
    }
  }
}

void Experiment::fill_ideal() {
  const collective::Partition partition(count(), DataType::kInt32, o().ranks, o().payload_bytes);
  constexpr double kHeaders = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes +
                              wire::kHeaderBytes + 24;  // and what Ethernet adds
  const double packet = kHeaders + double{1} * o().payload_bytes * o().payload_scale;
  const double wire_bytes = kHeaders * static_cast<double>(partition.total_chunks()) +
                            static_cast<double>(count() * kElement) * o().payload_scale;
  const double n = o().ranks;
  const double rate = static_cast<double>(o().rate_bps) / 8e9;  // bytes per nanosecond
  result_.ideal_ns =
      static_cast<TimeNs>(2 * (n - 1) / n * wire_bytes / rate +
                          2 * (n - 1) * (packet / rate + static_cast<double>(o().delay_ns)));
}

ExperimentResult Experiment::run() {
  memory_.resize(o().groups);
  for (auto& ranks : memory_) {
    ranks.resize(o().ranks);
    for (std::uint16_t rank = 0; rank < o().ranks; ++rank) {
      ranks[rank].resize(count() * kElement);
      for (std::uint64_t i = 0; i < count(); ++i) {
        const std::int32_t value = value_of(rank, i);
        std::memcpy(&ranks[rank][i * kElement], &value, kElement);
      }
    }
  }
  accepted_before_.assign(o().groups, 0);
  result_.accepted_bps.resize(o().groups);
  fill_ideal();
  for (std::uint16_t group = 0; group < o().groups; ++group) {
    world_.add_group(group_options(group));
    for (std::uint16_t rank = 0; rank < o().ranks; ++rank) world_.start(group, rank);
  }
  const std::uint32_t all = std::uint32_t{o().ranks} * o().groups;
  if (!world_.run_until([&] { return formed_ == all; }, 1'000'000'000)) {
    result_.failure = "the groups were not formed";
    return result_;
  }
  world_.run_for(1'000'000);
  LinkProfile link = world_.network().link();
  link.loss = o().loss;
  world_.network().set_link(link);
  world_.network().forget_most_queued();
  const TimeNs start = world_.now();
  const std::uint64_t frames_before = world_.network().stats().frames;
  for (std::uint16_t group = 0; group < o().groups; ++group) {
    const TimeNs later = group < o().group_starts_ns.size() ? o().group_starts_ns[group] : 0;
    world_.at(start + later, [this, group] { post(group); });
  }
  if (o().rate_changes_at_ns != 0) {
    world_.at(start + o().rate_changes_at_ns, [this] {
      for (HostId host = 0; host < o().ranks; ++host) {
        world_.network().set_rate(host, o().later_rate_bps);
      }
    });
  }
  world_.at(start + o().sample_ns, [this] { sample(); });
  if (o().cross_bytes != 0) cross();
  const bool ended =
      world_.run_until([&] { return done_ == all || !result_.failure.empty(); }, o().limit_ns);
  result_.time_ns = world_.now() - start;
  if (!ended) result_.failure = fmt::format("{} of {} ranks were done in time", done_, all);
  const NetworkStats& stats = world_.network().stats();
  result_.lost = stats.lost;
  result_.overflow = stats.overflow;
  result_.marked = stats.marked;
  result_.frames = stats.frames - frames_before;
  result_.retransmissions = world_.counter(&collective::ShardCounters::retransmissions);
  result_.spills = world_.counter(&collective::ShardCounters::spills);
  const double n = o().ranks;
  result_.goodput_bps = 2 * (n - 1) / n * static_cast<double>(count() * kElement) *
                        o().payload_scale * 8e9 / static_cast<double>(result_.time_ns);
  if (result_.failure.empty()) check();
  return result_;
}

}  // namespace

ExperimentResult run_experiment(const ExperimentOptions& options) {
  return Experiment(options).run();
}

}  // namespace gradwire::sim
