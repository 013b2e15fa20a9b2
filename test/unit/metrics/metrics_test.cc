// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/metrics.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace gradwire::metrics {

using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

status::DaemonStatus example() {
  status::DaemonStatus status;
  status.daemon.version = "0.1.0";
  status.daemon.state = "draining";
  status.daemon.uptime_s = 4;
  status.daemon.security_minimum = "authenticate";
  status.daemon.security = "encrypt";
  status.daemon.keys = {"5f00", "6a11"};
  status.clients.resize(2);
  status::Lane& lane = status.lanes.emplace_back();
  lane.counters.busy_ns = 2'000'000'000;
  lane.counters.rx_packets = 8;
  lane.counters.op_bytes = 640;
  lane.counters.drops = {{"short", 2}};
  status::OpLatency latency;
  latency.sum_ns = 3'500'000'000;
  latency.bounds_ns = {1'000'000'000, 2'000'000'000, 4'000'000'000};
  latency.counts = {1, 1, 1};
  lane.op_latency = latency;
  lane.transport.retransmissions = 3;
  lane.transport.stalled_on_upstream_ns = 500'000'000;
  lane.transport.drops = {{"short", 1}, {"duplicate", 4}};
  lane.mempools = {{"packet", 5, 9}};
  status::Group& formed = status.groups.emplace_back();
  formed.group_id = "ff";
  formed.handle = 7;
  formed.epoch = 2;
  formed.state = "formed";
  formed.security = "encrypt";
  formed.key = "6a11";
  status::Shard& shard = formed.shards.emplace_back();
  shard.smoothed_rtt_us = 50;
  shard.upstream_silence_s = 0.25;
  status::Group& aborted = status.groups.emplace_back();
  aborted.state = "formed";
  aborted.aborted = "rank 1";
  status::Port& port = status.ports.emplace_back();
  port.device = port.driver = "net_memif0";
  port.up = true;
  port.counters.rx_missed = 6;
  status.reduce = {{"cpu avx2", "cpu", 11, 0, 99}};
  status.ops.resize(2);
  status.ops[0].since_s = 1;
  status.ops[1].since_s = 2.5;
  return status;
}
const status::DaemonStatus kStatus = example();

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
  CHECK(values.at("gradwire_security_info,mode=encrypt,minimum=authenticate") == 1);
  CHECK(values.at("gradwire_key_info,key=5f00,place=first") == 1);
  CHECK(values.at("gradwire_key_info,key=6a11,place=second") == 1);
  CHECK(values.at("gradwire_groups_by_security,mode=encrypt,key=6a11") == 1);
  CHECK(values.at("gradwire_groups_by_security,mode=off,key=") == 1);
  CHECK(values.at("gradwire_lane_busy_seconds_total,lane=0") == Approx(2));
  CHECK(values.at("gradwire_op_bytes_total") == 640);
  CHECK(values.at("gradwire_dropped_packets_total,lane=0,reason=short") == 3);
  CHECK(values.at("gradwire_dropped_packets_total,lane=0,reason=duplicate") == 4);
  CHECK(values.at("gradwire_stall_seconds_total,lane=0,neighbor=upstream") == Approx(0.5));
  CHECK(values.at("gradwire_mempool_free_mbufs,lane=0,mempool=packet") == 5);
  CHECK(values.at("gradwire_smoothed_rtt_seconds,group=hidden-7,epoch=2,lane=0") == Approx(50e-6));
  CHECK(values.at("gradwire_port_up,port=net_memif0,driver=net_memif0") == 1);
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

}  // namespace gradwire::metrics
