// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "status/fields.h"
#include "table.h"
#include "views.h"

namespace gradwire::cli {
namespace {

/// A counter's increase per second; 0 if it decreased, because then the daemon has been restarted.
double rate(std::uint64_t before, std::uint64_t after, double seconds) {
  return seconds > 0 && after > before ? static_cast<double>(after - before) / seconds : 0;
}

double drops_rate(const status::Drops& before, const status::Drops& after, double seconds) {
  double drops = 0;
  for (const auto& [why, count] : after) {
    const auto old = before.find(why);
    drops += rate(old == before.end() ? 0 : old->second, count, seconds);
  }
  return drops;
}

/// The latency that `part` of the ops between the two updates did not exceed, by the histogram's
/// bounds.
double quantile_us(const status::OpLatency& before, const status::OpLatency& after, double part) {
  double total = 0;
  std::vector<double> more;
  for (std::size_t i = 0; i < after.counts.size(); ++i) {
    const std::uint64_t earlier = i < before.counts.size() ? before.counts[i] : 0;
    more.push_back(static_cast<double>(after.counts[i] - std::min(after.counts[i], earlier)));
    total += more.back();
  }
  double below = 0;
  for (std::size_t i = 0; i < more.size() && i < after.bounds_ns.size(); ++i) {
    below += more[i];
    if (total > 0 && below >= part * total) return static_cast<double>(after.bounds_ns[i]) / 1e3;
  }
  return 0;
}

TopLane lane_of(const status::Lane& before, const status::Lane& after, double seconds) {
  const status::LaneCounters& was = before.counters;
  const status::LaneCounters& is = after.counters;
  const status::Transport& moved_before = before.transport;
  const status::Transport& moved = after.transport;
  const double busy = rate(was.busy_ns, is.busy_ns, seconds);
  const double idle = rate(was.idle_ns, is.idle_ns, seconds);
  TopLane out;
  out.lane = after.lane;
  out.load = busy + idle > 0 ? busy / (busy + idle) : 0;
  out.rx_packets_per_s = rate(was.rx_packets, is.rx_packets, seconds);
  out.tx_packets_per_s = rate(was.tx_packets, is.tx_packets, seconds);
  out.rx_bytes_per_s = rate(was.rx_bytes, is.rx_bytes, seconds);
  out.tx_bytes_per_s = rate(was.tx_bytes, is.tx_bytes, seconds);
  out.ops_per_s = rate(was.ops_done, is.ops_done, seconds);
  out.retransmissions_per_s = rate(moved_before.retransmissions, moved.retransmissions, seconds);
  out.drops_per_s = drops_rate(was.drops, is.drops, seconds);
  out.stalled =
      (rate(moved_before.stalled_on_downstream_ns, moved.stalled_on_downstream_ns, seconds) +
       rate(moved_before.stalled_on_upstream_ns, moved.stalled_on_upstream_ns, seconds)) /
      1e9;
  if (!after.mempools.empty()) out.mbufs_free = after.mempools.front().free;
  return out;
}

/// How late the group's ranks have been since `before`.
void add_late(std::vector<TopLate>& out, const status::Group& before, const status::Group& after,
              double seconds) {
  for (const status::LateRank& late : after.late_ranks) {
    const auto old = std::ranges::find(before.late_ranks, late.rank, &status::LateRank::rank);
    const double waited_s = old == before.late_ranks.end() ? 0 : old->waited_s;
    const double part =
        seconds > 0 ? std::clamp((late.waited_s - waited_s) / seconds, 0.0, 1.0) : 0;
    out.push_back({after.group_id, late.rank, part, late.waited_s});
  }
}

std::string rate_text(double bytes_per_s) { return fmt::format("{:.3f}", bytes_per_s / 1e9); }

/// A table of a few; nothing if nobody was ever late.
std::string late_text(const std::vector<TopLate>& late_ranks) {
  constexpr std::size_t kShown = 5;
  Table table({"GROUP", "LATE RANK", "LATE %", "IN ALL s"});
  for (const TopLate& late : late_ranks) {
    if (&late - late_ranks.data() == kShown) break;
    table.add({late.group_id, std::to_string(late.rank), fmt::format("{:.0f}", late.late * 100),
               fmt::format("{:.1f}", late.waited_s)});
  }
  return table.empty() ? "" : "\n" + table.text();
}

}  // namespace

GRADWIRE_PUT_FIELDS(TopLane, lane, load, rx_packets_per_s, tx_packets_per_s, rx_bytes_per_s,
                    tx_bytes_per_s, ops_per_s, retransmissions_per_s, drops_per_s, stalled,
                    mbufs_free)
GRADWIRE_PUT_FIELDS(TopLate, group_id, rank, late, waited_s)
GRADWIRE_PUT_FIELDS(Top, daemon, seconds, algbw_bytes_per_s, busbw_bytes_per_s, latency_p50_us,
                    latency_p99_us, lanes, ops, late_ranks, groups, clients)

Top top_of(const status::DaemonStatus& before, const status::DaemonStatus& after, double seconds) {
  Top out;
  out.daemon = after.daemon;
  out.seconds = seconds;
  for (const status::Lane& lane : after.lanes) {
    const auto old = std::ranges::find(before.lanes, lane.lane, &status::Lane::lane);
    out.lanes.push_back(lane_of(old == before.lanes.end() ? status::Lane{} : *old, lane, seconds));
  }
  const status::Lane first = after.lanes.empty() ? status::Lane{} : after.lanes.front();
  const status::Lane old = before.lanes.empty() ? status::Lane{} : before.lanes.front();
  out.algbw_bytes_per_s = rate(old.counters.op_bytes, first.counters.op_bytes, seconds);
  out.busbw_bytes_per_s = rate(old.counters.bus_bytes, first.counters.bus_bytes, seconds);
  const status::OpLatency was = old.op_latency.value_or(status::OpLatency{});
  const status::OpLatency is = first.op_latency.value_or(status::OpLatency{});
  out.latency_p50_us = quantile_us(was, is, 0.5);
  out.latency_p99_us = quantile_us(was, is, 0.99);
  out.ops = after.ops;
  for (const status::Group& group : after.groups) {
    const auto same = std::ranges::find(before.groups, group.handle, &status::Group::handle);
    add_late(out.late_ranks, same == before.groups.end() ? status::Group{} : *same, group, seconds);
  }
  std::ranges::stable_sort(out.late_ranks, std::greater{},
                           [](const TopLate& late) { return std::pair(late.late, late.waited_s); });
  out.groups = after.groups.size();
  out.clients = after.clients.size();
  return out;
}

std::string top_text(const Top& top) {
  std::string out = fmt::format(
      "gradwired {}, pid {}, {}, up {:.3f} s: {} groups, {} clients\n"
      "busbw {} GB/s, algbw {} GB/s, ops take at most {:.0f} us (p50), {:.0f} us (p99)\n\n",
      top.daemon.version, top.daemon.pid, top.daemon.state, top.daemon.uptime_s, top.groups,
      top.clients, rate_text(top.busbw_bytes_per_s), rate_text(top.algbw_bytes_per_s),
      top.latency_p50_us, top.latency_p99_us);
  Table table({"LANE", "LOAD %", "OPS/s", "RX pkt/s", "TX pkt/s", "RX GB/s", "TX GB/s", "RETR/s",
               "DROPS/s", "STALLED %", "MBUFS"});
  const auto whole = [](double value) { return fmt::format("{:.0f}", value); };
  for (const TopLane& lane : top.lanes) {
    table.add(
        {std::to_string(lane.lane), whole(lane.load * 100), whole(lane.ops_per_s),
         whole(lane.rx_packets_per_s), whole(lane.tx_packets_per_s), rate_text(lane.rx_bytes_per_s),
         rate_text(lane.tx_bytes_per_s), whole(lane.retransmissions_per_s), whole(lane.drops_per_s),
         whole(lane.stalled * 100), lane.mbufs_free ? std::to_string(*lane.mbufs_free) : "?"});
  }
  return out + table.text() + late_text(top.late_ranks) + "\n" + ops_text(top.ops);
}

}  // namespace gradwire::cli
