// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "table.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

namespace {

/// The element of `array` whose `name` is that of `like`.
json same(const json& array, const char* name, const json& like) {
  for (const json& element : array) {
    if (field(element, name) == field(like, name)) return element;
  }
  return json::object();
}

/// How much a counter went up, for each second; 0 where it went down, since the daemon is another.
double rate(const json& before, const json& after, const char* name, double seconds) {
  const double more = number(after, name) - number(before, name);
  return seconds > 0 && more > 0 ? more / seconds : 0;
}

/// Latency below which `part` of the ops between the two looks were, by the histogram's bounds.
double quantile_us(const json& before, const json& after, double part) {
  const json bounds = elements(after, "bounds_ns");
  const json counts = elements(after, "counts");
  const json old = elements(before, "counts");
  double total = 0;
  std::vector<double> more;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double earlier = i < old.size() ? old[i].get<double>() : 0;
    more.push_back(std::max(counts[i].get<double>() - earlier, 0.0));
    total += more.back();
  }
  double below = 0;
  for (std::size_t i = 0; i < more.size() && i < bounds.size(); ++i) {
    below += more[i];
    if (total > 0 && below >= part * total) return bounds[i].get<double>() / 1e3;
  }
  return 0;
}

std::string rate_text(double bytes_per_s) { return fmt::format("{:.3f}", bytes_per_s / 1e9); }

}  // namespace

json top_of(const json& before, const json& after, double seconds) {
  json lanes = json::array();
  for (const json& lane : elements(after, "lanes")) {
    const json old = same(elements(before, "lanes"), "lane", lane);
    const json was = section(old, "counters");
    const json is = section(lane, "counters");
    const json moved = section(lane, "transport");
    const json moved_before = section(old, "transport");
    const double busy = rate(was, is, "busy_ns", seconds);
    const double idle = rate(was, is, "idle_ns", seconds);
    double drops = 0;
    const json reasons = section(is, "drops");
    for (const auto& [why, count] : reasons.items()) {
      if (count.is_number())
        drops += rate(section(was, "drops"), section(is, "drops"), why.c_str(), seconds);
    }
    const json pools = elements(lane, "mempools");
    lanes.push_back(
        {{"lane", lane.value("lane", 0)},
         {"load", busy + idle > 0 ? busy / (busy + idle) : 0},
         {"rx_packets_per_s", rate(was, is, "rx_packets", seconds)},
         {"tx_packets_per_s", rate(was, is, "tx_packets", seconds)},
         {"rx_bytes_per_s", rate(was, is, "rx_bytes", seconds)},
         {"tx_bytes_per_s", rate(was, is, "tx_bytes", seconds)},
         {"ops_per_s", rate(was, is, "ops_done", seconds)},
         {"retransmissions_per_s", rate(moved_before, moved, "retransmissions", seconds)},
         {"drops_per_s", drops},
         {"stalled", (rate(moved_before, moved, "stalled_on_downstream_ns", seconds) +
                      rate(moved_before, moved, "stalled_on_upstream_ns", seconds)) /
                         1e9},
         {"mbufs_free",
          pools.empty() ? json(nullptr) : pools.front().value("free", json(nullptr))}});
  }
  const json first =
      elements(after, "lanes").empty() ? json::object() : elements(after, "lanes").front();
  const json old =
      elements(before, "lanes").empty() ? json::object() : elements(before, "lanes").front();
  const json daemon = section(after, "daemon");
  return {{"daemon", daemon},
          {"seconds", seconds},
          {"algbw_bytes_per_s",
           rate(section(old, "counters"), section(first, "counters"), "op_bytes", seconds)},
          {"busbw_bytes_per_s",
           rate(section(old, "counters"), section(first, "counters"), "bus_bytes", seconds)},
          {"latency_p50_us",
           quantile_us(section(old, "op_latency"), section(first, "op_latency"), 0.5)},
          {"latency_p99_us",
           quantile_us(section(old, "op_latency"), section(first, "op_latency"), 0.99)},
          {"lanes", std::move(lanes)},
          {"ops", elements(after, "ops")},
          {"groups", elements(after, "groups").size()},
          {"clients", elements(after, "clients").size()}};
}

std::string top_text(const json& top) {
  const json daemon = section(top, "daemon");
  std::string out = fmt::format(
      "gradwired {}, pid {}, {}, up {} s: {} groups, {} clients\n"
      "busbw {} GB/s, algbw {} GB/s, ops at most {:.0f} us (half), {:.0f} us (99 in 100)\n\n",
      field(daemon, "version"), field(daemon, "pid"), field(daemon, "state"),
      field(daemon, "uptime_s"), field(top, "groups"), field(top, "clients"),
      rate_text(number(top, "busbw_bytes_per_s")), rate_text(number(top, "algbw_bytes_per_s")),
      number(top, "latency_p50_us"), number(top, "latency_p99_us"));
  Table table({"LANE", "LOAD %", "OPS/s", "RX pkt/s", "TX pkt/s", "RX GB/s", "TX GB/s", "RETR/s",
               "DROPS/s", "STALLED %", "MBUFS"});
  for (const json& lane : elements(top, "lanes")) {
    const auto whole = [&](const char* name, double scale = 1) {
      return fmt::format("{:.0f}", number(lane, name) * scale);
    };
    table.add({field(lane, "lane"), whole("load", 100), whole("ops_per_s"),
               whole("rx_packets_per_s"), whole("tx_packets_per_s"),
               rate_text(number(lane, "rx_bytes_per_s")), rate_text(number(lane, "tx_bytes_per_s")),
               whole("retransmissions_per_s"), whole("drops_per_s"), whole("stalled", 100),
               field(lane, "mbufs_free")});
  }
  return out + table.text() + "\n" + ops_text(elements(top, "ops"));
}

}  // namespace gradwire::cli
