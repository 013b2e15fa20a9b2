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
inline const std::byte* Ring::loaded_next(const Op& op, const ChunkId& id) const noexcept {
  const std::uint64_t next = id.chunk + std::uint64_t{config_.lanes};
  if (id.hop != 0 || next >= op.own_end || op.spec.inputs[0] == nullptr) return nullptr;
  return op.spec.inputs[0] + op.entry.offset_bytes +
         std::size_t{config_.lanes} * config_.payload_bytes;
}

inline std::uint32_t Ring::crc_of(std::span<const std::byte> payload,
                                  const std::byte* read_next) const noexcept {
  if (!config_.payload_crc) return 0;
  const profile::Stage stage(profile::StageId::kIntegrity);
  return wire::crc32c(payload, read_next);
}

inline void Ring::note_arrived(Op& op, const Ends& ends, bool holds_credit) noexcept {
  require(op.arrivals_left > 0 || planted(PlantedBug::kSkippedDuplicateCheck),
          "no more chunks arrive than an op has");
  --op.arrivals_left;
  if (!holds_credit) finish_arrival(*ends.from);
}

inline void Ring::end_here(Op& op, std::uint32_t chunk, rte_mbuf* mbuf, bool spill) noexcept {
  if (spill && !planted(PlantedBug::kMissedSpill)) {
    ops_.add_spilled(op, ops_.index_of(chunk));
    ++counters_.spills;
  }
  if (mbuf != nullptr) rte_pktmbuf_free(mbuf);
}

inline reduce::Entry& Ring::entry_of(Op& op, reduce::Kind kind, std::byte* payload,
                                     const ChunkSpan& span, bool finalize) noexcept {
  reduce::Entry& entry = op.entry;
  entry.kind = kind;
  entry.finalize = finalize;
  entry.count = span.elements;
  entry.packet = payload;
  entry.offset_bytes = span.first_element * op.partition.element_bytes();
  if (op.spec.collective != Collective::kAllReduce) [[unlikely]] {
    point_to(op.spec, span, entry);
  }
  return entry;
}

inline bool Ring::run_at_once(Op& op, reduce::Kind kind, rte_mbuf* mbuf, std::byte* payload,
                              const ChunkSpan& span, bool finalize, TimeNs now) noexcept {
  if (!folds_.run(entry_of(op, kind, payload, span, finalize))) [[unlikely]] {
    give_up(op.spec.op_seq, mbuf, now);
    return false;
  }
  stall_.moved(now);
  return true;
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

  reduce::Kind kind = reduce::Kind::kStore;
  if (reducing) {
    kind = !forward             ? reduce::Kind::kReduceToOutput
           : place.reduces_last ? reduce::Kind::kReduceAndStore
                                : reduce::Kind::kReduceInPacket;
  }
  const bool last = reducing && place.reduces_last;
  const bool holds_credit = forward && op.rules.holds;
  const ChunkId next{op.spec.op_seq, packet.header.chunk,
                     static_cast<std::uint16_t>(packet.header.hop + 1), holds_credit};
  if (forward) to.promise();
  if (!folds_.runs_at_once()) [[unlikely]] {
    FoldWork work;
    work.role = FoldWork::Role::kArrival;
    work.forward = forward;
    work.spill = goes_on && !forward;
    work.keep_crc = !reducing;
    work.chunk = ReadyChunk{packet.mbuf, packet.payload, bytes, packet.crc, next, op.call};
    queue_fold(work, kind, op, site.span, last, now);
    return true;
  }
  if (!run_at_once(op, kind, packet.mbuf, packet.payload, site.span, last, now)) return true;
  note_arrived(op, ends, holds_credit);
  if (forward) {
    const std::uint32_t crc = reducing ? crc_of({packet.payload, bytes}, nullptr) : packet.crc;
    to.add_promised() = {packet.mbuf, packet.payload, bytes, crc, next, op.call};
  } else {
    end_here(op, packet.header.chunk, packet.mbuf, goes_on);
  }
  op_ends_.finish_if_done(op);
  return true;
}

}  // namespace gradwire::collective
