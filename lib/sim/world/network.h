// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The simulated network: hosts on one switch, each behind a port with a rate, a queue and an ECN
/// threshold, and between each two hosts an edge with a delay and faults of its own in each
/// direction. It carries copies of frames; what is on the way belongs to it. Everything random
/// comes from the generator that it is given. One thread; it grows as needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/types.h"
#include "sim/random.h"
#include "sim/trace.h"
#include "sim/world/event_queue.h"

namespace gradwire::sim {

using HostId = std::uint16_t;

/// What happens to a frame on its way from one host to another.
struct LinkProfile {
  TimeNs delay_ns = 5'000;
  TimeNs jitter_ns = 0;  ///< uniform; above the spacing of packets it reorders
  double loss = 0;
  double burst_start = 0;  ///< for each frame: everything is lost from then on ...
  TimeNs burst_ns = 0;     ///< ... for so long in the mean
  double duplication = 0;
  double corruption = 0;  ///< 1 to 3 bits, anywhere in the frame
  double reorder = 0;     ///< so many are late ...
  TimeNs reorder_ns = 0;  ///< ... by up to this
};

/// The way into a host: a queue of the switch.
struct PortProfile {
  std::uint64_t rate_bps = 0;     ///< 0 = without limit
  std::uint64_t queue_bytes = 0;  ///< more is dropped; 0 = without limit
  std::uint64_t mark_bytes = 0;   ///< frames that meet so much are marked CE; 0 = none
};

struct NetworkStats {
  std::uint64_t frames = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t lost = 0;
  std::uint64_t cut = 0;       ///< at an edge that is down
  std::uint64_t overflow = 0;  ///< at a full queue
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t late = 0;
  std::uint64_t marked = 0;
};

/// A frame on its way.
struct Flight {
  HostId from = 0;
  HostId to = 0;
  bool marked = false;  ///< CE
  std::vector<std::byte> bytes;
};

class Network {
 public:
  Network(std::size_t hosts, const LinkProfile& link, const PortProfile& port, Random& random,
          EventQueue& events, Trace& trace);

  /// Takes a copy of the frame, which is `wire_bytes` long on the wire.
  void send(TimeNs now, HostId from, HostId to, std::span<const std::byte> frame,
            std::uint32_t wire_bytes);
  /// Other traffic into a host's port: it fills the queue and takes its share of the rate.
  void cross_traffic(TimeNs now, HostId to, std::uint32_t wire_bytes);
  /// Of an event kArrival: the flight. Of kPort: the oldest at the port, and the next is scheduled.
  /// Hold it until release().
  [[nodiscard]] std::uint32_t take_port(HostId host);
  [[nodiscard]] Flight& flight(std::uint32_t index) { return flights_[index]; }
  void release(std::uint32_t index) { free_.push_back(index); }

  void set_link(const LinkProfile& link) { link_ = link; }
  [[nodiscard]] const LinkProfile& link() const { return link_; }
  void set_rate(HostId host, std::uint64_t rate_bps) { ports_[host].profile.rate_bps = rate_bps; }
  void set_down(HostId from, HostId to, bool down) { edge(from, to).down = down; }
  /// In addition to the link's.
  void set_loss(HostId from, HostId to, double loss) { edge(from, to).loss = loss; }
  void set_delay(HostId from, HostId to, TimeNs delay_ns) { edge(from, to).delay_ns = delay_ns; }
  /// Longer frames are lost, as where a path's MTU is too small.
  void set_most_bytes(HostId from, HostId to, std::size_t bytes) {
    edge(from, to).most_bytes = bytes;
  }
  /// Nothing arrives before `until`; then everything at once.
  void clog(HostId from, HostId to, TimeNs until) { edge(from, to).clogged_until = until; }
  /// Every edge is up and clear; what is lost by chance goes on being lost.
  void heal();

  [[nodiscard]] std::uint64_t queued_bytes(HostId host, TimeNs now) const;
  [[nodiscard]] std::uint64_t most_queued_bytes(HostId host) const {
    return ports_[host].most_queued_bytes;
  }
  void forget_most_queued() {
    for (Port& port : ports_) port.most_queued_bytes = 0;
  }
  [[nodiscard]] const NetworkStats& stats() const { return stats_; }

 private:
  struct Edge {
    HostId to = 0;
    bool down = false;
    double loss = 0;
    TimeNs delay_ns = 0;
    std::size_t most_bytes = SIZE_MAX;
    TimeNs burst_until = 0;
    TimeNs clogged_until = 0;
  };
  struct Waiting {
    TimeNs time;
    std::uint32_t flight;
  };
  struct Port {
    PortProfile profile;
    TimeNs busy_until = 0;
    std::uint64_t most_queued_bytes = 0;
    std::deque<Waiting> frames;  ///< in the order of their arrival
  };

  [[nodiscard]] Edge& edge(HostId from, HostId to);
  [[nodiscard]] bool is_lost(TimeNs now, Edge& edge);
  /// Time at which the frame has left the port's queue; kNever where that is full.
  [[nodiscard]] TimeNs pass_port(Port& port, TimeNs now, std::uint32_t wire_bytes, bool& marked);
  void carry(TimeNs now, Edge& edge, HostId from, std::span<const std::byte> frame,
             std::uint32_t wire_bytes);

  LinkProfile link_;
  Random& random_;
  EventQueue& events_;
  Trace& trace_;
  std::vector<std::vector<Edge>> edges_;  ///< [from], those that were used
  std::vector<Port> ports_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;
  NetworkStats stats_;
};

}  // namespace gradwire::sim
