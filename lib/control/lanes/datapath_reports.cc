// SPDX-License-Identifier: BSD-3-Clause
#include "control/lanes/datapath_reports.h"

#include <fmt/format.h>
#include <rte_mempool.h>

#include "control/shard_status.h"

namespace gradwire::control {

status::Lane DatapathReports::lane_status(std::uint8_t lane) const {
  status::Lane out = facts_(lane);
  const lane::LaneCounters& counters = datapath_.lane(lane).counters();
  out.counters = lane_counters_status(counters);
  out.round_us_max = datapath_.lane(lane).round_us_max();
  out.round_steps_max = datapath_.lane(lane).round_steps_max();
  if (lane == 0) {
    status::OpLatency latency;
    latency.sum_ns = read_counter(counters.op_latency_ns);
    for (std::size_t i = 0; i < lane::kLatencyBuckets; ++i) {
      latency.bounds_ns.push_back(lane::latency_bound_ns(i));
      latency.counts.push_back(read_counter(counters.op_latency[i]));
    }
    out.op_latency = std::move(latency);
  }
  const port::LanePools& pools = datapath_.pools(lane);
  const auto add_pool = [&](const char* name, rte_mempool* pool) {
    out.mempools.push_back({name, rte_mempool_avail_count(pool), pool->size});
  };
  add_pool("packet", pools.packet());
  add_pool("control", pools.control());
  if (const port::PayloadPool* payloads = datapath_.payloads(lane); payloads != nullptr) {
    add_pool("payload", payloads->mempool());
  }
  return out;
}

std::vector<status::Port> DatapathReports::ports_status() const {
  std::vector<status::Port> out;
  for (const auto& port : datapath_.ports()) {
    const port::Neighbors& neighbors = lanes_.neighbors(out.size());
    const port::PortReport report = port->report();
    const port::PortCounters counters = port->counters();
    status::Port& entry = out.emplace_back();
    entry.device = report.device;
    entry.driver = report.driver;
    entry.link = report.link;
    entry.up = port->link_up();
    entry.mac = wire::to_string(report.mac);
    entry.address =
        fmt::format("{}/{}", wire::to_string(port->config().ip), port->config().prefix_bits);
    entry.mtu = report.mtu;
    entry.numa_node = report.numa_node;
    entry.queues = report.queues;
    entry.joined_queues = report.joined_queues;
    entry.rx_interrupts = report.rx_interrupts;
    entry.flow_steering = report.flow_steering;
    entry.hashed_queues = report.hashed_queues;
    entry.splits_payload = report.splits_payload;
    entry.neighbors = neighbors.size();
    entry.counters.rx_packets = counters.rx_packets;
    entry.counters.rx_bytes = counters.rx_bytes;
    entry.counters.rx_missed = counters.rx_missed;
    entry.counters.rx_errors = counters.rx_errors;
    entry.counters.rx_no_mbuf = counters.rx_no_mbuf;
    entry.counters.tx_packets = counters.tx_packets;
    entry.counters.tx_bytes = counters.tx_bytes;
    entry.counters.tx_errors = counters.tx_errors;
    entry.counters.neighbors_evicted = neighbors.counters().evicted;
    entry.counters.arp_refused = neighbors.counters().refused;
    entry.counters.neighbors_moved = neighbors.counters().moved;
    entry.counters.neighbor_claims = neighbors.counters().claims;
    entry.counters.neighbors_unanswered = neighbors.counters().unanswered;
    entry.counters.duplicate_addresses = neighbors.counters().duplicates;
    if (const auto& mac = neighbors.duplicate()) entry.duplicate_mac = wire::to_string(*mac);
  }
  return out;
}

std::vector<PortFaults> DatapathReports::port_faults() const {
  std::vector<PortFaults> out;
  for (const auto& port : datapath_.ports()) {
    out.push_back({port->config().device, port->config().faults, port->splits_payload()});
  }
  return out;
}

}  // namespace gradwire::control
