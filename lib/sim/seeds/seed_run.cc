// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/seed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/seeds/seed_runner.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

/// The processes of those ranks whose hosts are `hosts`, with their ranks' new numbers.
std::vector<std::uint16_t> survivors_of(const GroupOptions& group,
                                        const std::vector<HostId>& hosts) {
  std::vector<std::uint16_t> ranks;
  for (const std::uint16_t rank : group.ranks) {
    const auto found = std::find(hosts.begin(), hosts.end(), group.hosts[rank]);
    if (found == hosts.end()) continue;
    ranks.push_back(static_cast<std::uint16_t>(found - hosts.begin()));
  }
  return ranks;
}

}  // namespace

bool SeedRun::look(Job& job, Progress& progress) {
  if (job.finished() || !job.failure().empty()) return false;
  std::string still = progress.look();
  if (job.transfers() != nullptr && still.empty()) {
    still = job.transfers()->look(progress.may_expect());
  }
  if (!still.empty()) job.fail(still);
  return still.empty();
}

void SeedRun::watch(std::size_t epoch) {
  // Calls that differ are found when ranks ask for them, which is not at once.
  if (scenario_.odd.any() && epoch == 0) return;
  if (epoch + 1 != jobs_.size() || !look(*jobs_[epoch], *progress_[epoch])) return;
  world_.at(world_.now() + progress_[epoch]->look_ns(), [this, epoch] { watch(epoch); });
}

void SeedRun::first_epoch() {
  jobs_.push_back(
      std::make_unique<Job>(world_, scenario_.group, scenario_.ops, scenario_.ops_ahead));
  if (!scenario_.transfers.transfers.empty()) {
    jobs_.back()->add_transfers(
        std::make_unique<TransferJob>(world_, ranks_of(scenario_.group), scenario_.transfers));
  }
  jobs_.back()->call_oddly(scenario_.odd);
  const GroupId group = world_.add_group(scenario_.group);
  Job& job = *jobs_.back();
  job.attach(group);
  progress_.push_back(std::make_unique<Progress>(world_, job));
  if (scenario_.world.spines > 1) progress_.back()->limit_still(scenario_.still_limit_ns());
  if (scenario_.cut_after_first_done) {
    job.when_first_done = [this](std::uint16_t rank, std::uint64_t) { cut_off(rank); };
  }
  world_.record(8);
  started_at_ = world_.now();
  for (std::uint16_t rank = 0; rank < scenario_.world.hosts; ++rank) {
    world_.at(start_of(rank), [this, group, rank] {
      if (world_.alive(scenario_.group.hosts[rank])) world_.start(group, rank);
    });
  }
  schedule_faults();
  progress_[0]->disturbed_until(last_fault_end());
  watch(0);
  add_neighbor();
  const TimeNs limit =
      last_fault_end() - started_at_ + kOpsLimit + 3 * scenario_.group.shard.timeouts.silence_ns;
  if (!run_ops(job, limit)) {
    std::string who;
    for (std::uint16_t rank = 0; rank < scenario_.nranks; ++rank) {
      const Job::Client& client = job.clients()[rank];
      who += fmt::format(" {}: {} of {}{}", rank, client.done, client.posted,
                         client.crashed  ? " (dead)"
                         : client.quiet  ? " (failed)"
                         : client.failed ? " (failing)"
                                         : "");
    }
    job.fail(fmt::format(
        "no op or transfer ended for {} s, and some are left; done of posted by rank:{}",
        kOpsLimit / kSecond, who));
  }
  if (!may_abort_ && job.failure().empty()) {
    for (const Job::Client& client : job.clients()) {
      if (client.failed) job.fail("an op failed though nothing may make it fail");
    }
  }
  if (scenario_.odd.any() && job.failure().empty() &&
      std::none_of(job.clients().begin(), job.clients().end(), [](const Job::Client& client) {
        return client.failed && client.reason.code == AbortCode::kMismatch;
      })) {
    job.fail("ranks called differently, and no rank was told");
  }
  for (const Job::Client& client : job.clients()) {
    if (client.crashed || !client.failed || crash_times_.empty()) continue;
    result_.detection_ns.push_back(client.failed_at - crash_times_.front());
  }
  result_.ops_completed += job.completed();
  if (job.transfers() != nullptr) result_.transfer_ends += job.transfers()->completed();
  result_.ops_one_sided += job.one_sided();
  end_epoch(job);
}

bool SeedRun::run_ops(Job& job, TimeNs limit) {
  const auto ended = [&job] {
    return job.completed() + (job.transfers() == nullptr ? 0 : job.transfers()->completed());
  };
  std::uint64_t before = 0;
  do {
    before = ended();
    if (world_.run_until([&] { return job.finished() || !job.failure().empty(); }, limit)) {
      return true;
    }
    limit = kOpsLimit;
  } while (ended() != before);
  return false;
}

void SeedRun::close(Job& job, const char* who) {
  job.leave_all();
  const TimeNs limit = scenario_.group.shard.timeouts.leave_ns + 2 * kSecond;
  if (job.failure().empty() && !world_.run_until([&] { return job.closed(); }, limit)) {
    job.fail(fmt::format("{} that left is not closed within its limit", who));
  }
}

void SeedRun::end_epoch(Job& job) {
  healed_ = true;
  world_.record(0);
  world_.network().heal();
  for (HostId host = 0; host < scenario_.world.hosts; ++host) {
    if (!world_.alive(host)) continue;
    world_.resume(host);
    world_.drought(host, UINT32_MAX);
  }
  close(job, "a rank");
  result_.retransmissions += world_.counter(&collective::ShardCounters::retransmissions);
  result_.spills += world_.counter(&collective::ShardCounters::spills);
  result_.copies += world_.counter(&collective::ShardCounters::copies);
  result_.early_packets += world_.counter(&collective::ShardCounters::early_packets);
  check_drops(job);
  world_.remove_group(job.group());
  job.check_memory();
}

/// What no rank sends that keeps to the protocol.
void SeedRun::check_drops(Job& job) {
  if (scenario_.odd.any()) return;  // Chunks of an op that was called otherwise fit nowhere.
  const auto none = [&](wire::Drop drop) {
    if (const std::uint64_t dropped = world_.drops(drop); dropped != 0) {
      job.fail(fmt::format("{} packets were refused as {}", dropped, wire::name_of(drop)));
    }
  };
  // A contribution to a direct op holds no window: it may go to a rank that is further behind than
  // is known here, and comes again. So does an offer to a lane that has not taken the transfer
  // before.
  if (scenario_.group.shard.direct.op_bytes == 0 && !lanes_lag()) none(wire::Drop::kOpAhead);
  // A frame whose length was corrupted looks like a chunk of another length.
  if (scenario_.world.link.corruption == 0) none(wire::Drop::kBadChunk);
  if (scenario_.world.link.corruption == 0) none(wire::Drop::kMalformed);
  if (scenario_.world.link.corruption == 0 && scenario_.world.forging == 0) {
    none(wire::Drop::kTag);
    none(wire::Drop::kUnsealed);
  }
  // An exchange in place sends chunks for which the other rank may have no place yet.
  const auto layout = ProcessLayout::make(ranks_of(scenario_.group), scenario_.nranks);
  const collective::ShapeGroup group{.nranks = scenario_.nranks,
                                     .member_count = scenario_.group.members,
                                     .exchange_bytes = scenario_.group.shard.exchange_bytes,
                                     .layout = layout ? &*layout : nullptr};
  if (neighbor_ != nullptr) return;  // Its group is another one.
  // Pieces of transfers that go ahead share their places.
  if (!collective::exchange::fits(group, 1) && scenario_.transfers.transfers.size() <= 32) {
    none(wire::Drop::kEagerOverflow);
  }
}

void SeedRun::second_epoch() {
  std::vector<HostId> hosts;
  for (std::uint16_t rank = 0; rank < scenario_.nranks; ++rank) {
    const bool survived = !jobs_[0]->clients()[rank].crashed;
    if (!world_.alive(rank) && !scenario_.shrink) world_.restart(rank);
    if (world_.alive(rank) && (survived || !scenario_.shrink)) hosts.push_back(rank);
  }
  if (hosts.size() < 2) return;
  const auto n = static_cast<std::uint16_t>(hosts.size());
  std::uint16_t folding_ranks = 0;
  for (HostId host = scenario_.nranks; host < scenario_.world.hosts; ++host) {
    if (!world_.alive(host) && !scenario_.shrink) world_.restart(host);
    if (!world_.alive(host) || folding_ranks == n) continue;
    hosts.push_back(host);
    ++folding_ranks;
  }
  Random random(scenario_.world.seed + 1);
  GroupOptions options = scenario_.group;
  options.key.epoch += 1;
  options.hosts = hosts;
  options.folding_ranks = folding_ranks;
  options.ranks = survivors_of(scenario_.group, hosts);
  options.shard.timeouts.formation_ns = 30 * kSecond;

  // Every other time the network is good, and then each old packet is accounted for, if it is
  // known to be this group's.
  const bool exact = random.chance(0.5) && neighbor_ == nullptr;
  if (exact) {
    LinkProfile good;
    good.delay_ns = scenario_.world.link.delay_ns;
    world_.network().set_link(good);
    world_.run_for(2 * scenario_.group.shard.timeouts.silence_ns * 3 + kSecond);
  }
  const std::uint64_t count = 1 + random.below(4);
  std::vector<PlannedOp> ops(options.shard.transfers.alone ? 0 : count);
  for (PlannedOp& op : ops) {
    op.plan.count = random.below(400);
    op.plan.datatype = DataType::kInt32;
    op.plan.seed = random.next();
    op.late_ns.assign(n, 0);
  }
  std::vector<std::uint32_t> ops_ahead(n);
  for (std::uint32_t& ahead : ops_ahead) ahead = random.pick({1u, 2u, 4u});
  jobs_.push_back(std::make_unique<Job>(world_, options, ops, ops_ahead));
  Job& job = *jobs_.back();
  job.attach(world_.add_group(options));
  progress_.push_back(std::make_unique<Progress>(world_, job));
  if (scenario_.world.spines > 1) progress_.back()->limit_still(scenario_.still_limit_ns());
  watch(1);
  for (std::uint16_t rank = 0; rank < hosts.size(); ++rank) world_.start(job.group(), rank);
  const auto all_formed = [&] {
    for (std::uint16_t rank = 0; rank < hosts.size(); ++rank) {
      if (!world_.formed(job.group(), rank)) return false;
    }
    return true;
  };
  const std::uint64_t dropped_before = world_.unknown_packets();
  const std::uint64_t overflow_before = world_.network().stats().overflow;
  std::uint64_t replayed = 0;
  if (!world_.run_until([&] { return all_formed() || !job.failure().empty(); }, 30 * kSecond)) {
    job.fail("the new epoch did not form");
  } else {
    replayed = world_.replay();
    // Where there are no ops to wait for.
    if (ops.empty()) world_.run_for(kSecond);
    if (!run_ops(job, kOpsLimit)) {
      job.fail(fmt::format("no op of the new epoch ended for {} s, and some are left",
                           kOpsLimit / kSecond));
    }
  }
  close(job, "a rank of the new epoch");
  const std::uint64_t dropped = world_.unknown_packets() - dropped_before;
  result_.old_packets = replayed;
  // All at once they may be more than a port's queue holds.
  const std::uint64_t overflow = world_.network().stats().overflow - overflow_before;
  if (exact && hosts.size() == scenario_.world.hosts && job.failure().empty() &&
      world_.receive_overruns() == 0 && dropped + overflow < replayed) {
    job.fail(fmt::format("{} old packets came, {} were dropped as unknown", replayed, dropped));
  }
  result_.ops_completed += job.completed();
  world_.remove_group(job.group());
  job.check_memory();
}

void SeedRun::check_pools() {
  Job& job = *jobs_.back();
  const bool dry = std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                               [](const Fault& f) { return f.kind == FaultKind::kDrought; });
  // Drivers give back what they hold.
  world_.run_for(100 * kMs);
  if (world_.late_pieces() != 0) {
    job.fail(fmt::format("{} pieces were made of ops that had ended", world_.late_pieces()));
  }
  if (world_.frames_changed() != 0) {
    job.fail(
        fmt::format("{} frames were changed while a driver held them", world_.frames_changed()));
  }
  if (const std::uint64_t clear = world_.keys().unsealed(); clear != 0) {
    job.fail(fmt::format("{} packets went in clear", clear));
  }
  if (const std::uint64_t again = world_.keys().nonces_reused(); again != 0) {
    job.fail(fmt::format("{} packets were sealed under the number of another one", again));
  }
  // A lane that stands still keeps frames beyond those of the host's ring.
  if (!dry && !lanes_lag() && world_.pool_failures() != 0) {
    job.fail(
        fmt::format("a pool of the size of rule 3 was empty {} times", world_.pool_failures()));
  }
  if (const std::uint64_t freed = world_.double_frees(); freed != 0) {
    job.fail(fmt::format("{} mbufs were freed twice", freed));
  }
  if (const std::uint32_t leaked = world_.leaked_mbufs(); leaked != 0) {
    job.fail(fmt::format("{} mbufs did not come home", leaked));
  }
}

SeedResult SeedRun::run() {
  first_epoch();
  const bool aborted = std::any_of(jobs_[0]->clients().begin(), jobs_[0]->clients().end(),
                                   [](const Job::Client& c) { return c.failed || c.crashed; });
  result_.epochs_aborted = aborted ? 1 : 0;
  if (jobs_[0]->failure().empty() && (aborted || scenario_.seed % 4 == 0)) second_epoch();
  end_neighbor();
  check_pools();
  for (const auto& each : jobs_) {
    if (result_.failure.empty()) result_.failure = each->failure();
  }
  for (const auto& each : progress_) {
    result_.longest_still_ns = std::max(result_.longest_still_ns, each->longest_still_ns());
    result_.longest_op_ns = std::max(result_.longest_op_ns, each->longest_op_ns());
  }
  result_.hash = trace_.hash();
  result_.virtual_ns = world_.now() - started_at_;
  result_.frames = world_.network().stats().frames;
  result_.polls = world_.polls();
  return result_;
}

SeedResult run_scenario(const Scenario& scenario, Trace& trace) {
  return SeedRun(scenario, trace).run();
}

}  // namespace gradwire::sim
