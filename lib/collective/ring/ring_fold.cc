// SPDX-License-Identifier: BSD-3-Clause
// What is done with payloads: the work of a claimed chunk is an entry of the backend, and what it
// comes to is sent on, spilled or finished when the backend is through with it.
#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/ops/op_faults.h"
#include "collective/ops/op_memory.h"
#include "collective/ring/ring.h"
#include "collective/ring/ring_work.h"

namespace gradwire::collective {

void Ring::prepare_entry(Op& op) const noexcept {
  reduce::Entry& entry = op.entry;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.streaming = op.record.bytes >= config_.streaming_bytes;
  entry.member_count = config_.member_count;
  entry.divisor = config_.processes().count();
  entry.inputs = op.spec.inputs.data();
  entry.outputs = op.spec.outputs.data();
  entry.factors = op.spec.factors;
  entry.one_each = reduce::is_one_each(entry);
}

void Ring::point_to(const OpSpec& spec, const ChunkSpan& span,
                    reduce::Entry& entry) const noexcept {
  entry.one_each = false;
  const ChunkMemory memory = memory_of(spec, span, config_.member_count, config_.processes());
  const std::uint32_t width = element_bytes(spec.datatype);
  entry.member_count = memory.input_count;
  entry.output_count = memory.output_count;
  entry.inputs = memory.inputs;
  entry.outputs = memory.outputs;
  entry.offset_bytes = memory.first_input * width;
  entry.output_shift_bytes = static_cast<std::int64_t>(memory.first_output * width) -
                             static_cast<std::int64_t>(entry.offset_bytes);
}

std::size_t Ring::in_transit() const noexcept {
  std::size_t waiting = 0;
  for (const auto& link : links()) {
    if (link->gets_data()) waiting += link->sender().waiting();
  }
  return waiting;
}

void Ring::queue_fold(const FoldWork& work, reduce::Kind kind, Op& op, const ChunkSpan& span,
                      bool finalize, TimeNs now) noexcept {
  reduce::Entry& queued = folds_.entry();
  queued = entry_of(op, kind, work.chunk.payload, span, finalize);
  queued.crc = buffers_.on_device() && !work.keep_crc && work.gets_ready();
  ++op.loads_pending;
  if (work.spill) ++op.spills_pending;
  FoldWork& kept = folds_.take();
  kept = work;
  if (folds_.add(kept)) services_.take_folded(now);
}

bool Ring::apply(Op& op, EarlyPacket& packet, Arrival arrival, const Site& site,
                 TimeNs now) noexcept {
  return apply_inline(op, ends_of(op), packet, arrival, site, now);
}

bool Ring::make_exclusive(EarlyPacket& packet, std::uint32_t bytes) noexcept {
  // A spill needs no mbuf, and no copy by the CPU.
  if (buffers_.on_device() || !buffers_.move_to_own(packet.mbuf, packet.payload, bytes)) {
    return false;
  }
  ++counters_.copies;
  return true;
}

bool Ring::hold(Op& op, const Site& site, const EarlyPacket& packet) noexcept {
  // There is room for all that credit lets in, but not all keep to it.
  if (!held_.push(packet)) return false;
  held_to_ = op.rules.to;
  if (!planted(PlantedBug::kHeldNotClaimed)) set_bit(op.reduced, site.index);
  return true;
}

void Ring::release_held(TimeNs now) noexcept {
  while (held_may_go()) {
    EarlyPacket packet = held_.front();
    held_.pop();
    Op* op = ops_.find(packet.header.op_seq);
    require(op != nullptr, "an op stays as long as a chunk of it is held");
    Site site;
    site.index = ops_.index_of(packet.header.chunk);
    find_segment(*op, packet.header.chunk, site);
    site.span = op->partition.span_in(site.segment, packet.header.chunk);
    const std::size_t held = held_.size();
    const bool applied = apply(*op, packet, Arrival::kReducing, site, now);
    require(applied, "a held chunk is applied if the fold queue has a place");
    if (held_.size() > held) return;  // No buffer for a copy of it: held again.
  }
}

void Ring::return_credit(LinkSender& from) noexcept {
  const std::uint32_t freed = from.take_freed();
  if (freed == 0 || planted(PlantedBug::kCreditNeverBack)) return;
  for (const auto& link : links()) {
    if (!link->brings_data() || !link->on_ring()) continue;
    link->receiver().finish_chunks(freed);
    link->receiver().tell_credit();
  }
}

void Ring::complete(const Folded& done, TimeNs now) noexcept {
  const FoldWork& work = *done.work;
  const ReadyChunk& chunk = work.chunk;
  if (!live()) {
    if (chunk.mbuf != nullptr) rte_pktmbuf_free(chunk.mbuf);
    return;
  }
  Op* const found = ops_.find(chunk.id.op_seq);
  require(found != nullptr && found->loads_pending > 0,
          "an op stays as long as the backend reads or writes its memory");
  Op& op = *found;
  --op.loads_pending;
  if (work.spill) --op.spills_pending;
  if (!done.ok) return give_up(chunk.id.op_seq, chunk.mbuf, now);
  stall_.moved(now);
  const Ends ends = work.role == FoldWork::Role::kLocal ? Ends{} : ends_of(op);
  if (work.role != FoldWork::Role::kOutgoing) {
    note_arrived(op, ends, work.role != FoldWork::Role::kArrival || chunk.id.holds_credit);
  } else if (op.keeps_own) {
    set_bit(op.gathered, ops_.index_of(chunk.id.chunk));
  }
  if (work.gets_ready()) {
    ReadyChunk& ready = ends.to->add_promised();
    ready = chunk;
    if (!work.keep_crc && config_.payload_crc) {
      ready.crc = buffers_.on_device()
                      ? done.crc
                      : crc_of({chunk.payload, chunk.bytes}, loaded_next(op, chunk.id));
    }
  } else {
    end_here(op, chunk.id.chunk, chunk.mbuf, work.spill);
  }
  op_ends_.finish_if_done(op);
}

void Ring::give_up(std::uint64_t op_seq, rte_mbuf* mbuf, TimeNs now) noexcept {
  if (mbuf != nullptr) rte_pktmbuf_free(mbuf);
  services_.abort(fold_failed(config_, op_seq), now);
}

void Ring::complete_check(const Folded& done, TimeNs now) noexcept {
  const IncomingPacket& check = checks_.packet(folds_.place_of(*done.work));
  const bool right = done.crc == check.crc;
  if (live() && done.ok && right && checks_.keep(check)) return;
  if (live() && done.ok)
    counters_.count_drop(right ? wire::Drop::kNoBuffer : wire::Drop::kPayloadCrc);
  rte_pktmbuf_free(check.mbuf);
  if (live() && !done.ok) services_.abort(fold_failed(config_, check.header.op_seq), now);
}

}  // namespace gradwire::collective
