// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Results of gradwire-perf: as structs, as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "transport.h"

namespace gradwire::perf {

/// What all timed ops of one size cost this rank together.
struct Cost {
  std::uint32_t ops = 0;
  double wall_s = 0;
  double cpu_s = 0;                   ///< of this process
  std::optional<double> other_cpu_s;  ///< of the daemon, if there is one
  /// Of the whole machine: all its processes, and the kernel's work that belongs to none.
  std::optional<double> machine_cpu_s;
  std::optional<double> cycles_per_s;  ///< of the time-stamp counter, if it can be read
  Counters counters;                   ///< increases
};

struct SizeResult {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  double p50_s = 0;  ///< from posting an op to its end, on this rank
  double p99_s = 0;
  double min_s = 0;
  double mean_s = 0;
  std::optional<std::uint64_t> wrong;  ///< elements on all ranks; nothing if not checked
  Cost cost;
};

/// Costs derived from these sums. Nothing if they are unknown.
struct Rates {
  /// CPU time of this rank, its daemon's too, in cycles of the time-stamp counter.
  std::optional<double> cycles_per_byte;
  std::optional<double> cycles_per_packet;  ///< a packet sent; about as many are received
  std::optional<double> packets_per_s;      ///< sent
  std::optional<std::uint64_t> retransmissions;
  std::optional<double> cpu_s_per_gb;  ///< 10^9 bytes reduced
};
[[nodiscard]] Rates rates_of(const SizeResult& result);

/// @param times_s  one for each op, from 1; sorted here.
[[nodiscard]] SizeResult summarize(std::uint64_t bytes, std::uint64_t count,
                                   std::vector<double> times_s);

/// Bytes per second of the median; 0 if that is 0.
[[nodiscard]] double algbw(const SizeResult& result) noexcept;
/// What each rank's link carries: algbw x 2(n-1)/n of an all-reduce, x (n-1)/n of an all-gather and
/// a reduce-scatter, x 1 of a broadcast and a reduce, as in nccl-tests; n are ranks.
[[nodiscard]] double busbw(const SizeResult& result, std::uint32_t nranks,
                           Collective collective = Collective::kAllReduce) noexcept;

[[nodiscard]] std::string table_head(const Options& options);
[[nodiscard]] std::string table_row(const Options& options, const SizeResult& result);
/// @param note  Transport::note().
[[nodiscard]] nlohmann::json to_json(const Options& options, const std::vector<SizeResult>& results,
                                     const std::string& note = {});

}  // namespace gradwire::perf
