// SPDX-License-Identifier: BSD-3-Clause
#include "tune_plan.h"

#include <catch2/catch.hpp>

#include "tune_trial.h"

namespace gradwire::cli {
namespace {

using Catch::Matchers::Contains;

/// A link in the test's own words: how fast it is with these settings, what is lost, what fails.
struct FakeLink {
  std::uint32_t most_payload = 8896;
  std::uint32_t window_needed = 32;
  double gbps_of_a_lane = 10;
  double gbps_of_the_port = 15;
  double loses_above_gbps = 1e9;
  std::vector<TuneSettings> asked;

  Result<TuneTrial> run(const std::string& step, const TuneSettings& s) {
    asked.push_back(s);
    TuneTrial trial;
    trial.step = step;
    trial.settings = s;
    if (s.payload_bytes > most_payload) {
      trial.error = "too large";
      return trial;
    }
    double gbps = std::min(gbps_of_a_lane * s.lanes, gbps_of_the_port);
    gbps *= std::min(1.0, static_cast<double>(s.window_packets) / window_needed);
    gbps *= static_cast<double>(s.payload_bytes) / (s.payload_bytes + 500.0);
    if (s.rate_gbps != 0) gbps = std::min(gbps, s.rate_gbps);
    trial.busbw_gbps = gbps;
    trial.best_64_us = 5.5;
    // As the cost model has it: 0.25 us a packet at each end, 0.28 ns a byte.
    trial.best_us = 5 + 0.5 * (16'384 / s.payload_bytes + 1) + 4.6;
    trial.packets = 10'000;
    trial.retransmissions = gbps > loses_above_gbps ? 100 : 0;
    return trial;
  }
  Result<TuneOutcome> tune(const TuneLimits& limits) {
    return find_settings(limits, [this](const std::string& step, const TuneSettings& settings) {
      return run(step, settings);
    });
  }
};

const TuneLimits kLimits = {payload_candidates(8896), {16, 32, 128, 256}, 4};

TuneSettings chosen(const TuneOutcome& outcome) { return outcome.trials[outcome.chosen].settings; }

TEST_CASE("the largest payload, the smallest window and as many lanes as bring something") {
  FakeLink link;
  const auto outcome = link.tune(kLimits);
  REQUIRE(outcome.has_value());
  CHECK(chosen(*outcome) == TuneSettings{8896, 32, 2, 0});
  // A third lane was tried, brought nothing, and so there is no fourth.
  REQUIRE(link.asked.size() > 3);
  CHECK(link.asked[link.asked.size() - 3].lanes == 3);
  // What packets and bytes cost: in one lane, by the payload and a quarter of it.
  CHECK(link.asked[link.asked.size() - 2] == TuneSettings{8896, 64, 1, 0});
  CHECK(link.asked.back() == TuneSettings{2176, 128, 1, 0});
  CHECK_THAT(tune_fragment(*outcome), Contains("direct_kib = 64\n") &&
                                          Contains("two_step_kib = 16\n") &&
                                          Contains("gathered_kib = "));
}

TEST_CASE("where the costs cannot be measured the proposal says so, and proposes the rest") {
  FakeLink link;
  const auto outcome =
      find_settings(kLimits, [&](const std::string& step, const TuneSettings& settings) {
        auto trial = link.run(step, settings);
        if (step == kCostStep) trial->best_us = 1;
        return trial;
      });
  REQUIRE(outcome.has_value());
  CHECK_THAT(tune_fragment(*outcome), Contains("payload_bytes = 8896") &&
                                          Contains("# No thresholds of shapes: ") &&
                                          Contains("16 KiB in 1.0 us") && !Contains("direct_kib"));
}

TEST_CASE("payloads that the path does not carry are left out") {
  FakeLink link;
  link.most_payload = 3000;
  const auto outcome = link.tune(kLimits);
  REQUIRE(outcome.has_value());
  CHECK(chosen(*outcome).payload_bytes == 2944);
  // Each payload was tried with the window that a daemon gives it.
  CHECK(link.asked.front().window_packets == 64);
  CHECK(link.asked[1].payload_bytes == 1408);
  CHECK(link.asked[1].window_packets == 128);
  CHECK_THAT(tune_table(*outcome),
             Contains("failed") && Contains("too large") && Contains("<- proposed"));
}

TEST_CASE("where the smallest payload fails too, nothing more is tried") {
  FakeLink link;
  link.most_payload = 64;
  const auto outcome = link.tune(kLimits);
  REQUIRE_FALSE(outcome.has_value());
  CHECK(link.asked.size() == 2);
  CHECK(outcome.error().code == ErrorCode::kUnavailable);
  CHECK_THAT(outcome.error().message, Contains("1408") && Contains("too large"));
}

TEST_CASE("a link that loses packets is paced below that") {
  FakeLink link;
  link.loses_above_gbps = 13;
  const auto outcome = link.tune(kLimits);
  REQUIRE(outcome.has_value());
  const TuneSettings settings = chosen(*outcome);
  CHECK(settings.rate_gbps > 10);
  CHECK(settings.rate_gbps < 13);
  CHECK_THAT(tune_fragment(*outcome), Contains("rate_gbps = ") && Contains("[[port]]"));
}

TEST_CASE("an error of the run itself ends it") {
  const auto outcome = find_settings(kLimits, [](const std::string&, const TuneSettings&) {
    return Result<TuneTrial>(fail(ErrorCode::kUnavailable, "the other end went away"));
  });
  REQUIRE_FALSE(outcome.has_value());
  CHECK(outcome.error().message == "the other end went away");
}

TEST_CASE("the other end understands the outcome") {
  FakeLink link;
  const auto outcome = link.tune(kLimits);
  REQUIRE(outcome.has_value());
  const auto told = outcome_of(nlohmann::json::parse(to_json(*outcome).dump()));
  REQUIRE(told.has_value());
  CHECK(tune_table(*told) == tune_table(*outcome));
  CHECK(tune_fragment(*told) == tune_fragment(*outcome));
  CHECK_FALSE(outcome_of(nlohmann::json{{"trials", 3}}).has_value());
  CHECK_FALSE(outcome_of({{"trials", nlohmann::json::array()}, {"chosen", 0}}).has_value());
}

TEST_CASE("payloads are those of the usual MTUs, and the configured one's") {
  CHECK(payload_candidates(8896) == std::vector<std::uint32_t>{8896, 3968, 2944, 1408});
  CHECK(payload_candidates(1408) == std::vector<std::uint32_t>{1408});
  CHECK(payload_candidates(3392) == std::vector<std::uint32_t>{3392, 2944, 1408});
  CHECK(payload_candidates(512) == std::vector<std::uint32_t>{512});
}

TEST_CASE("gradwire-perf is told the configuration's ports and the trial's settings") {
  TuneHost host;
  host.perf = "gradwire-perf";
  host.eal = split_words(" --lcores  0@0,1@1 --no-pci ");
  host.config.ports.resize(1);
  host.config.ports.back().device = "net_memif0";
  host.config.ports.back().ip = "10.0.0.1";
  host.config.ports.back().prefix_bits = 24;
  host.config.ports.back().mtu = 4000;
  host.config.lanes.base_udp_port = 5000;
  host.rank = 1;
  TuneRound round;
  round.epoch = 7;
  round.rendezvous = "tcp://10.9.0.1:18401";
  const auto words = perf_arguments(host, round, {2944, 32, 2, 1.5}, "/x/figures");
  std::string line;
  for (const std::string& word : words) line += word + ' ';
  CHECK_THAT(line, Catch::Matchers::StartsWith("gradwire-perf --lcores 0@0,1@1 --no-pci -- "));
  CHECK_THAT(line, Contains("--rank 1") && Contains("--port net_memif0=10.0.0.1/24,4000") &&
                       Contains("--udp-port 5000") && Contains("--payload 2944") &&
                       Contains("--window 32") && Contains("--lanes 2") &&
                       Contains("--port-rate 1.5") && Contains("tcp://10.9.0.1:18401") &&
                       Contains("--epoch 7"));
}

}  // namespace
}  // namespace gradwire::cli
