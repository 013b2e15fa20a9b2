// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What became of ops on one lane: its trace, which any thread may read, and its counters of whole
/// ops. The lane owns it; it allocates at construction only.
#pragma once

#include <cstdint>

#include "base/abort_reason.h"
#include "base/types.h"
#include "collective/event_queue.h"
#include "collective/ops/op_spec.h"
#include "collective/shard.h"
#include "lane/counters.h"
#include "lane/trace_ring.h"

namespace gradwire::lane {

class OpLog {
 public:
  /// @param counters  outlive it.
  OpLog(std::uint8_t lane, LaneCounters& counters) : lane_(lane), counters_(counters) {}

  [[nodiscard]] const TraceRing& trace() const noexcept { return trace_; }

  /// @param bytes  of the whole op.
  void posted(std::uint64_t handle, const collective::OpSpec& spec, std::uint64_t bytes,
              TimeNs now) noexcept;
  /// This lane's share of the op is finished.
  /// @param nranks  of the group, with members.
  void done(std::uint64_t handle, const collective::Event& event, std::uint16_t nranks,
            TimeNs now) noexcept;
  void aborted(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept;

 private:
  void add(TraceType type, TimeNs at, std::uint64_t handle, std::uint64_t op_seq,
           std::uint64_t value, const collective::OpRecord& op) noexcept;

  std::uint8_t lane_;
  LaneCounters& counters_;
  TraceRing trace_;
};

}  // namespace gradwire::lane
