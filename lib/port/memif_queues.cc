// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif_queues.h"

#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace gradwire::port {
namespace {

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

}  // namespace gradwire::port
