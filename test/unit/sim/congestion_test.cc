// SPDX-License-Identifier: BSD-3-Clause
// What doc/congestion.md promises of the controllers, on a network: fairness of two groups on the
// same ports, convergence when the ports' rate changes, and how deep queues get.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "sim/measure/experiment.h"

using namespace gradwire;
using namespace gradwire::sim;
using transport::CongestionKind;

namespace {

ExperimentOptions options_of(CongestionKind kind) {
  ExperimentOptions options;
  options.ranks = 4;
  options.bytes = 16'000'000;
  options.rate_bps = 25'000'000'000;
  options.congestion = kind;
  options.window_packets = 128;
  options.sample_ns = 500'000;
  return options;
}

double mean(const std::vector<double>& samples, std::size_t first, std::size_t end) {
  return std::accumulate(samples.begin() + static_cast<std::ptrdiff_t>(first),
                         samples.begin() + static_cast<std::ptrdiff_t>(end), 0.0) /
         static_cast<double>(end - first);
}

}  // namespace

TEST_CASE("every controller fills a link that it has for itself") {
  for (const CongestionKind kind :
       {CongestionKind::kStatic, CongestionKind::kDctcp, CongestionKind::kSwift}) {
    const ExperimentResult result = run_experiment(options_of(kind));
    INFO("controller " << static_cast<int>(kind));
    CHECK(result.failure == "");
    CHECK(result.overflow == 0);
    CHECK(static_cast<double>(result.time_ns) < 1.15 * static_cast<double>(result.ideal_ns));
  }
}

TEST_CASE("two groups share a port fairly, the later one too") {
  for (const CongestionKind kind : {CongestionKind::kDctcp, CongestionKind::kSwift}) {
    ExperimentOptions options = options_of(kind);
    options.groups = 2;
    options.bytes = 48'000'000;
    options.group_starts_ns = {0, 1'000'000};
    const ExperimentResult result = run_experiment(options);
    INFO("controller " << static_cast<int>(kind));
    REQUIRE(result.failure == "");
    REQUIRE(result.queued_bytes.size() > 40);
    // After the second group's first nine milliseconds, and before the first is through.
    const double first = mean(result.accepted_bps[0], 20, 40);
    const double second = mean(result.accepted_bps[1], 20, 40);
    const double both = first + second;
    INFO("first " << first / 1e9 << " second " << second / 1e9);
    CHECK(both > 0.8 * 25e9);
    // Jain's index of two: 1 if both get the same, 0.5 if one gets all.
    CHECK(both * both / (2 * (first * first + second * second)) > 0.9);
  }
}

TEST_CASE("queues stay short where a controller minds them") {
  ExperimentOptions options = options_of(CongestionKind::kStatic);
  options.groups = 2;
  const std::uint64_t unminded = run_experiment(options).most_queued_bytes;
  for (const CongestionKind kind : {CongestionKind::kDctcp, CongestionKind::kSwift}) {
    options.congestion = kind;
    const ExperimentResult result = run_experiment(options);
    INFO("controller " << static_cast<int>(kind));
    REQUIRE(result.failure == "");
    // Once the first milliseconds are over.
    const auto deepest =
        *std::max_element(result.queued_bytes.begin() + 4, result.queued_bytes.end());
    CHECK(deepest < unminded / 2);
  }
}

TEST_CASE("when the ports slow down, the groups do, and lose little") {
  for (const CongestionKind kind : {CongestionKind::kDctcp, CongestionKind::kSwift}) {
    ExperimentOptions options = options_of(kind);
    options.rate_changes_at_ns = 3'000'000;
    options.later_rate_bps = options.rate_bps / 5;
    const ExperimentResult result = run_experiment(options);
    INFO("controller " << static_cast<int>(kind));
    REQUIRE(result.failure == "");
    REQUIRE(result.queued_bytes.size() > 24);
    CHECK(mean(result.accepted_bps[0], 2, 6) > 0.8 * 25e9);
    CHECK(mean(result.accepted_bps[0], 10, 20) > 0.8 * 5e9);
    CHECK(mean(result.accepted_bps[0], 10, 20) < 5e9);
    CHECK(result.retransmissions * 100 < result.frames);
  }
}
