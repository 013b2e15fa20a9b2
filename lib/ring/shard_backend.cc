// SPDX-License-Identifier: BSD-3-Clause
// What is done with payloads: the work of a claimed chunk is an entry of the backend, and what it
// comes to is sent on, spilled or finished when the backend is through with it.
#include <algorithm>
#include <cstring>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "ring/shard_impl.h"

namespace gradwire::ring {

bool Shard::Impl::exclusive(const rte_mbuf* mbuf) const noexcept {
  return config_.received_mbufs_are_exclusive ||
         (rte_mbuf_refcnt_read(mbuf) == 1 && (RTE_MBUF_DIRECT(mbuf) || on_device()));
}

/// The first member's part in a chunk: what a fold reads first.
const std::byte* Shard::Impl::own_part(const Op& op, const ChunkSpan& span) noexcept {
  return op.spec.inputs[0] + span.first_element * element_bytes(op.spec.datatype);
}

/// Behind an own chunk that goes out comes the next one; nullptr where none does.
const std::byte* Shard::Impl::loaded_next(const Op& op, const ReadyChunk& chunk) const noexcept {
  const std::uint64_t next = chunk.id.chunk + std::uint64_t{config_.lanes};
  if (chunk.id.hop != 0 || next >= op.own_end) return nullptr;
  return own_part(op, op.partition.span_of(next));
}

PendingEntry* Shard::Impl::take_pending() noexcept {
  if (pending_free_.empty()) return nullptr;
  PendingEntry* entry = &pending_[pending_free_.back()];
  pending_free_.pop_back();
  ++pending_count_;
  *entry = PendingEntry{};
  return entry;
}

bool Shard::Impl::apply(Op& op, const wire::DataHeader& header, Arrival arrival, const Site& site,
                        rte_mbuf* mbuf, std::byte* payload, std::uint32_t crc,
                        TimeNs now) noexcept {
  const RingPlace& place = site.place;
  const bool reducing = arrival == Arrival::kReducing;
  const bool goes_on = !op.exchange && (reducing || place.forwards_gather);
  const std::uint32_t bytes = header.count * element_bytes(header.datatype);
  if (pending_free_.empty()) return false;
  if (op.record.first_chunk_at == 0) op.record.first_chunk_at = now;

  // On in its own mbuf where there is room to wait and the next rank has granted the op; else the
  // chunk is finished into the output and goes on from there.
  const bool room = ready_.size() + ready_promised_ + transit_taken() < config_.transit_packets;
  bool forward = goes_on && room && has_grant(op);
  if (forward && !exclusive(mbuf)) {
    std::byte* copy_payload = nullptr;
    rte_mbuf* copy = on_device() ? nullptr : alloc_packet(copy_payload);
    if (copy == nullptr) {
      forward = false;  // A spill needs no mbuf, and no copy by the CPU.
    } else {
      std::memcpy(copy_payload, payload, bytes);
      rte_pktmbuf_free(mbuf);
      mbuf = copy;
      payload = copy_payload;
      ++counters_.copies;
    }
  }
  if (forward && !take_grant(op)) forward = false;

  PendingEntry* pending = take_pending();
  pending->role = PendingEntry::Role::kArrival;
  pending->forward = forward;
  pending->spill = goes_on && !forward;
  pending->keep_crc = !reducing;
  pending->chunk =
      ReadyChunk{mbuf,
                 payload,
                 bytes,
                 crc,
                 ChunkId{op.spec.op_seq, header.chunk, static_cast<std::uint16_t>(header.hop + 1)},
                 call_of(op.spec)};
  if (forward) ++ready_promised_;
  if (pending->spill) ++op.spills_pending;

  reduce::Kind kind = reduce::Kind::kStore;
  if (reducing) {
    set_bit(op.reduced, site.index);
    kind = !forward             ? reduce::Kind::kReduceToOutput
           : place.reduces_last ? reduce::Kind::kReduceAndStore
                                : reduce::Kind::kReduceInPacket;
  } else {
    set_bit(op.gathered, site.index);
  }
  queue_entry(*pending, kind, op, site.span, reducing && place.reduces_last, now);
  return true;
}

void Shard::Impl::queue_entry(PendingEntry& pending, reduce::Kind kind, Op& op,
                              const ChunkSpan& span, bool finalize, TimeNs now) noexcept {
  ++op.loads_pending;
  reduce::Entry& entry = batch_[batch_count_];
  entry.kind = kind;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.finalize = finalize;
  entry.streaming = op.streaming;
  entry.member_count = config_.member_count;
  entry.count = span.elements;
  entry.divisor = std::uint32_t{config_.nranks} * config_.member_count;
  entry.packet = pending.chunk.payload;
  entry.inputs = op.spec.inputs.data();
  entry.outputs = op.spec.outputs.data();
  entry.offset_bytes = span.first_element * element_bytes(op.spec.datatype);
  if (at_once_) {
    const bool ok = [&] {
      const profile::Stage stage(profile::StageId::kReduce);
      return backend_->run(entry);
    }();
    complete(pending, ok, 0, now);
    return;
  }
  entry.crc = on_device() && !pending.keep_crc &&
              (pending.forward || pending.role == PendingEntry::Role::kOutgoing);
  entry.cookie = static_cast<std::uint64_t>(&pending - pending_.data());
  ++batch_count_;
  if (batch_count_ >= config_.batch_entries || batch_count_ == batch_.size()) submit(now);
}

void Shard::Impl::submit(TimeNs now) noexcept {
  if (batch_count_ != 0) {
    const profile::Stage stage(profile::StageId::kReduce);
    const std::size_t taken =
        backend_->submit(std::span<const reduce::Entry>(batch_.data(), batch_count_));
    std::copy(batch_.begin() + static_cast<std::ptrdiff_t>(taken),
              batch_.begin() + static_cast<std::ptrdiff_t>(batch_count_), batch_.begin());
    batch_count_ -= taken;
  }
  if (pending_count_ == 0) return;
  for (std::size_t n = backend_->poll(completions_); n > 0; n = backend_->poll(completions_)) {
    for (const reduce::Completion& done : std::span(completions_).first(n)) {
      complete(pending_[done.cookie], done.ok, done.crc, now);
    }
  }
}

void Shard::Impl::complete(PendingEntry& entry, bool ok, std::uint32_t crc, TimeNs now) noexcept {
  const PendingEntry pending = entry;
  entry.spill = false;
  pending_free_.push_back(static_cast<std::uint32_t>(&entry - pending_.data()));
  --pending_count_;
  if (pending.role == PendingEntry::Role::kCheck) return end_check(entry, ok, crc, now);
  const ReadyChunk& chunk = pending.chunk;
  const bool promised = pending.forward || pending.role == PendingEntry::Role::kOutgoing;
  if (promised) --ready_promised_;
  Op* op = ops_.find(chunk.id.op_seq);
  if (!live() || op == nullptr) {
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
    return;
  }
  --op->loads_pending;
  progress_at_ = now;
  if (pending.spill) --op->spills_pending;
  if (!ok) {
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
    AbortReason reason{.code = AbortCode::kReduceFailed,
                       .culprit_rank = config_.rank,
                       .reporter_rank = config_.rank,
                       .op_seq = chunk.id.op_seq};
    abort(reason, now);
    return;
  }
  if (pending.role != PendingEntry::Role::kOutgoing) {
    --op->arrivals_left;
    ++finished_chunks_;
    if (!at_once_) tell_credit();
  } else if (op->exchange) {
    set_bit(op->gathered, lane_index(chunk.id.chunk));
  }
  if (promised) {
    ReadyChunk ready = chunk;
    if (!pending.keep_crc) {
      const profile::Stage stage(profile::StageId::kIntegrity);
      ready.crc =
          on_device() ? crc : wire::crc32c({ready.payload, ready.bytes}, loaded_next(*op, chunk));
    }
    ready_.push(ready);
  } else {
    if (pending.spill && !planted(PlantedBug::kMissedSpill)) {
      const std::uint64_t index = lane_index(chunk.id.chunk);
      set_bit(op->spilled, index);
      op->spill_cursor = std::min(op->spill_cursor, index);
      ++op->spilled_left;
      ++spilled_total_;
      ++counters_.spills;
    }
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
  }
  finish_if_done(*op);
}

void Shard::Impl::flush(TimeNs now) noexcept {
  submit(now);
  if (!checked_.empty()) receive_checked(now);
}

}  // namespace gradwire::ring
