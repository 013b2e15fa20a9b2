// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "status/counter_table.h"

namespace gradwire::metrics {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

namespace {

/// Families in the order of their first value.
class Families {
 public:
  template <class T>
  void counter(const char* name, const char* help, Labels labels, T value, double scale = 1) {
    add(name, help, MetricType::Counter, std::move(labels)).counter.value =
        static_cast<double>(value) * scale;
  }
  template <class T>
  void gauge(const char* name, const char* help, Labels labels, T value, double scale = 1) {
    add(name, help, MetricType::Gauge, std::move(labels)).gauge.value =
        static_cast<double>(value) * scale;
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
  std::map<std::string, std::size_t> index_;
  std::vector<MetricFamily> families_;
};

constexpr double kNs = 1e-9;
constexpr double kUs = 1e-6;

void add_daemon(Families& out, const status::DaemonStatus& status) {
  out.gauge("gradwire_build_info", "Constant 1; the label is the daemon's version.",
            {{"version", status.daemon.version}}, 1);
  out.gauge("gradwire_uptime_seconds", "Time since the daemon started.", {},
            status.daemon.uptime_s);
  out.gauge("gradwire_accepting", "1 if new groups and ops are accepted, 0 while draining.", {},
            status.daemon.state == "running" ? 1 : 0);
  out.gauge("gradwire_clients", "Connected client processes.", {}, status.clients.size());
  out.gauge("gradwire_control_round_max_seconds",
            "Longest round of the control thread in the last minute, without its sleep.", {},
            status.daemon.control_round_us_max, kUs);
  out.gauge("gradwire_control_round_max_steps",
            "Most steps of a round of the control thread in the last minute; a step is about a "
            "microsecond's work.",
            {}, status.daemon.control_round_steps_max);
  out.gauge("gradwire_open_questions",
            "MAC addresses that forming groups have asked for and wait for.", {},
            status.daemon.open_questions);
  out.counter("gradwire_log_lines_dropped_total",
              "Lines of the log that were dropped since nobody read it.", {},
              status.daemon.log_lines_dropped);
  out.gauge("gradwire_security_info",
            "Constant 1; the labels are security.mode and security.minimum of the daemon.",
            {{"mode", status.daemon.security}, {"minimum", status.daemon.security_minimum}}, 1);
  for (std::size_t i = 0; i < status.daemon.keys.size(); ++i) {
    out.gauge("gradwire_key_info", "Constant 1 for each key of the cluster that the daemon has.",
              {{"key", status.daemon.keys[i]}, {"place", i == 0 ? "first" : "second"}}, 1);
  }
  std::map<std::pair<std::string, std::string>, int> secured;
  for (const status::Group& group : status.groups) ++secured[{group.security, group.key}];
  for (const auto& [security, count] : secured) {
    out.gauge("gradwire_groups_by_security",
              "Groups by what is done with their packets, and by the id of their key.",
              {{"mode", security.first}, {"key", security.second}}, count);
  }
  for (const status::User& user : status.daemon.users) {
    const Labels labels = {{"uid", std::to_string(user.uid)}};
    out.counter("gradwire_user_control_steps_total",
                "Steps that a user took of the control thread; a step is about a microsecond's "
                "work.",
                labels, user.control_steps);
    out.counter("gradwire_user_control_waits_total",
                "How often a user had used up its share of the control thread and had to wait.",
                labels, user.control_waits);
  }
  std::map<uid_t, std::uint64_t> memory;
  for (const status::Client& client : status.clients) memory[client.uid] += client.memory_bytes;
  for (const auto& [uid, bytes] : memory) {
    out.gauge("gradwire_user_memory_bytes", "Gradient memory of all clients of a user.",
              {{"uid", std::to_string(uid)}}, bytes);
  }
  std::map<uid_t, std::uint64_t> groups;
  std::map<uid_t, std::uint64_t> transfer_groups;
  for (const status::Group& group : status.groups) {
    ++(group.transfers_alone ? transfer_groups : groups)[group.uid];
  }
  for (const auto& [uid, count] : groups) {
    out.gauge("gradwire_user_groups", "Groups of a user, but for those for transfers alone.",
              {{"uid", std::to_string(uid)}}, count);
  }
  for (const auto& [uid, count] : transfer_groups) {
    out.gauge("gradwire_user_transfer_groups", "Groups of a user for transfers alone.",
              {{"uid", std::to_string(uid)}}, count);
  }
  std::map<uid_t, std::uint64_t> keys;
  for (const status::Group& group : status.groups) keys[group.uid] += group.key_memory_bytes;
  for (const auto& [uid, bytes] : keys) {
    out.gauge("gradwire_user_key_memory_bytes", "What the keys of a user's groups take, at most.",
              {{"uid", std::to_string(uid)}}, bytes);
  }
  std::map<std::string, int> states;
  for (const status::Group& group : status.groups) {
    ++states[group.aborted ? "aborted" : group.state];
  }
  for (const char* state : {"forming", "formed", "aborted"}) states.emplace(state, 0);
  for (const auto& [state, count] : states) {
    out.gauge("gradwire_groups", "Groups by state.", {{"state", state}}, count);
  }
  for (const status::Reduce& total : status.reduce) {
    const Labels labels = {{"backend", total.backend}, {"path", total.path}};
    out.counter("gradwire_reduced_chunks_total", "Chunks that a backend reduced.", labels,
                total.chunks_reduced);
    out.counter("gradwire_moved_chunks_total", "Chunks that a backend loaded or stored.", labels,
                total.chunks_moved);
    out.counter("gradwire_reduced_bytes_total", "Payload that went through a backend.", labels,
                total.bytes);
    out.counter("gradwire_reduce_batches_total", "Batches in which a GPU got chunks.", labels,
                total.batches);
  }
}

void add_latency(Families& out, const status::OpLatency& latency) {
  const auto& [sum_ns, bounds_ns, counts] = latency;
  if (counts.empty() || counts.size() != bounds_ns.size()) return;
  auto& histogram = out.add("gradwire_op_latency_seconds",
                            "Time from when every member has posted an op until it ends on lane 0.",
                            MetricType::Histogram, {})
                        .histogram;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    // The last bucket also counts all longer ops, so its bound is +Inf.
    if (i + 1 < counts.size()) {
      histogram.bucket.push_back({below, static_cast<double>(bounds_ns[i]) * kNs});
    }
  }
  histogram.sample_count = below;
  histogram.sample_sum = static_cast<double>(sum_ns) * kNs;
}

/// The counters of a table that have a metric.
template <class Table, class Counts>
void add_counters(Families& out, const Table& table, const Counts& counts, std::uint32_t lane) {
  for (const auto& [name, member, metric] : table) {
    if (metric.name == nullptr || (metric.lane_0_alone && lane != 0)) continue;
    Labels labels;
    if (!metric.lane_0_alone) labels.push_back({"lane", std::to_string(lane)});
    if (metric.label != nullptr) labels.push_back({metric.label, metric.label_value});
    const double scale = std::string_view(name).ends_with("_ns") ? kNs : 1;
    out.counter(metric.name, metric.help, std::move(labels), counts.*member, scale);
  }
}

void add_lane(Families& out, const status::Lane& lane) {
  const ClientMetric::Label name = {"lane", std::to_string(lane.lane)};
  add_counters(out, status::kLaneCounters, lane.counters, lane.lane);
  add_counters(out, status::kCommandCounters, lane.counters, lane.lane);
  out.gauge("gradwire_lane_round_max_seconds",
            "Longest round of the lane in the last minute, without its sleep.", {name},
            lane.round_us_max, kUs);
  out.gauge("gradwire_lane_round_max_steps",
            "Steps of the lane's round that had most of them in the last minute.", {name},
            lane.round_steps_max);
  out.gauge("gradwire_lane_heap_bytes", "Scratch memory that ops of the lane's groups have used.",
            {name}, lane.heap_bytes);
  if (lane.lane == 0) {
    for (const auto& [collective, done] : lane.counters.ops) {
      out.counter("gradwire_collectives_done_total", "Ops that are done, by collective.",
                  {{"collective", collective}}, done);
    }
    if (lane.op_latency) add_latency(out, *lane.op_latency);
  }
  for (const status::Mempool& pool : lane.mempools) {
    const Labels labels = {name, {"mempool", pool.mempool}};
    out.gauge("gradwire_mempool_free_mbufs", "Free mbufs.", labels, pool.free);
    out.gauge("gradwire_mempool_mbufs", "All mbufs.", labels, pool.mbufs);
  }
  add_counters(out, status::kShardCounters, lane.transport, lane.lane);
  // The lane or a shard counts a drop, depending on how far the packet came.
  const status::Drops& by_lane = lane.counters.drops;
  for (const auto& [reason, dropped] : lane.transport.drops) {
    const auto more = by_lane.find(reason);
    out.counter("gradwire_dropped_packets_total", "Packets dropped, by reason.",
                {name, {"reason", reason}}, dropped + (more == by_lane.end() ? 0 : more->second));
  }
}

void add_port(Families& out, const status::Port& port) {
  const ClientMetric::Label name = {"port", port.device};
  out.gauge("gradwire_port_up", "1 if the link is up.", {name, {"driver", port.driver}},
            port.up ? 1 : 0);
  constexpr const char* kHelp = "Packets that the port lost or refused, as its driver counts them.";
  const auto errors = [&](const char* reason, std::uint64_t value) {
    out.counter("gradwire_port_errors_total", kHelp, {name, {"reason", reason}}, value);
  };
  errors("rx_missed", port.counters.rx_missed);
  errors("rx_errors", port.counters.rx_errors);
  errors("rx_no_mbuf", port.counters.rx_no_mbuf);
  errors("tx_errors", port.counters.tx_errors);
  constexpr const char* kEvents =
      "Neighbors of the port that moved, frames that claim a known neighbor's address (ignored), "
      "questions in vain, and frames of others that have the port's own address.";
  const auto neighbors = [&](const char* event, std::uint64_t value) {
    out.counter("gradwire_neighbor_events_total", kEvents, {name, {"event", event}}, value);
  };
  neighbors("moved", port.counters.neighbors_moved);
  neighbors("claim", port.counters.neighbor_claims);
  neighbors("unanswered", port.counters.neighbors_unanswered);
  neighbors("duplicate_address", port.counters.duplicate_addresses);
}

/// Anybody who can reach the metrics can read them, so they do not contain groups' real ids.
void add_group(Families& out, const status::Group& group) {
  // There may be a thousand, and they have no data that is acknowledged, nor pings.
  if (group.transfers_alone) return;
  std::map<std::uint16_t, double> late_s;
  // From 0 on, so that a rate has a beginning.
  if (group.downstream) late_s.emplace(group.downstream->rank, 0);
  for (const status::LateRank& late : group.late_ranks) late_s[late.rank] = late.waited_s;
  for (const auto& [rank, seconds] : late_s) {
    out.counter("gradwire_late_rank_seconds_total",
                "Time for which ops of a group waited here for a rank whose processes had not "
                "posted them, or that was silent, for 10 ms or more. The next rank, and the 16 "
                "worst.",
                {{"group", status::hidden_name(group.handle)},
                 {"epoch", std::to_string(group.epoch)},
                 {"rank", std::to_string(rank)}},
                seconds);
  }
  for (const status::Shard& shard : group.shards) {
    const Labels labels = {{"group", status::hidden_name(group.handle)},
                           {"epoch", std::to_string(group.epoch)},
                           {"lane", std::to_string(shard.lane)}};
    out.gauge("gradwire_smoothed_rtt_seconds",
              "Smoothed RTT to the downstream rank (smoothed_rtt of RFC 9002).", labels,
              shard.smoothed_rtt_us, kUs);
    out.gauge("gradwire_min_rtt_seconds", "Least RTT to the downstream rank (min_rtt of RFC 9002).",
              labels, shard.min_rtt_us, kUs);
    out.gauge("gradwire_links_on_other_path",
              "Ranks to which a lane does not send by its first path: the downstream rank, and "
              "those off the ring.",
              labels, (shard.on_other_path ? 1 : 0) + shard.peers_on_other_path);
    out.gauge("gradwire_in_flight_bytes", "Bytes sent downstream and not acknowledged.", labels,
              shard.bytes_in_flight);
    out.gauge("gradwire_window_bytes", "How many bytes congestion control allows in flight.",
              labels, shard.window_bytes);
    out.gauge("gradwire_probe_timeouts_in_a_row",
              "Probe timeouts in a row (pto_count of RFC 9002).", labels, shard.pto_count);
    Labels neighbor = labels;
    neighbor.push_back({"neighbor", "upstream"});
    constexpr const char* kSilence =
        "Time since the last packet from a neighbor, while this lane polled.";
    out.gauge("gradwire_neighbor_silence_seconds", kSilence, neighbor, shard.upstream_silence_s);
    neighbor.back().value = "downstream";
    out.gauge("gradwire_neighbor_silence_seconds", kSilence, neighbor, shard.downstream_silence_s);
  }
}

}  // namespace

std::vector<MetricFamily> metrics_of(const status::DaemonStatus& status) {
  Families out;
  add_daemon(out, status);
  for (const status::Lane& lane : status.lanes) add_lane(out, lane);
  for (const status::Port& port : status.ports) add_port(out, port);
  for (const status::Group& group : status.groups) add_group(out, group);
  double oldest_s = 0;
  for (const status::Op& op : status.ops) oldest_s = std::max(oldest_s, op.since_s.value_or(0));
  out.gauge("gradwire_oldest_wait_seconds",
            "How long the slowest unfinished op has made no progress; 0 if there is none.", {},
            oldest_s);
  return out.take();
}

}  // namespace gradwire::metrics
