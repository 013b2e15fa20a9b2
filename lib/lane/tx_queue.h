// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Frames to be sent by one queue of a port, in order: a bounded backlog before rte_eth_tx_burst.
/// Frames that a full port refuses wait here, and the room that is left limits what shards may
/// send. One lane owns it; nothing here allocates.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "lane/counters.h"
#include "lane/tx_trace.h"
#include "wire/frame.h"

namespace gradwire::lane {

/// What a frame still needs when it comes to a queue.
struct TxCompletion {
  enum class Kind : std::uint8_t {
    kNone,        ///< nothing: IPv4, and no other port of the lane leaves marks in mbufs
    kClearMarks,  ///< IPv4: what a port over IPv6 asked its NIC for must not be asked of this one
    kIpv6,
  };
  Kind kind = Kind::kNone;
  wire::UdpSum by = wire::UdpSum::kCpu;
  bool vlan = false;
};

class TxQueue {
 public:
  static constexpr std::size_t kCapacity = 256;
  /// If a port takes no frame for this long (perhaps its peer is gone), the waiting frames are
  /// freed: they are stale, the transport retransmits, and the mbufs are needed elsewhere.
  static constexpr TimeNs kStall = 50'000'000;
  /// A port that has taken nothing for kSlow is not merely full, so it is tried only every kRetry:
  /// with af_packet each try is a system call, in which the kernel may retry hundreds of frames.
  static constexpr TimeNs kSlow = 1'000'000;
  static constexpr TimeNs kRetry = 100'000;

  TxQueue() = default;
  TxQueue(std::uint16_t port_id, std::uint16_t queue_id, std::uint16_t burst,
          TxCompletion completion = {}) noexcept
      : port_id_(port_id), queue_id_(queue_id), burst_(burst), completion_(completion) {}

  [[nodiscard]] std::size_t room() const noexcept { return kCapacity - count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Takes the mbufs. There must be room() for them.
  /// @return their bytes.
  std::uint64_t push(std::span<rte_mbuf* const> frames) noexcept;
  void push(rte_mbuf* frame) noexcept { push({&frame, 1}); }
  /// Gives the port what it takes. A port whose link is down takes nothing, and is not asked.
  /// @return whether it took any.
  bool flush(TimeNs now, bool link_up, LaneCounters& counters, TxTrace& trace) noexcept;
  /// Whether the port has taken nothing for so long that it is not merely full.
  [[nodiscard]] bool stalls(TimeNs now) const noexcept {
    return stalled_since_ != kNever && now - stalled_since_ >= kSlow;
  }
  /// Frees what waits. @return how many frames that were.
  std::size_t clear() noexcept;

 private:
  void complete(rte_mbuf* frame) const noexcept;

  std::array<rte_mbuf*, kCapacity> frames_{};
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  std::uint16_t port_id_ = 0;
  std::uint16_t queue_id_ = 0;
  std::uint16_t burst_ = 32;
  TxCompletion completion_;
  TimeNs stalled_since_ = kNever;
  TimeNs next_try_ = 0;  // while the port stalls
};

}  // namespace gradwire::lane
