// SPDX-License-Identifier: BSD-3-Clause
#include "tune_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "table.h"
#include "tune_costs.h"

namespace gradwire::cli {
namespace {

/// Figures that differ by less count as equal, because short runs are no more exact.
constexpr double kSame = 0.03;
/// A lane takes a core, so it has to gain more than this.
constexpr double kWorthALane = 0.10;
/// A share of the packets sent: recovery from less loss is not noticeable.
constexpr double kLossy = 0.001;
/// The payloads that MTUs of 9000, 4096, 3072 and 1500 bytes carry.
constexpr std::uint32_t kPayloads[] = {8896, 3968, 2944, 1408};
/// Payloads are multiples of this.
constexpr std::uint32_t kPayloadUnit = 64;

double loss_of(const TuneTrial& trial) {
  return trial.packets > 0 ? trial.retransmissions / trial.packets : 0;
}

/// The trials so far, and the best one.
class Search {
 public:
  explicit Search(const RunTrial& run) : run_(run) {}

  /// @return whether it ran; an error if the tuning cannot go on.
  Result<bool> run(const std::string& step, const TuneSettings& settings) {
    auto trial = run_(step, settings);
    if (!trial) return tl::unexpected(trial.error());
    outcome_.trials.push_back(std::move(*trial));
    return outcome_.trials.back().ran();
  }
  [[nodiscard]] const TuneTrial& best() const { return outcome_.trials[outcome_.chosen]; }
  [[nodiscard]] const TuneTrial& last() const { return outcome_.trials.back(); }
  void choose_last() { outcome_.chosen = outcome_.trials.size() - 1; }
  void choose(std::size_t index) { outcome_.chosen = index; }
  TuneOutcome& outcome() { return outcome_; }

 private:
  const RunTrial& run_;
  TuneOutcome outcome_;
};

/// Tries the largest payload first, then the smallest: if neither works, no other will.
Result<void> try_payloads(Search& search, const std::vector<std::uint32_t>& payloads) {
  std::vector<std::uint32_t> order(payloads.begin(), payloads.end());
  if (order.size() > 2) std::rotate(order.begin() + 1, order.end() - 1, order.end());
  bool any = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto ran = search.run("payload", {.payload_bytes = order[i]});
    if (!ran) return tl::unexpected(ran.error());
    if (!*ran) {
      if (!any && i > 0) break;
      continue;
    }
    // If they are equal, takes the larger one, which needs fewer packets for the same bytes.
    const TuneTrial& trial = search.last();
    const double least = !any ? 0
                         : trial.settings.payload_bytes > search.best().settings.payload_bytes
                             ? search.best().busbw_gbps * (1 - kSame)
                             : search.best().busbw_gbps * (1 + kSame);
    if (trial.busbw_gbps >= least) search.choose_last();
    any = true;
  }
  if (any) return {};
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("no all-reduce with the peer succeeded, not even with payloads of {} bytes: {}",
                  search.last().settings.payload_bytes, search.last().error));
}

/// Finds the smallest window that is as fast as any, because packets in flight should stay in the
/// cache.
Result<void> try_windows(Search& search, const std::vector<std::uint32_t>& windows) {
  std::vector<std::size_t> tried = {search.outcome().chosen};
  for (const std::uint32_t window : windows) {
    TuneSettings settings = search.best().settings;
    if (window == settings.window_packets) continue;
    settings.window_packets = window;
    const auto ran = search.run("window", settings);
    if (!ran) return tl::unexpected(ran.error());
    if (*ran) tried.push_back(search.outcome().trials.size() - 1);
  }
  const auto& trials = search.outcome().trials;
  double fastest = 0;
  for (const std::size_t i : tried) fastest = std::max(fastest, trials[i].busbw_gbps);
  std::erase_if(tried, [&](std::size_t i) { return trials[i].busbw_gbps < fastest * (1 - kSame); });
  search.choose(*std::min_element(tried.begin(), tried.end(), [&](std::size_t a, std::size_t b) {
    return trials[a].settings.window_packets < trials[b].settings.window_packets;
  }));
  return {};
}

Result<void> try_lanes(Search& search, std::uint32_t max_lanes) {
  for (std::uint32_t lanes = 2; lanes <= max_lanes; ++lanes) {
    TuneSettings settings = search.best().settings;
    settings.lanes = lanes;
    const auto ran = search.run("lanes", settings);
    if (!ran) return tl::unexpected(ran.error());
    if (!*ran) return {};  // there are not that many queues or lcores
    if (search.last().busbw_gbps < search.best().busbw_gbps * (1 + kWorthALane)) return {};
    search.choose_last();
  }
  return {};
}

/// If packets are lost without pacing, finds the highest rate at which few are lost.
Result<void> try_rates(Search& search) {
  if (loss_of(search.best()) < kLossy) return {};
  const double unpaced = search.best().busbw_gbps;
  for (const double share : {0.95, 0.85, 0.7}) {
    TuneSettings settings = search.best().settings;
    settings.rate_gbps = std::max(0.001, unpaced * share);
    const auto ran = search.run("rate", settings);
    if (!ran) return tl::unexpected(ran.error());
    if (!*ran) continue;
    if (search.last().busbw_gbps >= unpaced * (share - kSame) &&
        loss_of(search.last()) < loss_of(search.best())) {
      search.choose_last();
    }
    if (loss_of(search.last()) < kLossy) break;
  }
  return {};
}

/// The costs of the proposed payload's packets, and of more packets for the same bytes. One lane,
/// not paced, with the window that a daemon gives a payload: it must not be what takes the time.
Result<void> try_costs(Search& search) {
  const std::uint32_t payload = search.best().settings.payload_bytes;
  if (payload < 2 * kPayloadUnit) return {};
  const std::uint32_t smaller = std::max(payload / 4 / kPayloadUnit, 1u) * kPayloadUnit;
  for (const std::uint32_t each : {payload, smaller}) {
    const auto ran =
        search.run(kCostStep, {.payload_bytes = each, .window_packets = window_packets_for(each)});
    if (!ran) return tl::unexpected(ran.error());
    if (!*ran) return {};
  }
  return {};
}

std::string threshold_text(const TuneOutcome& outcome) {
  std::vector<CostSample> samples;
  for (const TuneTrial& trial : outcome.trials) {
    if (trial.step != kCostStep || !trial.ran()) continue;
    samples.push_back({trial.settings.payload_bytes, trial.best_64_us, trial.best_us});
  }
  if (samples.size() != 2) return "# No thresholds of shapes: the steps \"cost\" did not run.\n";
  const auto costs = link_costs(samples[0], samples[1]);
  if (!costs) return "# No thresholds of shapes: " + costs.error().message + ".\n";
  return threshold_lines(*costs, samples[0].payload_bytes);
}

std::string pacing_text(double gbps) {
  return gbps == 0 ? "not paced" : fmt::format("{:.3f}", gbps);
}

}  // namespace

Result<TuneOutcome> find_settings(const TuneLimits& limits, const RunTrial& run) {
  Search search(run);
  if (auto tried = try_payloads(search, limits.payloads); !tried) {
    return tl::unexpected(tried.error());
  }
  if (auto tried = try_windows(search, limits.windows); !tried) {
    return tl::unexpected(tried.error());
  }
  if (auto tried = try_lanes(search, limits.max_lanes); !tried) {
    return tl::unexpected(tried.error());
  }
  if (auto tried = try_rates(search); !tried) return tl::unexpected(tried.error());
  if (auto tried = try_costs(search); !tried) return tl::unexpected(tried.error());
  return std::move(search.outcome());
}

std::vector<std::uint32_t> payload_candidates(std::uint32_t most) {
  std::vector<std::uint32_t> out;
  if (std::find(std::begin(kPayloads), std::end(kPayloads), most) == std::end(kPayloads)) {
    out.push_back(most);
  }
  for (const std::uint32_t payload : kPayloads) {
    if (payload <= most) out.push_back(payload);
  }
  return out;
}

std::string tune_table(const TuneOutcome& outcome) {
  Table table({"step", "payload", "window", "lanes", "rate Gbit/s", "busbw Gbit/s", "64 B us",
               "retransmitted", ""});
  std::string errors;
  for (std::size_t i = 0; i < outcome.trials.size(); ++i) {
    const TuneTrial& trial = outcome.trials[i];
    const TuneSettings& s = trial.settings;
    const bool ran = trial.ran();
    table.add({trial.step, fmt::format("{}", s.payload_bytes), fmt::format("{}", s.window_packets),
               fmt::format("{}", s.lanes), pacing_text(s.rate_gbps),
               ran ? fmt::format("{:.2f}", trial.busbw_gbps) : "-",
               ran ? fmt::format("{:.1f}", trial.latency_us) : "-",
               ran ? fmt::format("{:.3f} %", loss_of(trial) * 100) : "-",
               i == outcome.chosen ? "<- proposed"
               : ran               ? ""
                                   : "failed"});
    if (!ran) {
      errors += fmt::format("{} {}: {}\n", trial.step,
                            trial.step == "lanes" ? s.lanes : s.payload_bytes, trial.error);
    }
  }
  return table.text() + errors;
}

std::string tune_fragment(const TuneOutcome& outcome) {
  const TuneTrial& best = outcome.trials[outcome.chosen];
  const TuneSettings& s = best.settings;
  std::string out =
      fmt::format("# Proposed by gradwire tune: {:.2f} Gbit/s of busbw, 64 B in {:.1f} us.\n",
                  best.busbw_gbps, best.latency_us);
  if (s.rate_gbps != 0) {
    out += fmt::format("[[port]]\nrate_gbps = {:.3f}  # into your own [[port]]\n\n", s.rate_gbps);
  }
  out += fmt::format(
      "[lanes]\ncount = {}\n\n[transport]\npayload_bytes = {}\nwindow_packets = {}\n"
      "transit_packets = {}\n",
      s.lanes, s.payload_bytes, s.window_packets, s.window_packets);
  return out + threshold_text(outcome);
}

nlohmann::json to_json(const TuneOutcome& outcome) {
  nlohmann::json trials = nlohmann::json::array();
  for (const TuneTrial& trial : outcome.trials) {
    trials.push_back({{"step", trial.step},
                      {"payload_bytes", trial.settings.payload_bytes},
                      {"window_packets", trial.settings.window_packets},
                      {"lanes", trial.settings.lanes},
                      {"rate_gbps", trial.settings.rate_gbps},
                      {"busbw_gbps", trial.busbw_gbps},
                      {"latency_us", trial.latency_us},
                      {"best_64_us", trial.best_64_us},
                      {"best_us", trial.best_us},
                      {"retransmissions", trial.retransmissions},
                      {"packets", trial.packets},
                      {"error", trial.error}});
  }
  return {{"trials", trials}, {"chosen", outcome.chosen}, {"toml", tune_fragment(outcome)}};
}

Result<TuneOutcome> outcome_of(const nlohmann::json& json) {
  TuneOutcome out;
  try {
    for (const nlohmann::json& one : json.at("trials")) {
      TuneTrial trial;
      one.at("step").get_to(trial.step);
      one.at("payload_bytes").get_to(trial.settings.payload_bytes);
      one.at("window_packets").get_to(trial.settings.window_packets);
      one.at("lanes").get_to(trial.settings.lanes);
      one.at("rate_gbps").get_to(trial.settings.rate_gbps);
      one.at("busbw_gbps").get_to(trial.busbw_gbps);
      one.at("latency_us").get_to(trial.latency_us);
      one.at("best_64_us").get_to(trial.best_64_us);
      one.at("best_us").get_to(trial.best_us);
      one.at("retransmissions").get_to(trial.retransmissions);
      one.at("packets").get_to(trial.packets);
      one.at("error").get_to(trial.error);
      out.trials.push_back(std::move(trial));
    }
    json.at("chosen").get_to(out.chosen);
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("this is not the outcome of gradwire tune: {}", error.what()));
  }
  if (out.chosen >= out.trials.size()) {
    return fail(ErrorCode::kInvalidArgument, "the outcome of gradwire tune has no proposal");
  }
  return out;
}

}  // namespace gradwire::cli
