// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What DPDK's memif driver knows and does not tell; this reads what it keeps, and only if all that
/// can be known otherwise stands there. What differs between releases is searched for
/// (memif_layout.h): 22.11, 24.11 with and without the change of 24.11.5, 25.11.
///
/// How many queues are joined with the peer's. If the peer has fewer, the driver leaves the others
/// as they are, with the place of the first queue's ring: whoever polls or sends by one of them
/// takes packets from that ring, or frees places in it that are still in use.
///
/// Receive interrupts. memif has them: each ring has an eventfd, to which the sender writes after a
/// burst unless the receiver has masked it in the ring. The driver heeds this when it sends, but it
/// masks all that it receives by and has no call to change that.
///
/// of(): control thread, calls the kernel. joined(): any thread; no call waits, allocates or calls
/// the kernel.
#pragma once

#include <rte_mempool.h>

#include <cstddef>
#include <cstdint>

namespace gradwire::port {

class MemifQueues {
 public:
  /// Knows nothing.
  MemifQueues() = default;
  /// @param port_id  started at least once, and not closed as long as the object is used.
  /// @param queues  queue pairs that it was configured with.
  /// @param pool  of its first receive queue.
  [[nodiscard]] static MemifQueues of(std::uint16_t port_id, std::uint16_t queues,
                                      const rte_mempool* pool, bool is_client) noexcept;

  [[nodiscard]] bool known() const noexcept { return queues_ != 0; }
  /// Whether that queue pair is joined; also if it is not known.
  [[nodiscard]] bool joined(std::uint16_t queue) const noexcept;
  /// How many queue pairs are joined, from the first on; 0 while there is no peer. UINT16_MAX if it
  /// is not known.
  [[nodiscard]] std::uint16_t joined() const noexcept;

  /// Whether unmask() can work.
  [[nodiscard]] bool can_interrupt() const noexcept { return memory_ != nullptr; }
  /// The lane of the queue, which is joined: from now on each burst that the peer sends by it ends
  /// in a write to interrupt_fd(). The peer may miss this if it sends at the same moment.
  /// @return whether that is so.
  bool unmask(std::uint16_t queue) const noexcept;
  /// The peer writes no more.
  void mask(std::uint16_t queue) const noexcept;
  /// The driver's; another one for each connection.
  [[nodiscard]] int interrupt_fd(std::uint16_t queue) const noexcept;

 private:
  void** rx_ = nullptr;  ///< the driver's
  void** tx_ = nullptr;
  const void* memory_ = nullptr;  ///< what the driver keeps of the memory shared with the peer
  std::size_t bell_at_ = 0;       ///< where a queue has its interrupt handle
  std::uint16_t queues_ = 0;
};

}  // namespace gradwire::port
