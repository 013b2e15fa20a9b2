// SPDX-License-Identifier: BSD-3-Clause
#include "lane/op_log.h"

#include <algorithm>

#include "base/require.h"

namespace gradwire::lane {

namespace {

/// @return the bytes that a rank's link carries for an op, as nccl-tests counts them.
std::uint64_t bus_bytes(Collective collective, std::uint64_t bytes, std::uint64_t nranks) noexcept {
  if (nranks == 1) return 0;
  switch (collective) {
    case Collective::kAllReduce:
      return bytes / nranks * 2 * (nranks - 1);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return bytes / nranks * (nranks - 1);
    default:
      break;
  }
  return bytes;
}

}  // namespace

void OpLog::add(TraceType type, TimeNs at, std::uint64_t handle, std::uint64_t op_seq,
                std::uint64_t value, const collective::OpRecord& op) noexcept {
  TraceEvent event;
  event.at = at;
  event.group_handle = handle;
  event.op_seq = op_seq;
  event.value = value;
  event.type = type;
  event.lane = lane_;
  event.collective = op.collective;
  event.wire = op.wire;
  event.shape = op.shape;
  trace_.push(event);
}

void OpLog::posted(std::uint64_t handle, const collective::OpSpec& spec, std::uint64_t bytes,
                   TimeNs now) noexcept {
  add(TraceType::kPosted, now, handle, spec.op_seq, bytes,
      {.collective = spec.collective, .wire = spec.wire});
}

void OpLog::done(std::uint64_t handle, const collective::Event& event, std::uint16_t nranks,
                 TimeNs now) noexcept {
  require(event.type == collective::EventType::kOpDone, "an op that is logged so is done");
  count(counters_.ops_done);
  if (event.op.first_chunk_at != 0) {
    add(TraceType::kFirstChunk, event.op.first_chunk_at, handle, event.op_seq, 0, event.op);
  }
  add(TraceType::kDone, now, handle, event.op_seq, event.op.retransmissions, event.op);
  if (lane_ != 0) return;
  const auto latency = static_cast<std::uint64_t>(std::max<TimeNs>(now - event.op.posted_at, 0));
  count(counters_.op_latency[latency_bucket(latency)]);
  count(counters_.op_latency_ns, latency);
  count(counters_.op_bytes, event.op.bytes);
  count(counters_.command.ops[index_of(event.op.collective)]);
  count(counters_.bus_bytes, bus_bytes(event.op.collective, event.op.bytes, nranks));
}

void OpLog::aborted(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept {
  count(counters_.aborts);
  if (reason.code == AbortCode::kStuck) count(counters_.stuck);
  TraceEvent event;
  event.at = now;
  event.group_handle = handle;
  event.op_seq = reason.op_seq;
  event.value = static_cast<std::uint64_t>(reason.code);
  event.type = TraceType::kAborted;
  event.lane = lane_;
  event.culprit_rank = reason.culprit_rank;
  event.reporter_rank = reason.reporter_rank;
  trace_.push(event);
}

}  // namespace gradwire::lane
