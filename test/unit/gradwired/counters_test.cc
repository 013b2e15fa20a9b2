// SPDX-License-Identifier: BSD-3-Clause
// What a shard counts, the status shows, and what the status shows of it the metrics have: a
// counter that was forgotten on the way fails here.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "group/shard_json.h"
#include "operate/metrics.h"
#include "ring/shard.h"

namespace gradwire::gradwired {
namespace {

using nlohmann::json;

constexpr std::size_t kWords = sizeof(ring::ShardCounters) / sizeof(std::uint64_t);
constexpr std::size_t kNoDrop = offsetof(ring::ShardCounters, drops) / sizeof(std::uint64_t);

/// Each word of it has a value that no other has: its place, in thousands of millions, from 1 on.
std::uint64_t value_at(std::size_t word) { return (word + 1) * 1'000'000'000; }
ring::ShardCounters counters_that_differ() {
  std::array<std::uint64_t, kWords> words;
  for (std::size_t i = 0; i < kWords; ++i) words[i] = value_at(i);
  ring::ShardCounters counters;
  std::memcpy(static_cast<void*>(&counters), words.data(), sizeof counters);
  return counters;
}

TEST_CASE("the status shows every counter of a shard") {
  const json flat = group::counters_json(counters_that_differ()).flatten();
  std::set<std::uint64_t> shown;
  for (const auto& [name, value] : flat.items()) shown.insert(value.get<std::uint64_t>());
  for (std::size_t i = 0; i < kWords; ++i) {
    if (i == kNoDrop) continue;  // the reason that is none
    INFO("64-bit word " << i << " of ShardCounters is not in counters_json()");
    CHECK(shown.contains(value_at(i)));
  }
}

TEST_CASE("the metrics have every counter of a shard that the status shows") {
  // What an operator sees by `gradwire counters` alone: the rates of other metrics say the same.
  const std::set<std::string> status_only = {"data_bytes_sent", "data_bytes_received", "acks_sent",
                                             "acks_received",   "pings_sent",          "ops_done",
                                             "early_packets"};
  const json counters = group::counters_json(counters_that_differ());
  const json status = {{"lanes", {{{"lane", 0}, {"transport", counters}}}}};
  std::set<std::uint64_t> exported;
  for (const auto& family : operate::metrics_of(status)) {
    for (const auto& metric : family.metric) {
      const double value = metric.counter.value;
      // Seconds of what is counted in nanoseconds.
      exported.insert(static_cast<std::uint64_t>(value));
      exported.insert(static_cast<std::uint64_t>(value * 1e9 + 0.5));
    }
  }
  for (const auto& [name, value] : counters.items()) {
    if (!value.is_number()) continue;
    INFO(fmt::format("{} is not in operate/metrics.cc", name));
    CHECK(exported.contains(value.get<std::uint64_t>()) != status_only.contains(name));
  }
  for (const auto& [reason, value] : counters["drops"].items()) {
    INFO("dropped for " << reason);
    CHECK(exported.contains(value.get<std::uint64_t>()));
  }
}

}  // namespace
}  // namespace gradwire::gradwired
