// SPDX-License-Identifier: BSD-3-Clause
// What is done with payloads: the work of a claimed chunk is an entry of the backend, and what it
// comes to is sent on, spilled or finished when the backend is through with it.
#include <cstring>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/ops/op_faults.h"
#include "collective/ops/op_memory.h"
#include "collective/ring/ring.h"
#include "collective/ring/ring_work.h"

namespace gradwire::collective {

void Ring::point_to(const OpSpec& spec, const ChunkSpan& span,
                    reduce::Entry& entry) const noexcept {
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

bool Ring::apply(Op& op, const wire::DataHeader& header, Arrival arrival, const Site& site,
                 rte_mbuf* mbuf, std::byte* payload, std::uint32_t crc, TimeNs now) noexcept {
  const Place& place = site.place;
  const bool reducing = arrival == Arrival::kReducing;
  const bool goes_on = reducing ? place.forwards_reduced : place.forwards_gather;
  const std::uint32_t bytes = header.count * element_bytes(header.datatype);
  if (folds_.full()) return false;
  if (op.record.first_chunk_at == 0) op.record.first_chunk_at = now;

  // On in its own mbuf if there is room to wait and the next rank has granted the op; else the
  // chunk is finished into the output and goes on from there.
  LinkSender& to = sender_of(op);
  bool forward = goes_on && has_transit_room(to) &&
                 (to.was_posted_there(op) || (to.has_grant(op) && may_go_on_early()));
  if (forward && !buffers_.exclusive(mbuf)) {
    std::byte* copy_payload = nullptr;
    rte_mbuf* copy = buffers_.on_device() ? nullptr : buffers_.alloc(copy_payload);
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
  if (forward && !to.take_grant(op)) forward = false;
  if (goes_on && !forward && op.rules.holds) [[unlikely]] {
    return hold(op, site, {mbuf, payload, crc, op.rules.from, header});
  }
  set_bit(reducing ? op.reduced : op.gathered, site.index);

  FoldWork& work = folds_.take();
  work.role = FoldWork::Role::kArrival;
  work.forward = forward;
  work.spill = goes_on && !forward;
  work.keep_crc = !reducing;
  work.chunk =
      ReadyChunk{mbuf,
                 payload,
                 bytes,
                 crc,
                 ChunkId{op.spec.op_seq, header.chunk, static_cast<std::uint16_t>(header.hop + 1),
                         forward && op.rules.holds},
                 op.call};
  if (forward) to.promise();
  if (work.spill) ++op.spills_pending;

  reduce::Kind kind = reduce::Kind::kStore;
  if (reducing) {
    kind = !forward             ? reduce::Kind::kReduceToOutput
           : place.reduces_last ? reduce::Kind::kReduceAndStore
                                : reduce::Kind::kReduceInPacket;
  }
  queue_fold(work, kind, op, site.span, reducing && place.reduces_last, now);
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
    const EarlyPacket packet = held_.front();
    held_.pop();
    Op* op = ops_.find(packet.header.op_seq);
    require(op != nullptr, "an op stays as long as a chunk of it is held");
    Site site;
    site.index = ops_.index_of(packet.header.chunk);
    site.span = op->partition.span_of(packet.header.chunk);
    site.place = place_of(op->shape, op->route, site.span.segment);
    const std::size_t held = held_.size();
    const bool applied = apply(*op, packet.header, Arrival::kReducing, site, packet.mbuf,
                               packet.payload, packet.crc, now);
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

void Ring::complete_later(const Folded& done, TimeNs now) noexcept { complete(done, now); }

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
