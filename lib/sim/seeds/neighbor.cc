// SPDX-License-Identifier: BSD-3-Clause
// Profile users: a group of another user on the same hosts and lanes, whose clients call alike and
// stay. Whatever becomes of the first group (its clients die, abort, call differently, leave and
// come again), every op of the other has to end with its bits.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "sim/seeds/seed_runner.h"
#include "sim/seeds/sizes.h"
#include "sim/units.h"

namespace gradwire::sim {

void place_neighbor(Scenario& other, Random& random) {
  std::vector<HostId> hosts(other.nranks);
  std::iota(hosts.begin(), hosts.end(), HostId{0});
  for (std::size_t left = hosts.size(); left > 1; --left) {
    std::swap(hosts[left - 1], hosts[random.below(left)]);
  }
  other.nranks = static_cast<std::uint16_t>(random.between(2, other.nranks));
  hosts.resize(other.nranks);
  other.group.hosts = std::move(hosts);
  other.group.key = {random.next(), static_cast<std::uint32_t>(random.between(1, 1000))};
  // By this key it has the first group's tag, and packets are told apart by their tokens.
  const GroupKey kSameTag{2'184'932'073, GroupOptions{}.key.epoch};
  if (random.chance(0.5)) other.group.key = kSameTag;
  other.group.ranks.clear();
  other.group.members = random.pick<std::uint16_t>({1, 1, 2, 3});
  if (other.group.lanes > 1 && random.chance(0.3)) --other.group.lanes;
  // What is drawn apart is another user's, too.
  other.seed ^= std::uint64_t{1} << 40;
}

void SeedRun::add_neighbor() {
  if (scenario_.neighbor == nullptr) return;
  const Scenario& other = *scenario_.neighbor;
  neighbor_ = std::make_unique<Job>(world_, other.group, other.ops, other.ops_ahead);
  if (!other.transfers.transfers.empty()) {
    neighbor_->add_transfers(
        std::make_unique<TransferJob>(world_, ranks_of(other.group), other.transfers));
  }
  const GroupId group = world_.add_group(other.group);
  neighbor_->attach(group);
  neighbor_progress_ = std::make_unique<Progress>(world_, *neighbor_);
  for (std::uint16_t rank = 0; rank < other.nranks; ++rank) {
    world_.at(started_at_ + other.start_late_ns[rank],
              [this, group, rank] { world_.start(group, rank); });
  }
  neighbor_progress_->disturbed_until(last_fault_end());
  watch_neighbor();
}

void SeedRun::watch_neighbor() {
  if (!look(*neighbor_, *neighbor_progress_)) return;
  world_.at(world_.now() + neighbor_progress_->look_ns(), [this] { watch_neighbor(); });
}

void SeedRun::end_neighbor() {
  if (neighbor_ == nullptr) return;
  Job& job = *neighbor_;
  if (!run_ops(job, kOpsLimit)) {
    job.fail(
        fmt::format("no op or transfer ended for {} s, and some are left", kOpsLimit / kMs / 1000));
  }
  close(job, "a rank");
  result_.ops_completed += job.completed();
  if (job.transfers() != nullptr) result_.transfer_ends += job.transfers()->completed();
  world_.remove_group(job.group());
  job.check_memory();
  if (result_.failure.empty() && !job.failure().empty()) {
    result_.failure = "the other user's group: " + job.failure();
  }
}

}  // namespace gradwire::sim
