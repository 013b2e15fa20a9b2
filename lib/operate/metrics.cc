// SPDX-License-Identifier: BSD-3-Clause
#include "operate/metrics.h"

#include <map>
#include <string>

#include "base/json_fields.h"

namespace gradwire::operate {

using nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

namespace {

std::string text_of(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) return "";
  return object[name].is_string() ? object[name].get<std::string>() : object[name].dump();
}

/// Families in the order of their first value.
class Families {
 public:
  void counter(const char* name, const char* help, Labels labels, const json& object,
               const char* member, double scale = 1) {
    if (const json* value = find(object, member)) {
      add(name, help, MetricType::Counter, std::move(labels)).counter.value =
          value->get<double>() * scale;
    }
  }
  void gauge(const char* name, const char* help, Labels labels, const json& object,
             const char* member, double scale = 1) {
    if (const json* value = find(object, member)) {
      gauge(name, help, std::move(labels), value->get<double>() * scale);
    }
  }
  void gauge(const char* name, const char* help, Labels labels, double value) {
    add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  ClientMetric& add(const char* name, const char* help, MetricType type, Labels labels) {
    const auto [place, fresh] = index_.emplace(name, families_.size());
    if (fresh) families_.push_back({name, help, type, {}});
    ClientMetric& metric = families_[place->second].metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }
  [[nodiscard]] std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  static const json* find(const json& object, const char* member) {
    const auto found = object.find(member);
    return found == object.end() || !found->is_number() ? nullptr : &*found;
  }
  std::map<std::string, std::size_t> index_;
  std::vector<MetricFamily> families_;
};

constexpr double kNs = 1e-9;
constexpr double kUs = 1e-6;

void add_daemon(Families& out, const json& status) {
  const json daemon = section(status, "daemon");
  out.gauge("gradwire_build_info", "Constant 1; the label is the daemon's version.",
            {{"version", text_of(daemon, "version")}}, 1);
  out.gauge("gradwire_uptime_seconds", "Time since the daemon started.", {}, daemon, "uptime_s");
  out.gauge("gradwire_accepting", "1 where new groups and ops are accepted, 0 while draining.", {},
            text_of(daemon, "state") == "running" ? 1 : 0);
  out.gauge("gradwire_clients", "Client processes that are connected.", {},
            static_cast<double>(elements(status, "clients").size()));
  std::map<std::string, double> states;
  for (const json& group : elements(status, "groups")) {
    const bool aborted =
        group.is_object() && group.contains("aborted") && group["aborted"].is_string();
    ++states[aborted ? "aborted" : text_of(group, "state")];
  }
  for (const char* state : {"forming", "formed", "aborted"}) states.emplace(state, 0);
  for (const auto& [state, count] : states) {
    out.gauge("gradwire_groups", "Groups by state.", {{"state", state}}, count);
  }
  for (const json& total : elements(status, "reduce")) {
    const Labels labels = {{"backend", text_of(total, "backend")},
                           {"path", text_of(total, "path")}};
    out.counter("gradwire_reduced_chunks_total", "Chunks that a backend reduced.", labels, total,
                "chunks_reduced");
    out.counter("gradwire_moved_chunks_total", "Chunks that a backend loaded or stored.", labels,
                total, "chunks_moved");
    out.counter("gradwire_reduced_bytes_total", "Payload that went through a backend.", labels,
                total, "bytes");
  }
}

void add_latency(Families& out, const json& lane) {
  const json latency = section(lane, "op_latency");
  const json bounds = elements(latency, "bounds_ns");
  const json counts = elements(latency, "counts");
  if (counts.empty() || counts.size() != bounds.size()) return;
  auto& histogram = out.add("gradwire_op_latency_seconds",
                            "Time from an op's posting by every member to its end on lane 0.",
                            MetricType::Histogram, {})
                        .histogram;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i].get<std::uint64_t>();
    // The last one holds whatever is longer, too: only +Inf is its bound.
    if (i + 1 < counts.size()) histogram.bucket.push_back({below, bounds[i].get<double>() * kNs});
  }
  histogram.sample_count = below;
  histogram.sample_sum = latency.value("sum_ns", 0.0) * kNs;
}

void add_lane(Families& out, const json& lane) {
  const ClientMetric::Label name = {"lane", text_of(lane, "lane")};
  const json counters = section(lane, "counters");
  const auto count = [&](const char* metric, const char* help, const char* member,
                         double scale = 1) {
    out.counter(metric, help, {name}, counters, member, scale);
  };
  count("gradwire_lane_busy_seconds_total", "Time in rounds of the lane that did something.",
        "busy_ns", kNs);
  count("gradwire_lane_idle_seconds_total", "Time in rounds that found nothing, sleeps included.",
        "idle_ns", kNs);
  count("gradwire_lane_sleep_seconds_total", "Time that the lane slept.", "sleep_ns", kNs);
  count("gradwire_lane_receive_packets_total", "Frames received.", "rx_packets");
  count("gradwire_lane_receive_bytes_total", "Bytes of frames received.", "rx_bytes");
  count("gradwire_lane_transmit_packets_total", "Frames sent.", "tx_packets");
  count("gradwire_lane_transmit_bytes_total", "Bytes of frames sent.", "tx_bytes");
  count("gradwire_lane_transmit_refused_total", "Frames that a full port put off.", "tx_refused");
  count("gradwire_lane_transmit_dropped_total", "Frames given up since a port took none for long.",
        "tx_dropped");
  count("gradwire_ops_done_total", "Ops whose share on the lane is done.", "ops_done");
  count("gradwire_group_aborts_total", "Groups that aborted on the lane.", "aborts");
  count("gradwire_group_stuck_total",
        "Groups that aborted since nothing moved though every rank had posted: a bug.", "stuck");
  if (name.value == "0") {
    out.counter("gradwire_op_bytes_total", "Bytes of ops that are done; its rate is algbw.", {},
                counters, "op_bytes");
    out.counter("gradwire_bus_bytes_total", "Bytes of ops x 2(n-1)/n; its rate is busbw.", {},
                counters, "bus_bytes");
    add_latency(out, lane);
  }
  for (const json& pool : elements(lane, "mempools")) {
    const Labels labels = {name, {"mempool", text_of(pool, "mempool")}};
    out.gauge("gradwire_mempool_free_mbufs", "Mbufs that are free.", labels, pool, "free");
    out.gauge("gradwire_mempool_mbufs", "Mbufs in all.", labels, pool, "mbufs");
  }
}

void add_transport(Families& out, const json& lane) {
  const ClientMetric::Label name = {"lane", text_of(lane, "lane")};
  const json transport = section(lane, "transport");
  const auto count = [&](const char* metric, const char* help, const char* member) {
    out.counter(metric, help, {name}, transport, member);
  };
  count("gradwire_data_packets_sent_total", "Data packets sent, again or for the first time.",
        "data_packets_sent");
  count("gradwire_data_packets_received_total", "Data packets accepted.", "data_packets_received");
  count("gradwire_retransmissions_total", "Data packets sent again.", "retransmissions");
  count("gradwire_probes_total", "Probes sent at a probe timeout.", "probes");
  count("gradwire_ecn_ce_packets_total", "Data packets that came with Congestion Experienced.",
        "ecn_ce_received");
  count("gradwire_spilled_chunks_total", "Chunks finished to memory, to be sent from there.",
        "spills");
  count("gradwire_copied_payloads_total", "Payloads copied since an mbuf was shared.", "copies");
  constexpr const char* kStall =
      "Time with an unfinished op in which nothing arrived and nothing was acknowledged.";
  out.counter("gradwire_stall_seconds_total", kStall, {name, {"neighbor", "upstream"}}, transport,
              "stalled_on_upstream_ns", kNs);
  out.counter("gradwire_stall_seconds_total", kStall, {name, {"neighbor", "downstream"}}, transport,
              "stalled_on_downstream_ns", kNs);
  // A reason is counted by the lane or by a shard, as far as a packet came.
  const json by_lane = section(section(lane, "counters"), "drops");
  const json by_shard = section(transport, "drops");
  for (const auto& [reason, dropped] : by_shard.items()) {
    const double more = by_lane.value(reason, 0.0);
    out.add("gradwire_dropped_packets_total", "Packets dropped, by reason.", MetricType::Counter,
            {name, {"reason", reason}})
        .counter.value = dropped.get<double>() + more;
  }
}

void add_port(Families& out, const json& port) {
  const ClientMetric::Label name = {"port", text_of(port, "device")};
  const bool up = port.value("up", false);
  out.gauge("gradwire_port_up", "1 where the link is up.",
            {name, {"driver", text_of(port, "driver")}}, up ? 1 : 0);
  const json counters = section(port, "counters");
  constexpr const char* kHelp = "Packets that the port lost or refused, as its driver counts them.";
  for (const char* why : {"rx_missed", "rx_errors", "rx_no_mbuf", "tx_errors"}) {
    out.counter("gradwire_port_errors_total", kHelp, {name, {"reason", why}}, counters, why);
  }
}

/// Whoever can reach the metrics reads them, so no group has its true id in them.
void add_group(Families& out, const json& group) {
  for (const json& shard : elements(group, "shards")) {
    const Labels labels = {{"group", "hidden-" + text_of(group, "handle")},
                           {"epoch", text_of(group, "epoch")},
                           {"lane", text_of(shard, "lane")}};
    const auto gauge = [&](const char* metric, const char* help, const char* member,
                           double scale = 1) {
      out.gauge(metric, help, labels, shard, member, scale);
    };
    gauge("gradwire_smoothed_rtt_seconds", "smoothed_rtt to the downstream rank (RFC 9002).",
          "smoothed_rtt_us", kUs);
    gauge("gradwire_min_rtt_seconds", "min_rtt to the downstream rank (RFC 9002).", "min_rtt_us",
          kUs);
    gauge("gradwire_in_flight_bytes", "Bytes sent downstream and not acknowledged.",
          "bytes_in_flight");
    gauge("gradwire_window_bytes", "The most that congestion control lets be in flight.",
          "window_bytes");
    gauge("gradwire_probe_timeouts_in_a_row", "pto_count of RFC 9002.", "pto_count");
    Labels neighbor = labels;
    neighbor.push_back({"neighbor", "upstream"});
    constexpr const char* kSilence =
        "Time since a neighbor was heard last, while this lane polled.";
    out.gauge("gradwire_neighbor_silence_seconds", kSilence, neighbor, shard, "upstream_silence_s");
    neighbor.back().value = "downstream";
    out.gauge("gradwire_neighbor_silence_seconds", kSilence, neighbor, shard,
              "downstream_silence_s");
  }
}

}  // namespace

std::vector<MetricFamily> metrics_of(const json& status) {
  Families out;
  add_daemon(out, status);
  for (const json& lane : elements(status, "lanes")) {
    add_lane(out, lane);
    add_transport(out, lane);
  }
  for (const json& port : elements(status, "ports")) add_port(out, port);
  for (const json& group : elements(status, "groups")) add_group(out, group);
  double oldest_s = 0;
  for (const json& op : elements(status, "ops")) {
    if (op.value("since_s", json()).is_number()) {
      oldest_s = std::max(oldest_s, op["since_s"].get<double>());
    }
  }
  out.gauge("gradwire_oldest_wait_seconds",
            "How long the unfinished op that waits longest has made no progress; 0 without one.",
            {}, oldest_s);
  return out.take();
}

}  // namespace gradwire::operate
