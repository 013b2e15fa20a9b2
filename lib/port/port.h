// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One ethdev port: found by its device name, measured, given a queue pair for each lane, started.
/// The control thread opens, starts and closes; then each lane uses its own queue only. open() and
/// start() allocate.
#pragma once

#include <rte_mempool.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/defaults.h"
#include "base/fault_settings.h"
#include "base/result.h"
#include "base/types.h"
#include "port/driver_table.h"
#include "port/memif_link.h"
#include "port/routes.h"
#include "wire/frame.h"

struct rte_eth_dev_info;
struct rte_mbuf;

namespace gradwire::port {

struct PortConfig {
  std::string device;  ///< "net_memif0", "eth_af_packet0", "0000:01:00.0"
  wire::IpAddress ip;
  int prefix_bits = 24;
  std::vector<Route> routes;  ///< to hosts beyond the port's network; empty: they are not reached
  std::string rail;           ///< ports of one name are neighbours; empty: those of one network are
  std::optional<std::uint16_t> vlan_id;
  std::uint32_t mtu = 0;       ///< bytes of an IP packet; 0 = as large as the port carries
  std::uint64_t rate_bps = 0;  ///< of frames, all lanes and groups together; 0 = not paced
  std::uint16_t rx_descriptors = defaults::kRxDescriptors;
  std::uint16_t tx_descriptors = defaults::kTxDescriptors;
  FaultSettings faults;  ///< from the first frame on; changed by RequestType::kSetFaults
  friend bool operator==(const PortConfig&, const PortConfig&) = default;
};

/// What was found and what was set, for the operator.
struct PortReport {
  std::string device;
  std::string driver;
  std::string link;  ///< as the driver says: "up 100 Gbit/s full duplex"
  wire::MacAddress mac{};
  std::uint32_t mtu = 0;
  std::uint32_t frame_bytes = 0;
  int numa_node = -1;
  std::uint16_t queues = 0;
  std::uint16_t rx_descriptors = 0;
  std::uint16_t tx_descriptors = 0;
  bool rx_interrupts = false;  ///< set up, so that a sleeping lane is woken by a packet
  bool flow_steering = false;  ///< rte_flow rules bring packets to their lane
  std::uint64_t rx_offloads = 0;
  std::uint64_t tx_offloads = 0;
  bool splits_payload = false;  ///< into mempools of their own, in a GPU's memory
  std::uint8_t rx_copies = 0;   ///< of each byte
  std::uint8_t tx_copies = 0;
};

/// What the driver counts; 0 if it does not.
struct PortCounters {
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t rx_missed = 0;  ///< dropped by the NIC: no descriptor was free
  std::uint64_t rx_errors = 0;
  std::uint64_t rx_no_mbuf = 0;
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t tx_errors = 0;
};

class Port {
 public:
  /// Finds and measures; changes nothing yet.
  [[nodiscard]] static Result<std::unique_ptr<Port>> open(const PortConfig& config);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// One queue pair for each of `pools` (lane i uses queue i and receives into pools[i], whose data
  /// room is at least row().frame limit's buffer). Lane i's UDP port is `base_udp_port` + i. A
  /// memif client whose server does not listen yet is started by tend(), when it does.
  /// @param payload_pools  as `pools`: payloads go there, behind headers in `pools`. Empty: frames
  /// are received whole.
  [[nodiscard]] Result<void> start(std::span<rte_mempool* const> pools, std::uint16_t base_udp_port,
                                   std::span<rte_mempool* const> payload_pools = {});
  void stop() noexcept;

  /// Lanes ask every round, and leave a port alone that is not running.
  [[nodiscard]] bool is_running() const noexcept {
    return running_.load(std::memory_order_acquire);
  }
  /// Lanes, every round: whether the driver's bursts may be called. DPDK 22.11's memif driver works
  /// out where a queue's ring lies before it asks whether the link is up, while the interrupt
  /// thread maps that ring. A lane that loses its core between the two reads near address zero. The
  /// driver reports the link as up last of all, so until then the lane leaves the port alone.
  [[nodiscard]] bool takes_bursts() const noexcept {
    return is_running() && (!row_->bursts_need_link || link_up());
  }
  /// Control thread, every few milliseconds: looks after the link of a memif client (other ports
  /// need nothing). If the link is down the port is taken out of the lanes' hands, and started
  /// anew when its server listens.
  /// @param lane_rounds  how many rounds each lane has made: after two more it leaves the port
  /// alone
  /// @return what happened, for the log; empty if nothing did.
  [[nodiscard]] std::string tend(TimeNs now, std::span<const std::uint64_t> lane_rounds);

  /// For one who has queue 0 to himself, without a lane. @return how many were received.
  [[nodiscard]] std::uint16_t receive(std::span<rte_mbuf*> out) const noexcept;
  /// Likewise. @return how many of `mbufs`, from the front, the driver took.
  [[nodiscard]] std::uint16_t transmit(std::span<rte_mbuf*> mbufs) const noexcept;

  [[nodiscard]] const PortConfig& config() const noexcept { return config_; }
  [[nodiscard]] const DriverRow& row() const noexcept { return *row_; }
  [[nodiscard]] const FrameLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] const wire::MacAddress& mac() const noexcept { return mac_; }
  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  /// Lanes: frames come in segments, and payloads are not for the CPU to read.
  [[nodiscard]] bool splits_payload() const noexcept { return splits_payload_; }
  /// NUMA node that mempools for this port belong on; SOCKET_ID_ANY if there is none.
  [[nodiscard]] int socket() const noexcept { return socket_; }
  /// Control thread: whether the kernel sends IP packets of so many bytes to that neighbour. Of
  /// drivers beside the kernel nothing is known, and true.
  [[nodiscard]] bool carries(const wire::MacAddress& neighbour, std::uint32_t ip_bytes) const;
  /// Asks the driver; does not wait.
  [[nodiscard]] bool link_up() const noexcept;
  [[nodiscard]] PortReport report() const;
  /// Control thread.
  [[nodiscard]] PortCounters counters() const noexcept;

 private:
  Port() = default;
  void beside_no_interrupt(const std::function<void()>& work) const;
  [[nodiscard]] Result<void> configure(std::uint16_t queues, bool interrupts);
  /// @param payload_pool  nullptr: frames are received whole.
  [[nodiscard]] Result<void> set_up_rx(std::uint16_t queue, const void* defaults, rte_mempool* pool,
                                       rte_mempool* payload_pool);
  [[nodiscard]] Result<void> steer(std::uint16_t queues, std::uint16_t base_udp_port);

  PortConfig config_;
  const DriverRow* row_ = nullptr;
  FrameLimits limits_;
  wire::MacAddress mac_{};
  std::uint16_t id_ = 0;
  unsigned if_index_ = 0;  ///< of the kernel's interface below it; 0 = none
  int socket_ = -1;
  std::uint16_t queues_ = 0;
  std::uint16_t rx_descriptors_ = 0;
  std::uint16_t tx_descriptors_ = 0;
  // None, but for payloads of their own: else frames are one segment, checksums are made once per
  // neighbour, and MBUF_FAST_FREE is forbidden, since sent mbufs have other owners.
  std::uint64_t rx_offloads_ = 0;
  std::uint64_t tx_offloads_ = 0;
  bool interrupts_ = false;
  bool flow_steering_ = false;
  bool splits_payload_ = false;
  bool started_ = false;
  std::atomic<bool> running_{false};

  enum class Link : std::uint8_t {
    kWatched,    ///< started; lanes use it
    kReleasing,  ///< lanes are to leave it alone
    kWaiting,    ///< stopped: nobody listens
  };
  std::optional<MemifEnd> client_end_;
  Link link_ = Link::kWatched;
  TimeNs link_since_ = 0;  ///< in this state
  TimeNs link_down_since_ = kNever;
  TimeNs next_look_ = 0;
  std::vector<std::uint64_t> rounds_at_release_;
};

/// @return what the EAL was told of the device, as in "role=server,bsize=9216"; empty if
/// nothing.
[[nodiscard]] std::string device_arguments(const rte_eth_dev_info& info);

/// Closes every ethdev port of the process, opened here or not, the last thing before it ends: what
/// a driver made when the EAL probed it (memif: its socket) goes with it. No Port is left and no
/// lane runs.
void close_all_ports() noexcept;

}  // namespace gradwire::port
