// SPDX-License-Identifier: BSD-3-Clause
// What a shard or a lane counts, the status shows, and what the status shows the metrics have: a
// counter that was forgotten on the way fails here. Those of base/counts.h have a table, of which
// the compiler wants a row for each; ports and backends have none.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "collective/shard.h"
#include "control/shard_status.h"
#include "metrics/metrics.h"
#include "status/counter_table.h"

namespace gradwire::gradwired {
namespace {

using nlohmann::json;

/// Each 64-bit word of a struct of counters has a value that no other has: its place, in thousands
/// of millions, from 1 on.
std::uint64_t value_at(std::size_t word) { return (word + 1) * 1'000'000'000; }
template <class T>
T counters_that_differ() {
  std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = value_at(i);
  T counters;
  std::memcpy(static_cast<void*>(&counters), words.data(), sizeof counters);
  return counters;
}
std::set<std::uint64_t> values_in(const json& counters) {
  std::set<std::uint64_t> values;
  const json flat = counters.flatten();
  for (const auto& [name, value] : flat.items()) values.insert(value.get<std::uint64_t>());
  return values;
}
constexpr std::size_t words_of(std::size_t bytes) { return bytes / sizeof(std::uint64_t); }
/// Which 64-bit word of `whole` its member `part` begins with.
template <class Whole, class Part>
std::size_t word_of(const Whole& whole, const Part& part) {
  return words_of(static_cast<std::size_t>(reinterpret_cast<const char*>(&part) -
                                           reinterpret_cast<const char*>(&whole)));
}

TEST_CASE("the status shows every counter of a shard") {
  const auto counters = counters_that_differ<collective::ShardCounters>();
  const auto shown = values_in(control::transport_status(counters));
  for (std::size_t i = 0; i < words_of(sizeof counters); ++i) {
    if (i == word_of(counters, counters.drops)) continue;  // the reason that is none
    INFO("64-bit word " << i << " of ShardCounters is not in transport_status()");
    CHECK(shown.contains(value_at(i)));
  }
}

TEST_CASE("the status shows every counter of a lane") {
  const auto counters = counters_that_differ<lane::LaneCounters>();
  const auto shown = values_in(control::lane_counters_status(counters));
  // The latencies are a part of their own, and the struct fills whole cache lines.
  const std::size_t latency = word_of(counters, counters.op_latency_ns);
  const std::size_t drops = word_of(counters, counters.drops);
  for (std::size_t i = 0; i < drops + wire::kDropCount; ++i) {
    if (i >= latency && i <= drops) continue;
    INFO("64-bit word " << i << " of LaneCounters is not in lane_counters_status()");
    CHECK(shown.contains(value_at(i)));
  }
}

/// Counters of the metrics, and seconds of what is counted in nanoseconds.
std::set<std::uint64_t> exported_of(const status::DaemonStatus& status) {
  std::set<std::uint64_t> exported;
  for (const auto& family : metrics::metrics_of(status)) {
    for (const auto& metric : family.metric) {
      const double value = metric.counter.value;
      exported.insert(static_cast<std::uint64_t>(value));
      exported.insert(static_cast<std::uint64_t>(value * 1e9 + 0.5));
    }
  }
  return exported;
}

/// Each number of `counters` is a metric, or `status_only` names it; that list has no name too
/// many.
void check_exported(const json& counters, const std::set<std::uint64_t>& exported,
                    std::set<std::string> status_only) {
  for (const auto& [name, value] : counters.items()) {
    if (!value.is_number()) continue;
    INFO(fmt::format("{} is not in the metrics", name));
    CHECK(exported.contains(value.get<std::uint64_t>()) != (status_only.erase(name) == 1));
  }
  for (const std::string& name : status_only) FAIL_CHECK("no counter is called " << name);
}

/// The struct with each of its counters another value.
template <class T>
T with_values() {
  json counters = T{};
  std::size_t place = 0;
  for (auto& [name, value] : counters.items()) {
    if (value.is_number()) value = value_at(place++);
  }
  return counters.get<T>();
}

/// What an operator sees by `gradwire counters` alone: rows without a metric.
std::set<std::string> without_metric(const auto& table) {
  std::set<std::string> names;
  for (const auto& row : table) {
    if (row.metric.name == nullptr) names.insert(row.name);
  }
  return names;
}

TEST_CASE("the metrics have every counter of a shard that the status shows") {
  status::DaemonStatus status;
  status.lanes.emplace_back().transport =
      control::transport_status(counters_that_differ<collective::ShardCounters>());
  const json counters = status.lanes[0].transport;
  const auto exported = exported_of(status);
  check_exported(counters, exported, without_metric(status::kShardCounters));
  for (const auto& [reason, value] : counters["drops"].items()) {
    INFO("dropped for " << reason);
    CHECK(exported.contains(value.get<std::uint64_t>()));
  }
}

TEST_CASE("the metrics have each collective's ops") {
  status::DaemonStatus status;
  status.lanes.emplace_back().counters =
      control::lane_counters_status(counters_that_differ<lane::LaneCounters>());
  const auto exported = exported_of(status);
  CHECK(status.lanes[0].counters.ops.size() == kCollectives.size());
  for (const auto& [name, value] : status.lanes[0].counters.ops) {
    INFO(name);
    CHECK(exported.contains(value));
  }
}

TEST_CASE("the metrics have every counter of a lane, a port and a backend that the status shows") {
  status::DaemonStatus status;
  status.lanes.emplace_back().counters = with_values<status::LaneCounters>();
  std::set<std::string> status_only = without_metric(status::kLaneCounters);
  status_only.merge(without_metric(status::kCommandCounters));
  check_exported(status.lanes[0].counters, exported_of(status), status_only);
  status = {};
  status.ports.emplace_back().counters = with_values<status::PortCounters>();
  // Lanes count what they receive and send.
  check_exported(
      status.ports[0].counters, exported_of(status),
      {"rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "neighbors_evicted", "arp_refused"});
  status = {};
  status.reduce.push_back(with_values<status::Reduce>());
  check_exported(status.reduce[0], exported_of(status), {});
}

}  // namespace
}  // namespace gradwire::gradwired
