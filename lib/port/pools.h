// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The mempools of one lane: packets (received, in transit, sent and not yet acknowledged) and
/// control packets. They are LIFO if the EAL has the "stack" ops, so that the most recently used
/// mbuf, which is still in the cache, is used next. The control thread creates and frees them; the
/// lane uses them.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace gradwire::port {

struct PoolPlan {
  std::uint8_t lane = 0;
  int socket = -1;                    ///< NUMA node; -1 = any
  std::uint32_t buffer_bytes = 2048;  ///< data room without headroom, for every port of the lane
  std::uint32_t packet_mbufs = 0;
  std::uint32_t control_mbufs = 0;
  std::string name_prefix = "gw";  ///< mempool names are unique in a process
};

/// How many mbufs a lane's packet pool needs so that it never runs dry: what its shards can hold,
/// what the ports' descriptors and drivers hold, what waits in its transmit backlogs, and one
/// burst.
struct PacketDemand {
  std::uint32_t shards = 0;
  std::uint32_t mbufs_per_shard = 0;  ///< collective::packet_mbufs_needed()
  std::uint32_t descriptors = 0;      ///< rx and tx of all ports, where they hold mbufs
  std::uint32_t driver_mbufs = 0;     ///< DriverRow::held_mbufs of all ports
  std::uint32_t backlog = 0;          ///< of all ports: TxQueue, and what a FaultStage holds
};
[[nodiscard]] std::uint32_t packet_pool_mbufs(const PacketDemand& demand) noexcept;

class LanePools {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LanePools>> create(const PoolPlan& plan);
  ~LanePools();
  LanePools(const LanePools&) = delete;
  LanePools& operator=(const LanePools&) = delete;

  [[nodiscard]] rte_mempool* packet() const noexcept { return packet_; }
  [[nodiscard]] rte_mempool* control() const noexcept { return control_; }
  /// "stack" or "ring_mp_mc".
  [[nodiscard]] const std::string& ops() const noexcept { return ops_; }

 private:
  LanePools() = default;
  rte_mempool* packet_ = nullptr;
  rte_mempool* control_ = nullptr;
  std::string ops_;
};

/// A pool for the small frames (ARP) that the control thread and the lanes pass to each other. Any
/// thread may use it.
[[nodiscard]] Result<rte_mempool*> make_exchange_pool(const std::string& name_prefix,
                                                      std::uint32_t mbufs);

}  // namespace gradwire::port
