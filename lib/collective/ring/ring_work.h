// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The work of one chunk: it becomes an entry of the backend, and what that comes to is sent on,
/// spilled or finished. It is compiled into each place where chunks start or arrive, since most
/// backends do the work before they return, and a call for each step would cost more than the
/// steps. Part of Ring; one lane owns it; it allocates nothing.
#pragma once

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/ops/op_faults.h"
#include "collective/ring/ring.h"

namespace gradwire::collective {

/// Behind an own chunk that goes out comes the next one; nullptr if none does.
inline const std::byte* Ring::loaded_next(const Op& op, const ReadyChunk& chunk) const noexcept {
  const std::uint64_t next = chunk.id.chunk + std::uint64_t{config_.lanes};
  if (chunk.id.hop != 0 || next >= op.own_end) return nullptr;
  return op.own_part(op.partition.span_of(next));
}

inline void Ring::complete(const Folded& done, TimeNs now) noexcept {
  const FoldWork& work = *done.work;
  const ReadyChunk& chunk = work.chunk;
  if (!live()) {
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
    return;
  }
  Op* op = ops_.find(chunk.id.op_seq);
  require(op != nullptr && op->loads_pending > 0,
          "an op stays as long as the backend reads or writes its memory");
  --op->loads_pending;
  stall_.moved(now);
  if (work.spill) --op->spills_pending;
  if (!done.ok) {
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
    return services_.abort(fold_failed(config_, chunk.id.op_seq), now);
  }
  if (work.role != FoldWork::Role::kOutgoing) {
    require(op->arrivals_left > 0 || planted(PlantedBug::kSkippedDuplicateCheck),
            "no more chunks arrive than an op has");
    --op->arrivals_left;
    if (work.role == FoldWork::Role::kArrival && !chunk.id.holds_credit) finish_arrival(*op);
  } else if (op->keeps_own) {
    set_bit(op->gathered, ops_.index_of(chunk.id.chunk));
  }
  if (work.gets_ready()) {
    ReadyChunk ready = chunk;
    if (!work.keep_crc && config_.payload_crc) {
      const profile::Stage stage(profile::StageId::kIntegrity);
      ready.crc = buffers_.on_device()
                      ? done.crc
                      : wire::crc32c({ready.payload, ready.bytes}, loaded_next(*op, chunk));
    }
    sender_of(*op).add_promised(ready);
  } else {
    if (work.spill && !planted(PlantedBug::kMissedSpill)) {
      ops_.add_spilled(*op, ops_.index_of(chunk.id.chunk));
      ++counters_.spills;
    }
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
  }
  op_ends_.finish_if_done(*op);
}

inline void Ring::queue_fold(FoldWork& work, reduce::Kind kind, Op& op, const ChunkSpan& span,
                             bool finalize, TimeNs now) noexcept {
  ++op.loads_pending;
  reduce::Entry& entry = folds_.entry();
  entry.kind = kind;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.finalize = finalize;
  entry.streaming = op.streaming;
  const std::uint32_t width = element_bytes(op.spec.datatype);
  entry.member_count = config_.member_count;
  entry.output_count = 0;
  entry.count = span.elements;
  entry.divisor = config_.processes().count();
  entry.packet = work.chunk.payload;
  entry.inputs = op.spec.inputs.data();
  entry.outputs = op.spec.outputs.data();
  entry.factors = op.spec.factors;
  entry.offset_bytes = span.first_element * width;
  entry.output_shift_bytes = 0;
  if (op.spec.collective != Collective::kAllReduce) [[unlikely]] {
    point_to(op.spec, span, entry);
  }
  if (folds_.runs_at_once()) {
    complete(folds_.run(work), now);
    folds_.release(work);
    return;
  }
  entry.crc = buffers_.on_device() && !work.keep_crc && work.gets_ready();
  if (folds_.add(work)) services_.take_folded(now);
}

}  // namespace gradwire::collective
