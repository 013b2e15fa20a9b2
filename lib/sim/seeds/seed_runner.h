// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One seed while it runs: its epochs (seed_run.cc) and its faults (seed_faults.cc). One thread; it
/// allocates.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/seeds/job.h"
#include "sim/seeds/progress.h"
#include "sim/seeds/seed_run.h"

namespace gradwire::sim {

class SeedRun final : public Observer {
 public:
  SeedRun(const Scenario& scenario, Trace& trace)
      : scenario_(scenario), trace_(trace), world_(scenario.world, trace, *this) {
    for (HostId host = 0; host < scenario.hosts.size(); ++host) {
      world_.profile(host) = scenario.hosts[host];
    }
  }

  SeedResult run();

  void on_formed(GroupId group, std::uint16_t rank) override { job(group).on_formed(rank); }
  void on_done(GroupId group, std::uint16_t rank, std::uint64_t op_seq) override {
    job(group).on_done(rank, op_seq);
  }
  void on_transfer_sized(GroupId group, std::uint16_t, std::uint64_t id,
                         std::uint64_t bytes) override {
    job(group).transfers()->on_sized(id, bytes);
  }
  void on_transfer_done(GroupId group, std::uint16_t rank, std::uint64_t id) override {
    job(group).on_transfer_done(rank, id);
  }
  void on_failed(GroupId group, std::uint16_t rank, const AbortReason& reason) override {
    job(group).on_failed(rank, reason);
    if (is_neighbor(group)) {
      neighbor_->fail(fmt::format("rank {} failed: {}", rank, describe(reason)));
    } else if (group != 0) {
      job(group).fail(fmt::format("rank {} of the new epoch failed: {}", rank, describe(reason)));
    } else {
      check_reason(rank, reason);
    }
  }
  void on_quiet(GroupId group, std::uint16_t rank) override { job(group).on_quiet(rank); }

 private:
  /// Groups are numbered as they were made: the first epoch's, the neighbor's, the second epoch's.
  [[nodiscard]] bool is_neighbor(GroupId group) const {
    return neighbor_ != nullptr && neighbor_->group() == group;
  }
  Job& job(GroupId group) {
    if (is_neighbor(group)) return *neighbor_;
    return group == 0 ? *jobs_.front() : *jobs_.back();
  }
  void blame(int rank) {
    const int n = scenario_.nranks;
    if (rank >= n && rank < scenario_.world.hosts) {
      blamed_.insert(static_cast<std::uint16_t>(rank));
      return;
    }
    blamed_.insert(static_cast<std::uint16_t>((rank % n + n) % n));
  }

  // seed_faults.cc
  void schedule_faults();
  void begin_fault(const Fault& fault);
  void end_fault(const Fault& fault);
  void set_rail(const Fault& fault, bool begins);
  void set_cut(const Fault& fault, bool down);
  void cut_off(std::uint16_t rank);
  [[nodiscard]] bool left_while_others_were_held_up(std::uint16_t rank);
  [[nodiscard]] bool closed_after_abort(std::uint16_t rank);
  [[nodiscard]] std::string wrong_mismatch(const AbortReason& reason) const;
  void check_reason(std::uint16_t rank, const AbortReason& reason);
  [[nodiscard]] TimeNs last_fault_end() const;

  // seed_run.cc
  /// Virtual time, beyond what faults and clients delay, in which some op or transfer has to end.
  /// Any run that hangs needs it all. All of a run's ops can need more: hundreds, each of a hundred
  /// chunks through a window of two with losses of 30 %, took 66 s.
  static constexpr TimeNs kOpsLimit = 60'000'000'000;
  /// @return whether to look again: nothing is wrong, and the job has not ended.
  [[nodiscard]] static bool look(Job& job, Progress& progress);
  /// Looks at the progress of the job again and again, until the job has ended.
  void watch(std::size_t epoch);
  void first_epoch();
  /// @param limit  virtual time from now in which the first op or transfer has to end; each further
  ///               one has to within kOpsLimit
  /// @return whether all ended, or the job failed
  bool run_ops(Job& job, TimeNs limit);
  /// All of its ranks leave, and have to be closed in time. @param who  they are, for people
  void close(Job& job, const char* who);
  void end_epoch(Job& job);
  void second_epoch();
  void check_pools();
  void check_drops(Job& job);

  // neighbor.cc
  void add_neighbor();
  void watch_neighbor();
  void end_neighbor();
  [[nodiscard]] bool lanes_lag() const {
    return std::any_of(scenario_.hosts.begin(), scenario_.hosts.end(),
                       [](const HostProfile& host) { return host.lane_lag > 0; });
  }
  [[nodiscard]] TimeNs start_of(std::uint16_t rank) const {
    return started_at_ + scenario_.start_late_ns[rank];
  }

  const Scenario& scenario_;
  Trace& trace_;
  World world_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Progress>> progress_;  ///< of each of jobs_
  std::unique_ptr<Job> neighbor_;                    ///< nullptr: there is none
  std::unique_ptr<Progress> neighbor_progress_;
  std::set<std::uint16_t> blamed_;
  std::set<std::pair<std::uint16_t, std::uint16_t>> separated_;  ///< by a cut, both ways
  std::set<std::uint16_t> stood_still_;  ///< heard nothing for long, and may say so of neighbors
  bool may_abort_ = false;
  bool healed_ = false;
  TimeNs started_at_ = 0;
  TimeNs extra_fault_end_ = 0;
  std::vector<TimeNs> crash_times_;
  SeedResult result_;
};

}  // namespace gradwire::sim
