// SPDX-License-Identifier: BSD-3-Clause
#include "sim/measure/shape_trial.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>

#include "sim/units.h"
#include "sim/world/world.h"

namespace gradwire::sim {
namespace {

constexpr std::uint64_t kElement = 4;
constexpr std::uint32_t kWindow = 64;
constexpr std::uint32_t kRxStock = 32;
/// Beyond it all ranks write to one output, in which they all put the same.
constexpr std::uint64_t kOutputsMax = 256u << 20;
constexpr TimeNs kLimitNs = 20'000'000'000;

std::uint32_t value_of(std::uint64_t i) { return static_cast<std::uint32_t>(i * 2'654'435'761u); }

class ShapeCase final : public Observer {
 public:
  explicit ShapeCase(const ShapeTrialOptions& options)
      : o_(options), world_(world_options(options), trace_, *this) {}

  ShapeTrialResult run();

  void on_formed(GroupId, std::uint16_t) override { ++formed_; }
  void on_done(GroupId group, std::uint16_t rank, std::uint64_t) override {
    through(world_.busy_until(group, rank));
  }
  void on_transfer_done(GroupId group, std::uint16_t rank, std::uint64_t) override {
    if (--transfers_left_[rank] == 0) through(world_.busy_until(group, rank));
  }
  void on_failed(GroupId, std::uint16_t rank, const AbortReason& reason) override {
    if (result_.failure.empty()) {
      result_.failure = fmt::format("rank {} aborted: {}", rank, describe(reason));
    }
  }

 private:
  static WorldOptions world_options(const ShapeTrialOptions& o);
  [[nodiscard]] GroupOptions group_options() const;
  [[nodiscard]] bool whole() const { return o_.collective == Collective::kAllReduce; }
  /// Elements as the collective counts them.
  [[nodiscard]] std::uint64_t count() const {
    if (o_.collective == Collective::kBarrier) return 0;
    return std::max<std::uint64_t>(o_.bytes / kElement / (whole() ? 1 : o_.ranks), 1);
  }
  [[nodiscard]] std::uint16_t all_ranks() const {
    return static_cast<std::uint16_t>(o_.ranks + o_.folding);
  }
  [[nodiscard]] std::uint64_t elements() const { return count() * (whole() ? 1 : o_.ranks); }
  void through(TimeNs at);
  void post();
  void post(std::uint16_t rank);
  void post_transfers(std::uint16_t rank);
  [[nodiscard]] std::byte* output_of(std::uint16_t rank) {
    return outputs_[rank % outputs_.size()].data();
  }
  void check();
  [[nodiscard]] std::uint32_t expected(std::uint16_t rank, std::uint64_t i) const;

  ShapeTrialOptions o_;
  Trace trace_;
  World world_;
  std::vector<std::byte> input_;  ///< of every rank
  std::vector<std::vector<std::byte>> outputs_;
  std::vector<std::uint32_t> transfers_left_;
  std::vector<TimeNs> times_;
  std::uint32_t formed_ = 0;
  std::uint32_t posted_ = 0;
  TimeNs posted_at_ = 0;
  TimeNs last_ = 0;            ///< rank to be through with the op, so far
  std::uint32_t through_ = 0;  ///< ranks that are
  bool ended_ = false;
  ShapeTrialResult result_;
};

WorldOptions ShapeCase::world_options(const ShapeTrialOptions& o) {
  WorldOptions world;
  world.hosts = static_cast<std::uint16_t>(o.ranks + o.folding);
  world.link.delay_ns = o.costs.hop_ns;
  world.port = {.rate_bps = o.costs.rate_bps, .queue_bytes = 4'000'000, .mark_bytes = 300'000};
  world.host.round_ns = 200;
  world.host.round_jitter_ns = 100;
  world.host.packet_ns = o.costs.packet_ns;
  world.host.rx_descriptors = o.rx_descriptors;
  world.host.rx_stock = kRxStock;
  world.one_pool = true;
  const std::uint32_t waiting = o.ranks > 256 ? 832 : 288;  // received, and not handled yet
  world.packet_mbufs = (2 * kWindow + kRxStock + waiting) * world.hosts;
  world.control_mbufs = 128u * world.hosts;
  return world;
}

GroupOptions ShapeCase::group_options() const {
  GroupOptions group;
  for (HostId host = 0; host < all_ranks(); ++host) group.hosts.push_back(host);
  group.folding_ranks = o_.folding;
  if (o_.folding != 0) group.rates.assign(all_ranks(), 1);
  for (HostId host = 0; host < o_.owners; ++host) group.owners.push_back(host);
  collective::ShardConfig& shard = group.shard;
  shard.payload_bytes = o_.payload_bytes;
  shard.window_packets = kWindow;
  shard.transit_packets = kWindow;
  shard.exchange_bytes = 0;
  shard.direct.op_bytes = o_.direct_kib << 10;
  shard.direct.two_step_bytes = o_.two_step_kib << 10;
  shard.direct.gathered_bytes = o_.gathered_kib << 10;
  shard.direct.gathered_ranks = o_.gathered_ranks;
  shard.tiles.used = o_.tiles;
  if (o_.collective == Collective::kAllToAll) shard.transfers.pairs_max = o_.ranks;
  shard.max_active_ops = 2;
  const collective::Partition ring(elements(), DataType::kInt32, o_.ranks, o_.payload_bytes);
  shard.max_chunks = static_cast<std::uint32_t>(4 * (ring.total_chunks() + o_.ranks));
  return group;
}

void ShapeCase::through(TimeNs at) {
  last_ = std::max(last_, at);
  if (++through_ < o_.ranks) return;
  if (posted_ > 1 || o_.ops == 1) times_.push_back(last_ - posted_at_);
  if (posted_ > o_.ops || o_.ops == 1) {
    ended_ = true;
  } else {
    world_.at(last_, [this] { post(); });
  }
}

void ShapeCase::post() {
  ++posted_;
  through_ = 0;
  posted_at_ = world_.now();
  for (std::uint16_t rank = 0; rank < o_.ranks; ++rank) post(rank);
}

void ShapeCase::post(std::uint16_t rank) {
  if (o_.collective == Collective::kAllToAll) return post_transfers(rank);
  collective::OpSpec spec;
  spec.op_seq = posted_;
  spec.collective = o_.collective;
  spec.count = count();
  spec.datatype = DataType::kInt32;
  spec.inputs[0] = input_.data();
  spec.outputs[0] = output_of(rank);
  if (o_.collective == Collective::kAllGather) {
    spec.inputs[0] = input_.data() + rank * count() * kElement;
  }
  world_.post(0, rank, spec);
}

/// Each rank begins with its right-hand neighbor.
void ShapeCase::post_transfers(std::uint16_t rank) {
  transfers_left_[rank] = 2 * (o_.ranks - 1u);
  const std::uint64_t block = count() * kElement;
  for (std::uint16_t ahead = 1; ahead < o_.ranks; ++ahead) {
    collective::TransferSpec spec;
    spec.terms = {.bytes = block, .tag = 0, .call = wire::TransferCall::kAllToAll};
    const auto to = static_cast<std::uint16_t>((rank + ahead) % o_.ranks);
    const auto from = static_cast<std::uint16_t>((rank + o_.ranks - ahead) % o_.ranks);
    spec.id = 2 * ahead;
    spec.pair = {rank, to};
    spec.from = input_.data() + to * block;
    world_.post(0, rank, spec);
    spec.id = 2 * ahead + 1;
    spec.end = collective::TransferEnd::kDestination;
    spec.pair = {from, rank};
    spec.to = output_of(rank) + from * block;
    world_.post(0, rank, spec);
  }
}

std::uint32_t ShapeCase::expected(std::uint16_t rank, std::uint64_t i) const {
  switch (o_.collective) {
    case Collective::kAllReduce:
      return o_.ranks * value_of(i);
    case Collective::kReduceScatter:
      return o_.ranks * value_of(rank * count() + i);
    case Collective::kAllToAll:
      return value_of(rank * count() + i % count());
    default:
      return value_of(i);
  }
}

void ShapeCase::check() {
  if (o_.collective == Collective::kBarrier) return;
  const bool block = o_.collective == Collective::kReduceScatter;
  const bool one = outputs_.size() == 1;
  // Ranks of a reduce-scatter and an all-to-all have results of their own.
  if (one && (block || o_.collective == Collective::kAllToAll)) return;
  for (std::uint16_t rank = 0; rank < outputs_.size(); ++rank) {
    for (std::uint64_t i = 0; i < (block ? count() : elements()); ++i) {
      if (o_.collective == Collective::kAllToAll && i / count() == rank) continue;
      std::uint32_t value = 0;
      std::memcpy(&value, output_of(rank) + i * kElement, kElement);
      if (value == expected(rank, i)) continue;
      result_.failure =
          fmt::format("rank {} element {} is {}, not {}", rank, i, value, expected(rank, i));
      return;
    }
  }
}

ShapeTrialResult ShapeCase::run() {
  input_.resize(std::max<std::uint64_t>(elements(), 1) * kElement);
  for (std::uint64_t i = 0; i < elements(); ++i) {
    const std::uint32_t value = value_of(i);
    std::memcpy(&input_[i * kElement], &value, kElement);
  }
  outputs_.resize(input_.size() * o_.ranks > kOutputsMax ? 1 : o_.ranks);
  for (auto& output : outputs_) output.resize(input_.size());
  transfers_left_.resize(o_.ranks);
  const std::size_t heap_before = mallinfo2().uordblks + mallinfo2().hblkhd;
  world_.add_group(group_options());
  result_.memory_bytes = (mallinfo2().uordblks + mallinfo2().hblkhd - heap_before) / o_.ranks;
  const collective::Shard& shard = *world_.rank(0, 0).shards[0];
  if (o_.collective != Collective::kAllToAll) {
    result_.shape =
        collective::plan_op(
            shard.config().shape_group(), 0, 1, o_.payload_bytes,
            {.collective = o_.collective, .datatype = DataType::kInt32, .count = count()})
            .shape;
  }
  const TimeNs start = world_.now();
  for (std::uint16_t rank = 0; rank < all_ranks(); ++rank) world_.start(0, rank);
  if (!world_.run_until([&] { return formed_ == all_ranks(); }, kLimitNs)) {
    result_.failure = "the group was not formed";
    return result_;
  }
  result_.formation_ns = world_.now() - start;
  world_.run_for(5 * kMs);
  LinkProfile link = world_.network().link();
  link.loss = o_.loss;
  world_.network().set_link(link);
  const std::uint64_t frames_before = world_.network().stats().frames;
  post();
  const bool ended = world_.run_until([&] { return ended_ || !result_.failure.empty(); }, kLimitNs);
  if (!ended) result_.failure = fmt::format("{} of {} ranks were done", through_, o_.ranks);
  if (!result_.failure.empty()) return result_;
  std::sort(times_.begin(), times_.end());
  result_.p50_ns = times_[times_.size() / 2];
  const double ops = o_.ops == 1 ? 1 : o_.ops + 1;
  result_.packets =
      static_cast<double>(world_.network().stats().frames - frames_before) / o_.ranks / ops;
  result_.retransmissions = world_.counter(&collective::ShardCounters::retransmissions);
  result_.overflow = world_.network().stats().overflow + world_.receive_overruns();
  check();
  return result_;
}

}  // namespace

ShapeTrialResult run_shape_trial(const ShapeTrialOptions& options) {
  return ShapeCase(options).run();
}

}  // namespace gradwire::sim
