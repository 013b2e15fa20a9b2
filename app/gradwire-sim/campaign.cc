// SPDX-License-Identifier: BSD-3-Clause
#include "campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "sim/seeds/seed_run.h"

namespace gradwire::sim {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Sums {
  std::uint64_t seeds = 0;
  std::uint64_t failed = 0;
  std::uint64_t frames = 0;
  std::uint64_t ops = 0;
  std::uint64_t one_sided = 0;
  std::uint64_t aborted = 0;
  std::uint64_t old_packets = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t spills = 0;
  std::uint64_t copies = 0;
  std::uint64_t early = 0;
  std::uint64_t hash = 0;
  double virtual_s = 0;
  TimeNs longest_still_ns = 0;
  TimeNs longest_op_ns = 0;
  std::vector<TimeNs> detection_ns;

  void add(const SeedResult& result) {
    ++seeds;
    failed += result.failure.empty() ? 0 : 1;
    frames += result.frames;
    ops += result.ops_completed;
    one_sided += result.ops_one_sided;
    aborted += result.epochs_aborted;
    old_packets += result.old_packets;
    retransmissions += result.retransmissions;
    spills += result.spills;
    copies += result.copies;
    early += result.early_packets;
    hash = hash * 0x9e3779b97f4a7c15 ^ result.hash;
    virtual_s += static_cast<double>(result.virtual_ns) / 1e9;
    longest_still_ns = std::max(longest_still_ns, result.longest_still_ns);
    longest_op_ns = std::max(longest_op_ns, result.longest_op_ns);
    detection_ns.insert(detection_ns.end(), result.detection_ns.begin(), result.detection_ns.end());
  }
};

double quantile_ms(std::vector<TimeNs>& times, double q) {
  std::sort(times.begin(), times.end());
  const auto index = static_cast<std::size_t>(q * static_cast<double>(times.size()));
  return static_cast<double>(times[std::min(index, times.size() - 1)]) / 1e6;
}

void print_failure(const Options& options, const Scenario& scenario, const SeedResult& result) {
  fmt::print("seed {} FAILED (trace {:016x}): {}\n{}", scenario.seed, result.hash, result.failure,
             describe(scenario));
  const std::string ranks = options.ranks != 0 ? fmt::format(" --ranks {}", options.ranks) : "";
  fmt::print("replay: gradwire-sim{} --profile {} --seeds {} --trace\n", ranks, options.profile,
             scenario.seed);
}

void print_sums(const Options& options, Sums& sums, double seconds) {
  fmt::print(
      "profile {}: {} seeds, {} failed; {:.1f} s, {:.0f} seeds/s; traces {:016x}\n"
      "  {} frames, {:.0f} s of virtual time; {} ops completed, {} epochs ended early, {} ops "
      "one-sided\n"
      "  {} retransmissions, {} spills, {} copies, {} early packets, {} packets of an old epoch\n"
      "  once every rank has posted an op: at most {} ms until it ends, {} ms without movement\n",
      options.profile, sums.seeds, sums.failed, seconds,
      static_cast<double>(sums.seeds) / std::max(seconds, 1e-9), sums.hash, sums.frames,
      sums.virtual_s, sums.ops, sums.aborted, sums.one_sided, sums.retransmissions, sums.spills,
      sums.copies, sums.early, sums.old_packets, sums.longest_op_ns / 1'000'000,
      sums.longest_still_ns / 1'000'000);
  if (options.profile == "death" && !sums.detection_ns.empty()) {
    fmt::print(
        "  from the death to a survivor's error: p50 {:.1f} ms, p99 {:.1f} ms, "
        "p99.9 {:.1f} ms, worst {:.1f} ms ({} survivors)\n",
        quantile_ms(sums.detection_ns, 0.5), quantile_ms(sums.detection_ns, 0.99),
        quantile_ms(sums.detection_ns, 0.999), quantile_ms(sums.detection_ns, 1),
        sums.detection_ns.size());
  }
}

}  // namespace

bool run_campaign(const Options& options) {
  Sums sums;
  const auto start = Clock::now();
  double next_progress = options.progress_s;
  for (std::uint64_t seed = options.first_seed; seed <= options.last_seed; ++seed) {
    const auto scenario = make_scenario(seed, options.profile, options.ranks);
    if (!scenario) {
      fmt::print("gradwire-sim: {}\n", scenario.error().message);
      return false;
    }
    if (options.sealed && scenario->group.mode == security::Mode::kOff) continue;
    if (options.trace) fmt::print("{}", describe(*scenario));
    Trace trace(options.trace ? stdout : nullptr);
    const SeedResult result = run_scenario(*scenario, trace);
    sums.add(result);
    if (options.trace) fmt::print("seed {}: trace {:016x}\n", seed, result.hash);
    if (!result.failure.empty()) {
      print_failure(options, *scenario, result);
      std::fflush(stdout);
      if (!options.keep_going) break;
    }
    if (options.progress_s > 0 && seconds_since(start) >= next_progress) {
      next_progress += options.progress_s;
      fmt::print("seed {}: {} failed, {:.0f} seeds/s\n", seed, sums.failed,
                 static_cast<double>(sums.seeds) / seconds_since(start));
      std::fflush(stdout);
    }
  }
  print_sums(options, sums, seconds_since(start));
  return sums.failed == 0;
}

}  // namespace gradwire::sim
