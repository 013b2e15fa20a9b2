// SPDX-License-Identifier: BSD-3-Clause
#include "operate/metrics.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace gradwire::operate {

using nlohmann::json;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

const json kStatus = json::parse(R"({
  "daemon": {"version": "0.1.0", "state": "draining", "uptime_s": 4},
  "clients": [{}, {}],
  "lanes": [{"lane": 0,
    "counters": {"busy_ns": 2000000000, "rx_packets": 8, "op_bytes": 640, "drops": {"short": 2}},
    "op_latency": {"sum_ns": 3500000000, "bounds_ns": [1000000000, 2000000000, 4000000000],
                   "counts": [1, 1, 1]},
    "transport": {"retransmissions": 3, "stalled_on_upstream_ns": 500000000,
                  "stalled_on_downstream_ns": 0, "drops": {"short": 1, "duplicate": 4}},
    "mempools": [{"mempool": "packet", "free": 5, "mbufs": 9}]}],
  "groups": [{"group_id": "ff", "handle": 7, "epoch": 2, "state": "formed", "aborted": null,
              "shards": [{"lane": 0, "smoothed_rtt_us": 50.0, "upstream_silence_s": 0.25}]},
             {"group_id": "fe", "epoch": 1, "state": "formed", "aborted": "rank 1", "shards": []}],
  "ports": [{"device": "net_memif0", "driver": "net_memif", "up": true,
             "counters": {"rx_missed": 6}}],
  "reduce": [{"backend": "cpu avx2", "path": "cpu", "chunks_reduced": 11, "bytes": 99}],
  "ops": [{"since_s": 1.0}, {"since_s": 2.5}]})");

/// name{label=value,...} and its value.
std::map<std::string, double> values_of(const std::vector<MetricFamily>& families) {
  std::map<std::string, double> values;
  for (const MetricFamily& family : families) {
    for (const auto& metric : family.metric) {
      std::string name = family.name;
      for (const auto& label : metric.label) name += "," + label.name + "=" + label.value;
      values[name] = family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
  }
  return values;
}

}  // namespace

TEST_CASE("counters and gauges carry base units and labels") {
  const auto values = values_of(metrics_of(kStatus));
  CHECK(values.at("gradwire_build_info,version=0.1.0") == 1);
  CHECK(values.at("gradwire_accepting") == 0);
  CHECK(values.at("gradwire_clients") == 2);
  CHECK(values.at("gradwire_groups,state=formed") == 1);
  CHECK(values.at("gradwire_groups,state=aborted") == 1);
  CHECK(values.at("gradwire_lane_busy_seconds_total,lane=0") == Approx(2));
  CHECK(values.at("gradwire_op_bytes_total") == 640);
  CHECK(values.at("gradwire_dropped_packets_total,lane=0,reason=short") == 3);
  CHECK(values.at("gradwire_dropped_packets_total,lane=0,reason=duplicate") == 4);
  CHECK(values.at("gradwire_stall_seconds_total,lane=0,neighbor=upstream") == Approx(0.5));
  CHECK(values.at("gradwire_mempool_free_mbufs,lane=0,mempool=packet") == 5);
  CHECK(values.at("gradwire_smoothed_rtt_seconds,group=hidden-7,epoch=2,lane=0") == Approx(50e-6));
  CHECK(values.at("gradwire_port_up,port=net_memif0,driver=net_memif") == 1);
  CHECK(values.at("gradwire_port_errors_total,port=net_memif0,reason=rx_missed") == 6);
  CHECK(values.at("gradwire_reduced_chunks_total,backend=cpu avx2,path=cpu") == 11);
  CHECK(values.at("gradwire_oldest_wait_seconds") == 2.5);
}

TEST_CASE("the latency histogram is cumulative, and its last bucket has no bound but infinity") {
  for (const MetricFamily& family : metrics_of(kStatus)) {
    if (family.name != "gradwire_op_latency_seconds") continue;
    REQUIRE(family.type == MetricType::Histogram);
    const auto& histogram = family.metric.at(0).histogram;
    CHECK(histogram.sample_count == 3);
    CHECK(histogram.sample_sum == Approx(3.5));
    REQUIRE(histogram.bucket.size() == 2);
    CHECK(histogram.bucket[0].cumulative_count == 1);
    CHECK(histogram.bucket[1].cumulative_count == 2);
    CHECK(histogram.bucket[1].upper_bound == Approx(2));
    return;
  }
  FAIL("there is no histogram");
}

TEST_CASE("names follow Prometheus' rules, and each has its help once") {
  std::set<std::string> seen;
  for (const MetricFamily& family : metrics_of(kStatus)) {
    INFO(family.name);
    CHECK(seen.insert(family.name).second);
    CHECK(family.name.starts_with("gradwire_"));
    CHECK(family.help.size() > 5);
    CHECK((family.type == MetricType::Counter) == family.name.ends_with("_total"));
    CHECK_FALSE(family.metric.empty());
  }
}

TEST_CASE("what is no status has no values but what is always there") {
  for (const char* text : {"null", "[]", "{}", R"({"lanes":[3],"ops":[{}]})"}) {
    CHECK_NOTHROW(metrics_of(json::parse(text)));
  }
}

}  // namespace gradwire::operate
