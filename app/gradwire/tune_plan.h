// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Decides what gradwire tune tries, in which order, and what it concludes. It runs nothing itself;
/// the caller's function does. One thread; allocates.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/window.h"

namespace gradwire::cli {

struct TuneSettings {
  std::uint32_t payload_bytes = 1408;
  std::uint32_t window_packets = window_packets_for(payload_bytes);  ///< a daemon's default
  std::uint32_t lanes = 1;
  double rate_gbps = 0;  ///< of each port; 0: not paced
  friend bool operator==(const TuneSettings&, const TuneSettings&) = default;
};

/// One short all-reduce with some settings.
struct TuneTrial {
  std::string step;  ///< "payload", "window", "lanes", "rate", "cost"
  TuneSettings settings;
  std::string error;      ///< empty if it ran
  double busbw_gbps = 0;  ///< for the large size
  double latency_us = 0;  ///< for 64 B, median
  double best_64_us = 0;  ///< for 64 B, the shortest
  double best_us = 0;     ///< for the large size, the shortest
  double retransmissions = 0;
  double packets = 0;
  [[nodiscard]] bool ran() const noexcept { return error.empty(); }
};

struct TuneLimits {
  std::vector<std::uint32_t> payloads;  ///< from large to small, at least one
  std::vector<std::uint32_t> windows;   ///< from small to large
  std::uint32_t max_lanes = 1;
};

struct TuneOutcome {
  std::vector<TuneTrial> trials;
  std::size_t chosen = 0;  ///< index of the trial whose settings are proposed
};

/// Runs a trial. One of the step kCostStep is of kCostBytes, and repeated more often.
inline constexpr const char* kCostStep = "cost";
/// If a trial fails, its TuneTrial has the error, and the tuning goes on. An error as the result
/// ends the tuning.
using RunTrial =
    std::function<Result<TuneTrial>(const std::string& step, const TuneSettings& settings)>;

/// @return kUnavailable, with the last trial's error, if no trial ran.
[[nodiscard]] Result<TuneOutcome> find_settings(const TuneLimits& limits, const RunTrial& run);

/// Payloads worth trying, from large to small: what the usual MTUs carry, up to `most`.
[[nodiscard]] std::vector<std::uint32_t> payload_candidates(std::uint32_t most);

/// The table of all trials.
[[nodiscard]] std::string tune_table(const TuneOutcome& outcome);
/// The lines to write into the configuration.
[[nodiscard]] std::string tune_fragment(const TuneOutcome& outcome);

[[nodiscard]] nlohmann::json to_json(const TuneOutcome& outcome);
/// @return kInvalidArgument if `json` is not what to_json() makes.
[[nodiscard]] Result<TuneOutcome> outcome_of(const nlohmann::json& json);

}  // namespace gradwire::cli
