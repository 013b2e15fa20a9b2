// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The rings between the control thread and the lanes, and among the lanes. Values that fit a ring
/// element travel in it; requests and frames travel as pointers. The control thread makes them
/// (lane/datapath.h); each ring has one kind of producer and one consumer.
#pragma once

#include <rte_mempool.h>
#include <rte_ring.h>

#include <cstdint>
#include <type_traits>

#include "base/abort_reason.h"
#include "base/types.h"
#include "collective/shard.h"
#include "command/messages.h"
#include "command/wake_bell.h"

namespace gradwire::command {

/// How many ops of a group can be open at once; a member has at most one command for each.
inline constexpr std::uint32_t kOpSlots = 256;
static_assert(kOpSlots >= ipc::kOpCommands && (kOpSlots & (kOpSlots - 1)) == 0);

/// Command lane -> lane: every op of the group up to `op_seq` may be posted. Cumulative.
struct LaneOps {
  std::uint64_t group_handle = 0;
  std::uint64_t op_seq = 0;
  const collective::OpSpec* specs = nullptr;  ///< [kOpSlots], op n at n % kOpSlots; valid until the
                                              ///< lane reported the op done or its shard closed
};

/// Command lane -> lane: a transfer that may be posted.
struct LaneTransfer {
  std::uint64_t group_handle = 0;
  const collective::TransferSpec* spec = nullptr;  ///< valid until the lane reported it done or its
                                                   ///< shard closed
};

/// Lane -> command lane.
struct LaneReport {
  std::uint64_t group_handle = 0;
  std::uint64_t op_seq = 0;  ///< kOpDone; kTransferDone, kTransferSized: the transfer's id
  collective::EventType type = collective::EventType::kOpDone;
  std::uint8_t lane = 0;
  AbortReason reason;       ///< kAborted, kClosed
  std::uint64_t bytes = 0;  ///< kTransferSized
};

/// The rings of one lane.
struct LaneRings {
  rte_ring* requests = nullptr;   ///< control -> lane: Request*
  rte_ring* frames = nullptr;     ///< control -> lane: rte_mbuf* of the exchange pool; mbuf->port
                                  ///< is the index of the port in the lane
  rte_ring* ops = nullptr;        ///< command lane -> lane: LaneOps
  rte_ring* transfers = nullptr;  ///< command lane -> lane: LaneTransfer
  WakeBell* bell = nullptr;
};

/// The rings that all lanes of a daemon share.
struct SharedRings {
  rte_ring* notices = nullptr;          ///< lanes -> control: Notice
  rte_ring* reports = nullptr;          ///< lanes -> command lane: LaneReport
  rte_ring* neighbor_frames = nullptr;  ///< lanes -> control: rte_mbuf*; port as above
  rte_mempool* exchange_pool = nullptr;
  WakeBell* control_bell = nullptr;
  WakeBell* command_bell = nullptr;  ///< lane 0's
};

/// rte_ring elements are copied in words of four bytes.
template <class T>
inline constexpr bool kFitsRing = std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0;
static_assert(kFitsRing<LaneOps> && kFitsRing<LaneTransfer> && kFitsRing<LaneReport> &&
              kFitsRing<Notice>);

}  // namespace gradwire::command
