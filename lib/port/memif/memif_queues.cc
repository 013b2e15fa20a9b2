// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_queues.h"

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <string_view>

namespace gradwire::port {
namespace {

/// What librte_ethdev of DPDK 22.11 keeps for a port (ethdev_driver.h, rte_eth_dev), up to what is
/// read here, and its size.
struct EthDev {
  eth_rx_burst_t receive;
  eth_tx_burst_t send;
  const void* other_calls[4];
  const char* data;  ///< begins with the port's name
  void* driver;
  const void* unused[5 + 2 * RTE_MAX_QUEUES_PER_PORT];
  std::uint32_t state;
  const void* security;
} __rte_cache_aligned;

/// What drivers/net/memif keeps for a port of this process (pmd_process_private), and the memory
/// that it shares with the peer (memif_region). Both up to what is read here.
struct Region {
  std::byte* at;
};
struct PortMemory {
  Region* regions[256];
};
/// A ring in that memory (memif.h, memif_ring_t).
struct Ring {
  std::uint32_t cookie;
  std::uint16_t flags;
};
constexpr std::uint32_t kCookie = 0x3e31f20;
constexpr std::uint16_t kMasked = 1;

/// What drivers/net/memif of DPDK 22.11 keeps for a queue, up to what is read here
/// (rte_eth_memif.h, memif_queue).
struct Queue {
  const rte_mempool* pool;  ///< of a receive queue
  const void* unused;
  std::uint32_t direction;  ///< 0 = from the client to the server
  std::uint16_t region;
  std::uint16_t port_id;
  std::uint32_t ring_offset;
  std::uint16_t last_head;
  std::uint16_t last_tail;
  const void* buffers;
  std::uint64_t packets;
  std::uint64_t bytes;
  const rte_intr_handle* bell;  ///< without a file as long as the queue is not joined
};

const Queue* queue_at(void** queues, std::uint16_t index) noexcept {
  return static_cast<const Queue*>(queues[index]);
}

bool is_joined(const Queue& queue) noexcept { return rte_intr_fd_get(queue.bell) >= 0; }

}  // namespace

extern "C" {
// Not in DPDK's public headers. Weak, since another release may not have it.
extern __attribute__((weak)) EthDev rte_eth_devices[];
}

namespace {

/// @return nullptr if this DPDK is not as it is known here.
const EthDev* find_port(std::uint16_t port_id) noexcept {
  if (rte_eth_devices == nullptr || !std::string_view(rte_version()).starts_with("DPDK 22.11")) {
    return nullptr;
  }
  const EthDev& port = rte_eth_devices[port_id];
  std::array<char, RTE_ETH_NAME_MAX_LEN> name{};
  const bool same = port.receive == rte_eth_fp_ops[port_id].rx_pkt_burst &&
                    port.send == rte_eth_fp_ops[port_id].tx_pkt_burst && port.data != nullptr &&
                    port.driver != nullptr &&
                    rte_eth_dev_get_name_by_port(port_id, name.data()) == 0 &&
                    std::string_view(name.data()) == port.data;
  return same ? &port : nullptr;
}

Ring* ring_of(const EthDev& port, const Queue& queue) noexcept {
  const Region* region = static_cast<const PortMemory*>(port.driver)->regions[queue.region];
  if (region == nullptr || region->at == nullptr) return nullptr;
  auto* ring = reinterpret_cast<Ring*>(region->at + queue.ring_offset);
  return ring->cookie == kCookie ? ring : nullptr;
}

}  // namespace

MemifQueues MemifQueues::of(std::uint16_t port_id, std::uint16_t queues, const rte_mempool* pool,
                            bool is_client) noexcept {
  const auto& port = rte_eth_fp_ops[port_id];
  const auto is_one = [&](const Queue* queue, bool receives) {
    return queue != nullptr && queue->port_id == port_id && queue->bell != nullptr &&
           queue->unused == nullptr && queue->direction == (receives == is_client ? 1 : 0);
  };
  if (port.rxq.data == nullptr || port.txq.data == nullptr) return {};
  for (std::uint16_t i = 0; i < queues; ++i) {
    if (!is_one(queue_at(port.rxq.data, i), true) || !is_one(queue_at(port.txq.data, i), false)) {
      return {};
    }
  }
  if (queue_at(port.rxq.data, 0)->pool != pool) return {};
  MemifQueues known;
  known.rx_ = port.rxq.data;
  known.tx_ = port.txq.data;
  known.queues_ = queues;
  known.port_ = find_port(port_id);
  return known;
}

bool MemifQueues::joined(std::uint16_t queue) const noexcept {
  if (!known()) return true;
  return queue < queues_ && is_joined(*queue_at(rx_, queue)) && is_joined(*queue_at(tx_, queue));
}

std::uint16_t MemifQueues::joined() const noexcept {
  if (!known()) return std::numeric_limits<std::uint16_t>::max();
  std::uint16_t count = 0;
  while (count < queues_ && joined(count)) ++count;
  return count;
}

bool MemifQueues::unmask(std::uint16_t queue) const noexcept {
  Ring* ring = ring_of(*static_cast<const EthDev*>(port_), *queue_at(rx_, queue));
  if (ring == nullptr) return false;
  std::atomic_ref(ring->flags).store(0, std::memory_order_seq_cst);
  return true;
}

void MemifQueues::mask(std::uint16_t queue) const noexcept {
  Ring* ring = ring_of(*static_cast<const EthDev*>(port_), *queue_at(rx_, queue));
  if (ring != nullptr) std::atomic_ref(ring->flags).store(kMasked, std::memory_order_relaxed);
}

int MemifQueues::interrupt_fd(std::uint16_t queue) const noexcept {
  return rte_intr_fd_get(queue_at(rx_, queue)->bell);
}

}  // namespace gradwire::port
