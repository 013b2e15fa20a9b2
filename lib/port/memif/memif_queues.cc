// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_queues.h"

#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>

#include "port/memif/memif_layout.h"

namespace gradwire::port {
namespace {

/// What drivers/net/memif keeps for a port of this process (pmd_process_private), and the memory
/// that it shares with the peer (memif_region). Both up to what is read here.
struct Region {
  std::byte* at;
};
struct PortMemory {
  Region* regions[256];
};
/// A ring in that memory (memif.h, memif_ring_t), by memif's protocol.
struct Ring {
  std::uint32_t cookie;
  std::uint16_t flags;
};
constexpr std::uint32_t kCookie = 0x3e31f20;
constexpr std::uint16_t kMasked = 1;

/// What drivers/net/memif keeps for a queue (rte_eth_memif.h, memif_queue), up to where releases
/// begin to differ. Behind that there is an interrupt handle, without a file as long as the queue
/// is not joined.
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
};

const Queue* queue_at(void** queues, std::uint16_t index) noexcept {
  return static_cast<const Queue*>(queues[index]);
}

int bell_fd(const Queue& queue, std::size_t bell_at) noexcept {
  const auto* const at = reinterpret_cast<const std::byte*>(&queue) + bell_at;
  return rte_intr_fd_get(*reinterpret_cast<const rte_intr_handle* const*>(at));
}

Ring* ring_of(const void* memory, const Queue& queue) noexcept {
  const Region* region = static_cast<const PortMemory*>(memory)->regions[queue.region];
  if (region == nullptr || region->at == nullptr) return nullptr;
  auto* ring = reinterpret_cast<Ring*>(region->at + queue.ring_offset);
  return ring->cookie == kCookie ? ring : nullptr;
}

}  // namespace

MemifQueues MemifQueues::of(std::uint16_t port_id, std::uint16_t queues, const rte_mempool* pool,
                            bool is_client) noexcept {
  const auto& port = rte_eth_fp_ops[port_id];
  const auto is_one = [&](const Queue* queue, bool receives) {
    return queue != nullptr && queue->port_id == port_id && queue->unused == nullptr &&
           queue->direction == (receives == is_client ? 1 : 0);
  };
  if (port.rxq.data == nullptr || port.txq.data == nullptr || queues == 0) return {};
  for (std::uint16_t i = 0; i < queues; ++i) {
    if (!is_one(queue_at(port.rxq.data, i), true) || !is_one(queue_at(port.txq.data, i), false)) {
      return {};
    }
  }
  if (queue_at(port.rxq.data, 0)->pool != pool) return {};
  const auto bell_at = find_bell(queue_at(port.rxq.data, 0), sizeof(Queue));
  if (!bell_at) return {};
  for (std::uint16_t i = 0; i < queues; ++i) {
    if (find_bell(queue_at(port.rxq.data, i), sizeof(Queue)) != bell_at ||
        find_bell(queue_at(port.txq.data, i), sizeof(Queue)) != bell_at) {
      return {};
    }
  }
  MemifQueues known;
  known.rx_ = port.rxq.data;
  known.tx_ = port.txq.data;
  known.queues_ = queues;
  known.bell_at_ = *bell_at;
  known.memory_ = find_process_private(port_id);
  return known;
}

bool MemifQueues::joined(std::uint16_t queue) const noexcept {
  if (!known()) return true;
  return queue < queues_ && bell_fd(*queue_at(rx_, queue), bell_at_) >= 0 &&
         bell_fd(*queue_at(tx_, queue), bell_at_) >= 0;
}

std::uint16_t MemifQueues::joined() const noexcept {
  if (!known()) return std::numeric_limits<std::uint16_t>::max();
  std::uint16_t count = 0;
  while (count < queues_ && joined(count)) ++count;
  return count;
}

bool MemifQueues::unmask(std::uint16_t queue) const noexcept {
  Ring* ring = ring_of(memory_, *queue_at(rx_, queue));
  if (ring == nullptr) return false;
  std::atomic_ref(ring->flags).store(0, std::memory_order_seq_cst);
  return true;
}

void MemifQueues::mask(std::uint16_t queue) const noexcept {
  Ring* ring = ring_of(memory_, *queue_at(rx_, queue));
  if (ring != nullptr) std::atomic_ref(ring->flags).store(kMasked, std::memory_order_relaxed);
}

int MemifQueues::interrupt_fd(std::uint16_t queue) const noexcept {
  return bell_fd(*queue_at(rx_, queue), bell_at_);
}

}  // namespace gradwire::port
