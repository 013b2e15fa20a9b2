// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/network.h"

#include <algorithm>

namespace gradwire::sim {

Network::Network(std::size_t hosts, const LinkProfile& link, const PortProfile& port,
                 Random& random, EventQueue& events, Trace& trace)
    : link_(link),
      random_(random),
      events_(events),
      trace_(trace),
      edges_(hosts),
      ports_(hosts, Port{.profile = port, .frames = {}}) {}

Network::Edge& Network::edge(HostId from, HostId to) {
  for (Edge& edge : edges_[from]) {
    if (edge.to == to) return edge;
  }
  edges_[from].push_back(Edge{.to = to});
  return edges_[from].back();
}

bool Network::is_lost(TimeNs now, Edge& edge) {
  if (now < edge.burst_until) return true;
  if (random_.chance(link_.burst_start)) {
    edge.burst_until = now + random_.between(0, 2 * link_.burst_ns);
    return true;
  }
  if (edge.loss > 0 && random_.chance(edge.loss)) return true;
  return random_.chance(link_.loss);
}

std::uint64_t Network::queued_bytes(HostId host, TimeNs now) const {
  const Port& port = ports_[host];
  if (port.busy_until <= now || port.profile.rate_bps == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(port.busy_until - now) *
                                    static_cast<double>(port.profile.rate_bps) / 8e9);
}

TimeNs Network::pass_port(Port& port, TimeNs now, std::uint32_t wire_bytes, bool& marked) {
  if (port.profile.rate_bps == 0) return now;
  const auto host = static_cast<HostId>(&port - ports_.data());
  const std::uint64_t queued = queued_bytes(host, now);
  if (port.profile.queue_bytes != 0 && queued + wire_bytes > port.profile.queue_bytes) {
    return kNever;
  }
  if (port.profile.mark_bytes != 0 && queued >= port.profile.mark_bytes) marked = true;
  port.most_queued_bytes = std::max(port.most_queued_bytes, queued + wire_bytes);
  const auto takes_ns =
      static_cast<TimeNs>(std::uint64_t{wire_bytes} * 8'000'000'000 / port.profile.rate_bps);
  port.busy_until = std::max(port.busy_until, now) + std::max<TimeNs>(takes_ns, 1);
  return port.busy_until;
}

void Network::cross_traffic(TimeNs now, HostId to, std::uint32_t wire_bytes) {
  bool marked = false;
  (void)pass_port(ports_[to], now, wire_bytes, marked);
}

void Network::send(TimeNs now, HostId from, HostId to, std::span<const std::byte> frame,
                   std::uint32_t wire_bytes) {
  ++stats_.frames;
  stats_.wire_bytes += wire_bytes;
  Edge& way = edge(from, to);
  if (way.down || frame.size() > way.most_bytes) {
    ++stats_.cut;
    trace_.mix(now, 1, from, to);
    trace_.line(now, "net      {} -> {} is cut: a frame of {} bytes is gone", from, to,
                frame.size());
    return;
  }
  if (is_lost(now, way)) {
    ++stats_.lost;
    trace_.mix(now, 2, from, to);
    trace_.line(now, "net      {} -> {} loses a frame of {} bytes", from, to, frame.size());
    return;
  }
  carry(now, way, from, frame, wire_bytes);
  if (random_.chance(link_.duplication)) {
    ++stats_.duplicated;
    carry(now, way, from, frame, wire_bytes);
  }
}

void Network::carry(TimeNs now, Edge& way, HostId from, std::span<const std::byte> frame,
                    std::uint32_t wire_bytes) {
  Port& port = ports_[way.to];
  bool marked = false;
  TimeNs arrives = pass_port(port, now, wire_bytes, marked);
  if (arrives == kNever) {
    ++stats_.overflow;
    trace_.mix(now, 3, from, way.to);
    trace_.line(now, "net      {} -> {}: the queue is full, a frame of {} bytes is gone", from,
                way.to, wire_bytes);
    return;
  }
  if (marked) ++stats_.marked;
  arrives += link_.delay_ns + way.delay_ns;
  if (link_.jitter_ns > 0) arrives += random_.between(0, link_.jitter_ns);
  if (random_.chance(link_.reorder)) {
    ++stats_.late;
    arrives += random_.between(0, link_.reorder_ns);
  }
  arrives = std::max(arrives, way.clogged_until);

  std::uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(flights_.size());
    flights_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Flight& flight = flights_[index];
  flight.from = from;
  flight.to = way.to;
  flight.marked = marked;
  flight.bytes.assign(frame.begin(), frame.end());
  if (random_.chance(link_.corruption)) {
    ++stats_.corrupted;
    const std::uint64_t flips = 1 + random_.below(3);
    for (std::uint64_t i = 0; i < flips; ++i) {
      flight.bytes[random_.below(frame.size())] ^= static_cast<std::byte>(1u << random_.below(8));
    }
    trace_.line(now, "net      {} -> {} corrupts {} bits of a frame", from, way.to, flips);
  }
  trace_.mix(arrives, 4, from, way.to, frame.size());
  // What comes in order needs one event for each port, however much is on the way.
  if (port.frames.empty() || arrives >= port.frames.back().time) {
    if (port.frames.empty()) events_.push(arrives, QueuedEvent::Kind::kPort, way.to);
    port.frames.push_back({arrives, index});
  } else {
    events_.push(arrives, QueuedEvent::Kind::kArrival, index);
  }
}

std::uint32_t Network::take_port(HostId host) {
  Port& port = ports_[host];
  const std::uint32_t index = port.frames.front().flight;
  port.frames.pop_front();
  if (!port.frames.empty()) {
    events_.push(port.frames.front().time, QueuedEvent::Kind::kPort, host);
  }
  return index;
}

void Network::heal() {
  for (auto& edges : edges_) {
    for (Edge& each : edges) {
      each.down = false;
      each.loss = 0;
      each.delay_ns = 0;
      each.most_bytes = SIZE_MAX;
      each.clogged_until = 0;
      each.burst_until = 0;
    }
  }
}

}  // namespace gradwire::sim
