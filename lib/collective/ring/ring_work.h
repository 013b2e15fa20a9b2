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

/// Behind an own chunk that goes out comes the next one; nullptr if none does. It may be wrong: it
/// is read ahead of time, and no more.
inline const std::byte* Ring::loaded_next(const Op& op, const ReadyChunk& chunk) const noexcept {
  const std::uint64_t next = chunk.id.chunk + std::uint64_t{config_.lanes};
  if (chunk.id.hop != 0 || next >= op.own_end || op.spec.inputs[0] == nullptr) return nullptr;
  return op.spec.inputs[0] + op.entry.offset_bytes +
         std::size_t{config_.lanes} * config_.payload_bytes;
}

inline void Ring::settle(Op& op, const Ends& ends, const FoldWork& work, std::uint32_t crc,
                         TimeNs now) noexcept {
  const ReadyChunk& chunk = work.chunk;
  stall_.moved(now);
  if (work.role != FoldWork::Role::kOutgoing) {
    require(op.arrivals_left > 0 || planted(PlantedBug::kSkippedDuplicateCheck),
            "no more chunks arrive than an op has");
    --op.arrivals_left;
    if (work.role == FoldWork::Role::kArrival && !chunk.id.holds_credit) finish_arrival(*ends.from);
  } else if (op.keeps_own) {
    set_bit(op.gathered, ops_.index_of(chunk.id.chunk));
  }
  if (work.gets_ready()) {
    ReadyChunk ready = chunk;
    if (!work.keep_crc && config_.payload_crc) {
      const profile::Stage stage(profile::StageId::kIntegrity);
      ready.crc = buffers_.on_device()
                      ? crc
                      : wire::crc32c({ready.payload, ready.bytes}, loaded_next(op, chunk));
    }
    ends.to->add_promised(ready);
  } else {
    if (work.spill && !planted(PlantedBug::kMissedSpill)) {
      ops_.add_spilled(op, ops_.index_of(chunk.id.chunk));
      ++counters_.spills;
    }
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
  }
  op_ends_.finish_if_done(op);
}

inline void Ring::queue_fold(const FoldWork& work, reduce::Kind kind, Op& op, const Ends& ends,
                             const ChunkSpan& span, bool finalize, TimeNs now) noexcept {
  reduce::Entry& entry = op.entry;
  entry.kind = kind;
  entry.finalize = finalize;
  entry.count = span.elements;
  entry.packet = work.chunk.payload;
  entry.offset_bytes = span.first_element * op.partition.element_bytes();
  if (op.spec.collective != Collective::kAllReduce) [[unlikely]] {
    point_to(op.spec, span, entry);
  }
  if (folds_.runs_at_once()) [[likely]] {
    if (!folds_.run(entry)) [[unlikely]]
      return give_up(op.spec.op_seq, work.chunk.mbuf, now);
    settle(op, ends, work, 0, now);
    return;
  }
  reduce::Entry& queued = folds_.entry();
  queued = entry;
  queued.crc = buffers_.on_device() && !work.keep_crc && work.gets_ready();
  ++op.loads_pending;
  if (work.spill) ++op.spills_pending;
  FoldWork& kept = folds_.take();
  kept = work;
  if (folds_.add(kept)) services_.take_folded(now);
}

inline bool Ring::apply_inline(Op& op, const Ends& ends, EarlyPacket& packet, Arrival arrival,
                               const Site& site, TimeNs now) noexcept {
  LinkSender& to = *ends.to;
  const Place& place = site.place;
  const bool reducing = arrival == Arrival::kReducing;
  const bool goes_on = reducing ? place.forwards_reduced : place.forwards_gather;
  const std::uint32_t bytes = packet.header.count * op.partition.element_bytes();
  if (folds_.full()) return false;
  if (op.record.first_chunk_at == 0) op.record.first_chunk_at = now;

  // On in its own mbuf if there is room to wait and the next rank has granted the op; else the
  // chunk is finished into the output and goes on from there.
  bool forward = goes_on && has_transit_room(to) &&
                 (to.was_posted_there(op) || (to.has_grant(op) && may_go_on_early()));
  if (forward && !buffers_.exclusive(packet.mbuf)) forward = make_exclusive(packet, bytes);
  if (forward && !to.take_grant(op)) forward = false;
  if (goes_on && !forward && op.rules.holds) [[unlikely]]
    return hold(op, site, packet);
  set_bit(reducing ? op.reduced : op.gathered, site.index);

  FoldWork work;
  work.role = FoldWork::Role::kArrival;
  work.forward = forward;
  work.spill = goes_on && !forward;
  work.keep_crc = !reducing;
  work.chunk = ReadyChunk{
      packet.mbuf,
      packet.payload,
      bytes,
      packet.crc,
      ChunkId{op.spec.op_seq, packet.header.chunk,
              static_cast<std::uint16_t>(packet.header.hop + 1), forward && op.rules.holds},
      op.call};
  if (forward) to.promise();

  reduce::Kind kind = reduce::Kind::kStore;
  if (reducing) {
    kind = !forward             ? reduce::Kind::kReduceToOutput
           : place.reduces_last ? reduce::Kind::kReduceAndStore
                                : reduce::Kind::kReduceInPacket;
  }
  queue_fold(work, kind, op, ends, site.span, reducing && place.reduces_last, now);
  return true;
}

}  // namespace gradwire::collective
