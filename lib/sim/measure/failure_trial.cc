// SPDX-License-Identifier: BSD-3-Clause
#include "sim/measure/failure_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/units.h"
#include "sim/world/world.h"

namespace gradwire::sim {
namespace {

constexpr TimeNs kSecondNs = 1'000'000'000;
constexpr std::uint32_t kPayload = 256;
constexpr std::uint32_t kOpsAhead = 2;

class FailureCase final : public Observer {
 public:
  explicit FailureCase(const FailureTrialOptions& options)
      : options_(options), random_(options.seed), world_(world_options(options), trace_, *this) {}

  FailureTrialResult run();

  void on_formed(GroupId, std::uint16_t) override { ++formed_; }
  void on_done(GroupId, std::uint16_t rank, std::uint64_t) override {
    ++done_[rank];
    post(rank);
  }
  void on_failed(GroupId, std::uint16_t rank, const AbortReason& reason) override {
    reasons_[rank] = reason;
  }
  void on_quiet(GroupId, std::uint16_t rank) override { told_at_[rank] = world_.now(); }

 private:
  static WorldOptions world_options(const FailureTrialOptions& o);
  [[nodiscard]] GroupOptions group_options() const;
  void post(std::uint16_t rank);
  /// From time to time the scheduler takes away a host's core.
  void put_aside(HostId host);
  void die();
  void freeze();
  void check_death();
  void fail(std::string text) {
    if (result_.failure.empty()) result_.failure = std::move(text);
  }
  [[nodiscard]] bool all_told() const {
    for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
      if (rank != victim_ && told_at_[rank] == 0) return false;
    }
    return true;
  }

  FailureTrialOptions options_;
  Trace trace_;
  Random random_;
  World world_;
  std::uint64_t count_ = 0;
  std::vector<std::vector<std::byte>> memory_;  ///< [rank * kOpsAhead + op % kOpsAhead], in place
  std::vector<std::uint64_t> posted_;
  std::vector<std::uint64_t> done_;
  std::vector<AbortReason> reasons_;
  std::vector<TimeNs> told_at_;
  std::uint32_t formed_ = 0;
  std::uint16_t victim_ = 0;
  bool frozen_ = false;
  TimeNs died_at_ = 0;
  FailureTrialResult result_;
};

WorldOptions FailureCase::world_options(const FailureTrialOptions& o) {
  WorldOptions world;
  world.hosts = o.ranks;
  world.seed = o.seed;
  world.link.delay_ns = 2 * kUs;
  world.link.loss = o.loss;
  world.port.rate_bps = 10'000'000'000;
  // Polls are rarer than a lane's, so that a trial is quick: milliseconds are enough here.
  world.host.round_ns = 10 * kUs;
  world.host.round_jitter_ns = 5 * kUs;
  world.host.idle_ns = o.own_cores ? 100 * kUs : 1 * kMs;
  return world;
}

GroupOptions FailureCase::group_options() const {
  GroupOptions group;
  for (HostId host = 0; host < options_.ranks; ++host) group.hosts.push_back(host);
  collective::ShardConfig& shard = group.shard;
  shard.payload_bytes = kPayload;
  shard.window_packets = 16;
  shard.transit_packets = 16;
  shard.eager_packets = 8;
  shard.max_active_ops = 2 * kOpsAhead;
  shard.max_chunks = 4'096;
  shard.timeouts.silence_ns = options_.silence_ns;
  shard.timeouts.ping_interval_ns = std::min(options_.ping_interval_ns, options_.silence_ns / 10);
  shard.sender.max_pto_ns = std::min(shard.sender.max_pto_ns, options_.silence_ns / 10);
  return group;
}

void FailureCase::post(std::uint16_t rank) {
  while (posted_[rank] < done_[rank] + kOpsAhead && reasons_[rank].code == AbortCode::kNone) {
    collective::OpSpec spec;
    spec.op_seq = ++posted_[rank];
    spec.count = count_;
    spec.datatype = DataType::kInt32;
    std::byte* const data = memory_[rank * kOpsAhead + spec.op_seq % kOpsAhead].data();
    spec.inputs[0] = data;
    spec.outputs[0] = data;
    if (!world_.post(0, rank, spec)) return;
  }
}

void FailureCase::put_aside(HostId host) {
  if (world_.alive(host) && !(frozen_ && host == victim_)) {
    world_.pause(host, world_.now() + random_.between(1, 20) * kMs);
  }
  world_.at(world_.now() + random_.between(30, 300) * kMs, [this, host] { put_aside(host); });
}

void FailureCase::die() {
  died_at_ = world_.now();
  world_.crash(victim_);
  if (!world_.run_until([this] { return all_told(); }, 4 * options_.silence_ns + kSecondNs)) {
    fail("a survivor was told nothing");
    return;
  }
  for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
    if (rank != victim_) result_.told_ns.push_back(told_at_[rank] - died_at_);
  }
  check_death();
}

void FailureCase::check_death() {
  for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
    if (rank == victim_) continue;
    const AbortReason& reason = reasons_[rank];
    if (reason.code != AbortCode::kSilence || reason.culprit_rank != victim_ ||
        reason.op_seq == 0 ||
        reason.duration_ns < static_cast<std::uint64_t>(options_.silence_ns)) {
      fail(fmt::format("rank {} names not the silence of rank {} in an op: {}", rank, victim_,
                       describe(reason)));
    }
  }
}

void FailureCase::freeze() {
  frozen_ = true;
  world_.pause(victim_, world_.now() + options_.frozen_ns);
  world_.run_for(options_.frozen_ns);
  frozen_ = false;
  const std::uint64_t before = done_[victim_];
  const auto went_on = [&] {
    return done_[victim_] > before + 2 * kOpsAhead || reasons_[victim_].code != AbortCode::kNone;
  };
  const bool in_time = world_.run_until(went_on, 10 * kSecondNs);
  for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
    if (reasons_[rank].code != AbortCode::kNone) {
      fail(fmt::format("rank {} aborted over a freeze of {} ms: {}", rank, options_.frozen_ns / kMs,
                       describe(reasons_[rank])));
    }
  }
  if (!in_time) fail("ops did not go on after a freeze");
}

FailureTrialResult FailureCase::run() {
  const std::uint16_t n = options_.ranks;
  count_ = static_cast<std::uint64_t>(random_.between(1, 64)) * n * kPayload / kElement;
  memory_.assign(std::size_t{n} * kOpsAhead, std::vector<std::byte>(count_ * kElement));
  posted_.assign(n, 0);
  done_.assign(n, 0);
  reasons_.assign(n, {});
  told_at_.assign(n, 0);
  victim_ = static_cast<std::uint16_t>(random_.below(n));
  world_.add_group(group_options());
  for (std::uint16_t rank = 0; rank < n; ++rank) world_.start(0, rank);
  if (!world_.run_until([&] { return formed_ == n; }, 10 * kSecondNs)) {
    fail("the group was not formed");
    return result_;
  }
  if (!options_.own_cores) {
    for (HostId host = 0; host < n; ++host) {
      world_.at(world_.now() + random_.between(0, 200) * kMs, [this, host] { put_aside(host); });
    }
  }
  for (std::uint16_t rank = 0; rank < n; ++rank) post(rank);
  world_.run_for(5 * kMs + static_cast<TimeNs>(random_.below(20 * kMs)));
  if (done_[victim_] == 0) {
    world_.run_until([&] { return done_[victim_] > 0; }, kSecondNs);
  }
  if (options_.frozen_ns > 0) {
    freeze();
  } else {
    die();
  }
  return result_;
}

}  // namespace

FailureTrialResult run_failure_trial(const FailureTrialOptions& options) {
  return FailureCase(options).run();
}

}  // namespace gradwire::sim
