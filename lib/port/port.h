// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One ethdev port: found by its device name, examined, given a queue pair for each lane, started.
/// The control thread opens, starts and closes it; a lane uses its own queue pair only. open() and
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

#include "base/fault_settings.h"
#include "base/result.h"
#include "base/sections.h"
#include "base/types.h"
#include "ipc/unique_fd.h"
#include "port/driver_table.h"
#include "port/memif/memif_client.h"
#include "port/memif/memif_queues.h"
#include "port/neighbors/routes.h"
#include "wire/frame.h"

struct rte_eth_dev_info;
struct rte_mbuf;

namespace gradwire::port {

struct PortConfig {
  PortConfig() : PortConfig(PortSection{}) {}
  /// All that needs no address to be parsed.
  explicit PortConfig(const PortSection& keys)
      : device(keys.device),
        rail(keys.rail),
        mtu(static_cast<std::uint32_t>(keys.mtu)),
        rate_bps(static_cast<std::uint64_t>(keys.rate_gbps * 1e9)),
        rx_descriptors(static_cast<std::uint16_t>(keys.rx_descriptors)),
        tx_descriptors(static_cast<std::uint16_t>(keys.tx_descriptors)) {
    if (keys.vlan != 0) vlan_id = static_cast<std::uint16_t>(keys.vlan);
  }

  std::string device;  ///< "net_memif0", "eth_af_packet0", "0000:01:00.0"
  wire::IpAddress ip;
  int prefix_bits = 24;
  /// To hosts outside of the port's network; empty: they cannot be reached.
  std::vector<Route> routes;
  /// Ports with the same rail are paired; if empty, ports of the same network are.
  std::string rail;
  std::optional<std::uint16_t> vlan_id;
  std::uint32_t mtu = 0;       ///< bytes of an IP packet; 0 = as large as the port carries
  std::uint64_t rate_bps = 0;  ///< on the wire, over all lanes and groups; 0 = not paced
  std::uint16_t rx_descriptors = 0;
  std::uint16_t tx_descriptors = 0;
  FaultSettings faults;  ///< from the first frame on; changed by RequestType::kSetFaults
  friend bool operator==(const PortConfig&, const PortConfig&) = default;
};

/// How a port was configured.
struct PortSetup {
  std::uint16_t queues = 0;
  std::uint16_t rx_descriptors = 0;
  std::uint16_t tx_descriptors = 0;
  // Offloads are used only if payloads go to a GPU's memory, and for UDP's checksum over IPv6.
  // Otherwise frames are one segment, checksums are computed once per neighbor, and MBUF_FAST_FREE
  // would be wrong, since sent mbufs have other owners.
  std::uint64_t rx_offloads = 0;
  std::uint64_t tx_offloads = 0;
  wire::UdpSum udp_sum = wire::UdpSum::kCpu;  ///< over IPv6
  std::string udp_sum_refusal;  ///< why the driver, which offers it, does not compute it over IPv6
  bool flow_steering = false;   ///< rte_flow rules bring packets to their lane
  bool splits_payload = false;  ///< puts payloads into separate mempools in a GPU's memory
};

/// What the device reported and how it was configured, for the operator.
struct PortReport : PortSetup {
  std::string device;
  std::string driver;
  std::string link;  ///< as the driver says: "up 100 Gbit/s full duplex"
  wire::MacAddress mac{};
  std::uint32_t mtu = 0;
  std::uint32_t frame_bytes = 0;
  int numa_node = -1;
  std::uint16_t joined_queues = 0;  ///< fewer if a memif peer has fewer
  bool rx_interrupts = false;       ///< enabled, so that a packet wakes a sleeping lane
  /// Of the interface below an AF_XDP port, if there are several and a hash chooses one: the port
  /// receives by the first. Else 0.
  std::uint32_t hashed_queues = 0;
  bool ipv6 = false;
  std::uint8_t rx_copies = 0;  ///< of each byte
  std::uint8_t tx_copies = 0;
};

/// What the driver counts; 0 if it does not count it.
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
  /// Finds and examines the device; changes nothing yet.
  [[nodiscard]] static Result<std::unique_ptr<Port>> open(const PortConfig& config);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// Sets up one queue pair for each of `pools`: lane i uses queue i and receives into pools[i],
  /// whose data room is at least the buffer_bytes of the frame limits. Lane i's UDP port is
  /// `base_udp_port` + i. If a memif client's server does not listen yet, tend() starts the port as
  /// soon as it does.
  /// @param payload_pools one for each queue, for payloads, while headers go to `pools`. Empty:
  /// frames are received whole.
  [[nodiscard]] Result<void> start(std::span<rte_mempool* const> pools, std::uint16_t base_udp_port,
                                   std::span<rte_mempool* const> payload_pools = {});
  void stop() noexcept;

  /// A lane asks every round, and does not touch a port that is not running.
  [[nodiscard]] bool is_running() const noexcept {
    return running_.load(std::memory_order_acquire);
  }
  /// A lane asks every round whether it may call the driver's bursts for its queue. DPDK 22.11's
  /// memif driver computes where a queue's ring lies before it checks whether the link is up, and
  /// meanwhile the interrupt thread may map that ring. A lane that is preempted between the two
  /// would read near address zero. The driver reports the link as up last of all, so until then the
  /// lane does not touch the port; nor does it ever touch a queue that the peer has not joined.
  [[nodiscard]] bool takes_bursts(std::uint16_t queue) const noexcept {
    if (!is_running()) return false;
    if (!row_->bursts_need_link) return true;
    return link_up() && (queue == 0 || memif_queues_.joined(queue));
  }
  /// Whether a packet can end a lane's sleep. Of a memif port it is known while it runs.
  [[nodiscard]] bool can_interrupt() const noexcept {
    return interrupts_ || wake_socket_ >= 0 || (is_running() && memif_queues_.can_interrupt());
  }
  /// If so, by the kernel's socket: for the kernel each packet that wakes is work, which takes time
  /// from whoever sends it.
  [[nodiscard]] bool wakes_by_socket() const noexcept { return wake_socket_ >= 0; }
  /// The lane of the queue, before it sleeps. Then it has to look for packets once more.
  /// @return the file that a packet makes readable; -1 if none does. That of a memif port is
  /// another one after each connection.
  [[nodiscard]] int enable_interrupt(std::uint16_t queue) const noexcept;
  /// The same lane, after it has slept.
  void disable_interrupt(std::uint16_t queue) const noexcept;
  /// Control thread, every few milliseconds: looks after the link of a memif port (other ports need
  /// nothing). If a client's link is down, it makes the lanes leave the port alone, and restarts it
  /// when its server listens. It tells if the peer has fewer queues.
  /// @param lane_rounds  how many rounds each lane has made: after two more it leaves the port
  /// alone
  /// @return what happened, for the log; empty if nothing did.
  [[nodiscard]] std::string tend(TimeNs now, std::span<const std::uint64_t> lane_rounds);
  /// How many of its queue pairs a peer has joined; all if its link is down, or is no memif.
  [[nodiscard]] std::uint16_t joined_queues() const noexcept;

  /// For a caller that uses queue 0 alone, without a lane. @return how many were received.
  [[nodiscard]] std::uint16_t receive(std::span<rte_mbuf*> out) const noexcept;
  /// Likewise. @return how many of `mbufs`, from the front, the driver took.
  [[nodiscard]] std::uint16_t transmit(std::span<rte_mbuf*> mbufs) const noexcept;

  [[nodiscard]] const PortConfig& config() const noexcept { return config_; }
  [[nodiscard]] const DriverRow& row() const noexcept { return *row_; }
  [[nodiscard]] const FrameLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] const wire::MacAddress& mac() const noexcept { return mac_; }
  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  /// Who computes the UDP checksums of what it sends over IPv6; known once it is started.
  [[nodiscard]] wire::UdpSum udp_sum() const noexcept { return setup_.udp_sum; }
  /// For lanes: frames come in segments, and the CPU must not read payloads.
  [[nodiscard]] bool splits_payload() const noexcept { return setup_.splits_payload; }
  /// NUMA node that mempools for this port belong on; SOCKET_ID_ANY if there is none.
  [[nodiscard]] int socket() const noexcept { return socket_; }
  /// Control thread: whether the kernel sends IP packets of `ip_bytes` to that neighbor. True for
  /// drivers that bypass the kernel, since nothing is known about them.
  [[nodiscard]] bool carries(const wire::MacAddress& neighbor, std::uint32_t ip_bytes) const;
  /// Asks the driver; does not wait.
  [[nodiscard]] bool link_up() const noexcept;
  /// What it may send by its configuration, or else by its link; 0 if the driver does not know.
  [[nodiscard]] std::uint64_t rate_bps() const noexcept;
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
  [[nodiscard]] Result<void> prepare_ipv6(std::uint64_t tx_offload_capa);
  [[nodiscard]] Result<void> check_udp_sum(rte_mempool& pool);
  [[nodiscard]] Result<void> sum_by_cpu();
  void hear_groups();
  void look_at_queues() noexcept;
  [[nodiscard]] std::string tend_client(TimeNs now, std::span<const std::uint64_t> lane_rounds);
  [[nodiscard]] std::string tell_unknown();
  [[nodiscard]] std::string tell_queues();
  [[nodiscard]] Result<void> steer(std::uint16_t queues, std::uint16_t base_udp_port);

  PortConfig config_;
  const DriverRow* row_ = nullptr;
  FrameLimits limits_;
  wire::MacAddress mac_{};
  std::uint16_t id_ = 0;
  unsigned if_index_ = 0;            ///< the kernel's interface that the port uses; 0 = none
  std::uint32_t hashed_queues_ = 0;  ///< as the report's
  int socket_ = -1;
  PortSetup setup_;
  ipc::UniqueFd group_socket_;  ///< holds the memberships of the kernel's interface
  bool interrupts_ = false;     ///< by calls of the driver
  int wake_socket_ = -1;  ///< the driver's, while the port is configured; -1: none that is known
  mutable std::uint64_t dropped_by_kernel_ = 0;  ///< of an af_packet port, as the kernel told
  bool started_ = false;
  std::atomic<bool> running_{false};

  std::optional<MemifClient> client_;  ///< if it is the client's end of a memif link
  const rte_mempool* first_pool_ = nullptr;
  MemifQueues memif_queues_;
  std::uint16_t joined_told_ = 0;  ///< queues, as the log has them
  bool unknown_told_ = false;      ///< that the driver's queues are not known
  TimeNs next_look_ = 0;
};

/// @return the device arguments that the EAL was given, such as "role=server,bsize=9216"; may be
/// empty.
[[nodiscard]] std::string device_arguments(const rte_eth_dev_info& info);

/// Closes every ethdev port of the process, opened here or not, so that what a driver made when the
/// EAL probed it (memif: its socket) is removed. Call it last, when no Port is left and no lane
/// runs.
void close_all_ports() noexcept;

}  // namespace gradwire::port
