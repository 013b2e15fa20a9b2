// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How many queues of a memif port are joined with the peer's. If the peer has fewer, DPDK 22.11's
/// driver leaves the others as they are, with the place of the first queue's ring: whoever polls or
/// sends by one of them takes packets from that ring, or frees places in it that are still in use.
/// No call of DPDK tells how many are joined, so this reads what the driver keeps. It does so only
/// if all that can be known otherwise stands where DPDK 22.11 has it.
///
/// of(): control thread. joined(): any thread; no call waits, allocates or calls the kernel.
#pragma once

#include <rte_mempool.h>

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

 private:
  void** rx_ = nullptr;  ///< the driver's
  void** tx_ = nullptr;
  std::uint16_t queues_ = 0;
};

}  // namespace gradwire::port
