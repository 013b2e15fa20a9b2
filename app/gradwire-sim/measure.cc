// SPDX-License-Identifier: BSD-3-Clause
#include "measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/defaults.h"
#include "measure_shapes.h"
#include "sim/measure/experiment.h"
#include "sim/measure/failure_trial.h"

namespace gradwire::sim {
namespace {

using transport::CongestionKind;

double ms(TimeNs ns) { return static_cast<double>(ns) / 1e6; }

bool good(const ExperimentResult& result) {
  if (!result.failure.empty()) fmt::print("\nFAILED: {}\n", result.failure);
  std::fflush(stdout);
  return result.failure.empty();
}

/// Completion of one all-reduce without loss against the formula.
bool measure_scale(const Options& options) {
  bool all = true;
  fmt::print(
      "| ranks | controller | time ms | ideal ms | over | deepest queue KB | frames |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const std::uint16_t ranks : {16, 256, 1024}) {
    if (options.ranks != 0 && options.ranks != ranks) continue;
    for (const CongestionKind controller : transport::kCongestionKinds) {
      if (!options.controller.empty() && options.controller != name_of(controller)) continue;
      ExperimentOptions o;
      o.ranks = ranks;
      o.bytes = options.bytes != 0 ? options.bytes : 256'000'000;
      o.swift_target_ns = static_cast<TimeNs>(options.swift_target_us) * 1'000;
      o.congestion = controller;
      const ExperimentResult r = run_experiment(o);
      all &= good(r);
      fmt::print(
          "| {} | {} | {:.3f} | {:.3f} | {:+.1f} % | {:.0f} | {} |\n", ranks, name_of(controller),
          ms(r.time_ns), ms(r.ideal_ns),
          100.0 * static_cast<double>(r.time_ns - r.ideal_ns) / static_cast<double>(r.ideal_ns),
          static_cast<double>(r.most_queued_bytes) / 1e3, r.frames);
      std::fflush(stdout);
    }
  }
  return all;
}

/// Goodput against loss, alone and under incast.
bool measure_loss(const Options& options) {
  bool all = true;
  constexpr std::array kLosses = {0.0, 0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.3};
  for (const bool incast : {false, true}) {
    fmt::print("\n{}\n\n| loss % |", incast ? "With incast" : "Alone");
    for (const CongestionKind controller : transport::kCongestionKinds) {
      fmt::print(" {} Gbit/s | sent again % |", name_of(controller));
    }
    fmt::print("\n|---|---|---|---|---|---|---|\n");
    for (const double loss : kLosses) {
      fmt::print("| {} |", loss * 100);
      for (const CongestionKind controller : transport::kCongestionKinds) {
        ExperimentOptions o;
        o.ranks = options.ranks != 0 ? options.ranks : 16;
        o.bytes = options.bytes != 0 ? options.bytes : 64'000'000;
        o.congestion = controller;
        o.loss = loss;
        if (incast) {
          // A fifth of the port's rate, in bursts of 40 packets from elsewhere.
          o.cross_bytes = 40 * 9'038;
          o.cross_interval_ns = 145'000;
        }
        const ExperimentResult r = run_experiment(o);
        all &= good(r);
        fmt::print(" {:.1f} | {:.2f} |", r.goodput_bps / 1e9,
                   100.0 * static_cast<double>(r.retransmissions) /
                       static_cast<double>(std::max<std::uint64_t>(r.frames, 1)));
        std::fflush(stdout);
      }
      fmt::print("\n");
    }
  }
  return all;
}

/// Two groups on the same ports, one later than the other; the ports' rate halves on the way.
bool measure_sharing(const Options& options) {
  bool all = true;
  for (const CongestionKind controller : transport::kCongestionKinds) {
    ExperimentOptions o;
    o.ranks = options.ranks != 0 ? options.ranks : 8;
    o.groups = 2;
    o.bytes = options.bytes != 0 ? options.bytes : 128'000'000;
    o.congestion = controller;
    o.group_starts_ns = {0, 5'000'000};
    o.rate_changes_at_ns = 15'000'000;
    o.later_rate_bps = o.rate_bps / 2;
    o.sample_ns = 1'000'000;
    const ExperimentResult r = run_experiment(o);
    all &= good(r);
    fmt::print(
        "\n{}\n\n| ms | first Gbit/s | second Gbit/s | deepest queue KB |\n|---|---|---|---|\n",
        name_of(controller));
    for (std::size_t i = 0; i < r.queued_bytes.size(); ++i) {
      fmt::print("| {} | {:.1f} | {:.1f} | {:.0f} |\n", i + 1, r.accepted_bps[0][i] / 1e9,
                 r.accepted_bps[1][i] / 1e9, static_cast<double>(r.queued_bytes[i]) / 1e3);
    }
  }
  return all;
}

TimeNs percentile(const std::vector<TimeNs>& sorted, double share) {
  const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

/// From a daemon's death until every survivor's client has its error; a trial for each seed.
bool measure_failure(const Options& options) {
  struct Limit {
    const char* name;
    bool own_cores;
    TimeNs silence_ns;
    TimeNs bar_ns;
  };
  constexpr std::array kLimits = {
      Limit{"own cores", true, defaults::ms(defaults::kSilenceOwnCoresMs), 200'000'000},
      Limit{"adaptive, shared cores", false, defaults::ms(defaults::kSilenceMs), 2'000'000'000},
  };
  bool all = true;
  fmt::print(
      "| lanes | silence limit ms | ranks | trials | median ms | p99 ms | p99.9 ms | most ms |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const Limit& limit : kLimits) {
    for (const std::uint16_t ranks : {2, 3, 8, 16}) {
      if (options.ranks != 0 && options.ranks != ranks) continue;
      std::vector<TimeNs> slowest;  // survivor of each trial
      for (std::uint64_t seed = options.first_seed; seed <= options.last_seed; ++seed) {
        FailureTrialOptions o;
        o.ranks = ranks;
        o.seed = seed;
        o.silence_ns = limit.silence_ns;
        o.own_cores = limit.own_cores;
        const FailureTrialResult r = run_failure_trial(o);
        if (!r.failure.empty()) {
          fmt::print("\nFAILED: {} ranks, seed {}: {}\n", ranks, seed, r.failure);
          all = false;
          continue;
        }
        slowest.push_back(*std::max_element(r.told_ns.begin(), r.told_ns.end()));
      }
      if (slowest.empty()) continue;
      std::sort(slowest.begin(), slowest.end());
      all &= percentile(slowest, 0.999) <= limit.bar_ns;
      fmt::print("| {} | {:.0f} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", limit.name,
                 ms(limit.silence_ns), ranks, slowest.size(), ms(percentile(slowest, 0.5)),
                 ms(percentile(slowest, 0.99)), ms(percentile(slowest, 0.999)), ms(slowest.back()));
      std::fflush(stdout);
    }
  }
  return all;
}

}  // namespace

Result<bool> run_measurement(const Options& options) {
  if (options.measure == "scale") return measure_scale(options);
  if (options.measure == "loss") return measure_loss(options);
  if (options.measure == "sharing") return measure_sharing(options);
  if (options.measure == "failure") return measure_failure(options);
  if (options.measure == "shapes") return measure_shapes(options);
  if (options.measure == "all-to-all") return measure_all_to_all(options);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--measure {}: one of scale, loss, sharing, failure, shapes, all-to-all",
                          options.measure));
}

}  // namespace gradwire::sim
