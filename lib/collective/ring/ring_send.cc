// SPDX-License-Identifier: BSD-3-Clause
// What goes out, in this order: what was lost, what is in transit, what was spilled, what starts
// here, and acknowledgements. Transit goes before own chunks, and own chunks may use half of the
// window only, so that what is already on its way round the ring seldom has to wait or spill. An
// exchange has no transit, and takes the whole window.
#include "base/planted_bug.h"
#include "collective/ring/ring.h"
#include "collective/ring/ring_work.h"

namespace gradwire::collective {

bool Ring::may_send_data() const noexcept {
  for (const auto& link : links()) {
    if (link->gets_data() && link->on_ring() && !link->end.answered()) return false;
  }
  return true;
}

bool Ring::send_data(TimeNs now, Outbox& out) noexcept {
  bool worked = neighbors_.send_waiting(now, out);
  if (ops_.spilled() > 0) worked |= start_spilled(now, out);
  if (!live()) return true;  // Nothing starts in a group that has ended.
  worked |= start_own(now, out);
  fold(now);
  // Early packets that waited for this rank's own chunks to be read.
  if (!early_.empty()) retry_early(now);
  const bool more_to_go = ops_.spilled() > 0 || ops_.own_waits() || words_.awaits_some();
  return worked | neighbors_.send_rest(more_to_go, now, out);
}

bool Ring::run(TimeNs now, Outbox& out) noexcept {
  if (!early_.empty() && live()) retry_early(now);
  if (live() && held_may_go()) release_held(now);
  return live() && may_send_data() && send_data(now, out);
}

bool Ring::something_may_go(const LinkSender& to) const noexcept {
  switch (to.blocked()) {
    case LinkSender::Blocked::kYes:
      return false;
    case LinkSender::Blocked::kNo:
      return true;
    case LinkSender::Blocked::kIfNothingStarts:
      break;
  }
  if (folds_.full()) return false;  // the shard asks the backend.
  if (held_may_go() || spilled_may_go()) return true;
  const Op* own = ops_.peek_own();
  return own != nullptr && to.own_may_go(*own);
}

inline bool Ring::start_outgoing(Op& op, LinkSender& to, std::uint64_t chunk, std::uint16_t hop,
                                 reduce::Kind kind, TimeNs now) noexcept {
  std::byte* payload = nullptr;
  rte_mbuf* mbuf = buffers_.alloc(payload);
  if (mbuf == nullptr) return false;
  if (!to.take_grant(op)) {
    rte_pktmbuf_free(mbuf);
    return false;
  }
  const ChunkSpan span = op.partition.span_of(chunk);
  const std::uint32_t bytes = span.elements * op.partition.element_bytes();
  const ChunkId id{op.spec.op_seq, static_cast<std::uint32_t>(chunk), hop};
  to.promise();
  if (!folds_.runs_at_once()) [[unlikely]] {
    FoldWork work;
    work.role = FoldWork::Role::kOutgoing;
    work.chunk = ReadyChunk{mbuf, payload, bytes, 0, id, op.call};
    queue_fold(work, kind, op, span, false, now);
    return true;
  }
  if (!run_at_once(op, kind, mbuf, payload, span, false, now)) return true;
  if (op.keeps_own) set_bit(op.gathered, ops_.index_of(chunk));
  const std::uint32_t crc = crc_of({payload, bytes}, loaded_next(op, id));
  to.add_promised() = {mbuf, payload, bytes, crc, id, op.call};
  op_ends_.finish_if_done(op);
  return true;
}

bool Ring::start_spilled(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  std::uint64_t next = 1;
  while (Op* op = ops_.next_spilled(next)) {
    next = op->spec.op_seq + 1;
    LinkSender& to = sender_of(*op);
    const OutboxSide& box = links()[op->rules.to]->end.side(out);
    if (!to.has_grant(*op)) break;  // Later ops have none either.
    while (op->spilled_left > 0) {
      const std::uint64_t index = OpTable::first_spilled(*op);
      if (folds_.full() || !to.may_start(now, box) || !to.has_grant(*op)) return worked;
      const std::uint64_t chunk = ops_.chunk_of(index);
      const Place place = place_of(op->shape, op->route, op->partition.segment_of(chunk));
      const std::uint16_t arrived =
          test_bit(op->gathered, index) ? place.gathering_hop : place.reducing_hop;
      if (!start_outgoing(*op, to, chunk, static_cast<std::uint16_t>(arrived + 1),
                          reduce::Kind::kLoadFromOutput, now)) {
        return worked;
      }
      if (!live()) return true;  // The backend failed at once: nothing is to be sent any more.
      ops_.remove_spilled(*op, index);
      worked = true;
      op_ends_.finish_if_done(
          *op);  // A backend that runs at once had finished before the lines above.
    }
  }
  return worked;
}

bool Ring::spilled_may_go() const noexcept {
  const Op* op = ops_.oldest_spilled();
  return op != nullptr && sender_of(*op).has_grant(*op);
}

bool Ring::start_own(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  const bool spilled_first =
      planted(PlantedBug::kSpillWithoutGrantHoldsBack) ? ops_.spilled() > 0 : spilled_may_go();
  while (Op* op = ops_.next_own()) {
    LinkSender& to = sender_of(*op);
    const OutboxSide& box = links()[op->rules.to]->end.side(out);
    while (op->own_next < op->own_end) {
      if (spilled_first || !to.own_may_go(*op) || folds_.full() ||
          (op->rules.copies_own && folds_.size() + 1 == folds_.places()) ||
          !to.may_start(now, box) ||
          !start_outgoing(*op, to, op->own_next, 0, reduce::Kind::kLoad, now)) {
        return worked;
      }
      const std::uint64_t chunk = op->own_next;
      op->own_next += config_.lanes;
      worked = true;
      if (!live()) return true;
      if (op->rules.copies_own) copy_own(*op, chunk, now);
      if (!live()) return true;
      op_ends_.finish_if_done(*op);  // All that was to arrive may have, in an exchange.
    }
  }
  return worked;
}

void Ring::copy_own(Op& op, std::uint64_t chunk, TimeNs now) noexcept {
  const ChunkSpan span = op.partition.span_of(chunk);
  if (!folds_.runs_at_once()) {
    FoldWork work;
    work.role = FoldWork::Role::kLocal;
    work.chunk.id.op_seq = op.spec.op_seq;
    work.chunk.id.chunk = static_cast<std::uint32_t>(chunk);
    return queue_fold(work, reduce::Kind::kLocal, op, span, true, now);
  }
  if (!run_at_once(op, reduce::Kind::kLocal, nullptr, nullptr, span, true, now)) return;
  note_arrived(op, {}, true);
  op_ends_.finish_if_done(op);
}

bool Ring::fold_local(TimeNs now) noexcept {
  // A group of one rank: as many chunks per round as a burst, so that other groups get their turn.
  bool worked = false;
  while (Op* op = ops_.next_own()) {
    while (op->own_next < op->own_end) {
      if (folds_.size() >= folds_.places() / 2) return true;
      const std::uint64_t chunk = op->own_next;
      op->own_next += config_.lanes;
      const bool last = op->own_next >= op->own_end;
      copy_own(*op, chunk, now);
      if (!live()) return true;  // The backend failed at once.
      worked = true;
      if (last) break;
      if (ops_.index_of(chunk) % 64 == 63) {
        fold(now);
        return true;
      }
    }
  }
  fold(now);
  return worked;
}

}  // namespace gradwire::collective
