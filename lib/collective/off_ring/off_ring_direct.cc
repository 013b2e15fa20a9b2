// SPDX-License-Identifier: BSD-3-Clause
// Direct ops: packets of any rank, and folds when all is there.
#include "base/probe.h"
#include "collective/off_ring/off_ring.h"
#include "collective/ops/op_faults.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

void OffRing::start(Op& op, TimeNs now) noexcept {
  if (!direct_->folds().at_once()) ++op.loads_pending;
  note_progress(op, direct_->open(op, now), now);
}

void OffRing::note_progress(Op& op, Direct::Progress progress, TimeNs now) noexcept {
  if (progress == Direct::Progress::kFailed) abort_for_fold(op.spec.op_seq, now);
  if (progress != Direct::Progress::kDone) return;
  if (op.arrivals_left > 0) --op.arrivals_left;
  if (!direct_->folds().at_once()) --op.loads_pending;
  count_done(op);
}

void OffRing::on_folded(const Folded& done, TimeNs now) noexcept {
  if (!live()) return;
  const std::uint64_t op_seq = done.work->chunk.id.op_seq;
  Op* op = ops_.find(op_seq);
  require(op != nullptr && op->loads_pending > 0,
          "a direct op stays as long as the backend works for it");
  stall_.moved(now);
  if (!done.ok) return abort_for_fold(op_seq, now);
  note_progress(*op, direct_->on_folded(*done.work, *op, now), now);
  if (live()) op_ends_.finish_if_done(*op);
}

void OffRing::abort_for_fold(std::uint64_t op_seq, TimeNs now) noexcept {
  services_.abort(fold_failed(config_, op_seq), now);
}

void OffRing::count_done(const Op& op) noexcept {
  ++(op.shape == Shape::kGathered  ? counters_.ops_gathered
     : op.shape == Shape::kTwoStep ? counters_.ops_two_step
                                   : counters_.ops_direct);
}

/// What came ahead of an op that is posted now, whatever its shape.
void OffRing::apply_ahead(std::uint64_t op_seq, TimeNs now) noexcept {
  while (live()) {
    const auto ahead = direct_->early().take(op_seq);
    if (!ahead) return;
    const EarlyContribution& early = ahead->contribution;
    wire::DataHeader header = header_of(op_seq, early.call);
    header.chunk = early.chunk;
    header.step = early.step;
    header.since = early.since;
    const Drop drop = take_contribution(ahead->rank, header, {early.payload, early.bytes}, {}, now);
    if (drop != Drop::kNone) counters_.count_drop(drop);
  }
}

Drop OffRing::receive_direct(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  if (direct_->hear(packet, now)) stall_.moved(now);
  if (packet.common.type != PacketType::kContribution) {
    ++counters_.receipts_received;
    return Drop::kNone;
  }
  const wire::DataHeader& header = packet.data;
  Drop drop = Drop::kNone;
  if (header.op_seq > ops_.posted() + OpTable::kDescriptorsKept && !told_) {
    drop = Drop::kOpAhead;
  } else if (!ops_.was_posted(header.op_seq)) {
    drop = direct_->early().keep(packet);
    if (told_) told_->post(now);
  } else {
    drop = take_contribution(rank, header, packet.payload, packet.payload_crc, now);
  }
  if (drop != Drop::kNone) return drop;
  counters_.ecn_ce_received += ecn_ce ? 1 : 0;
  ++counters_.contributions_received;
  counters_.data_bytes_received += packet.payload.size();
  return drop;
}

Drop OffRing::take_contribution(std::uint16_t rank, const wire::DataHeader& header,
                                std::span<const std::byte> payload,
                                std::optional<std::uint32_t> crc, TimeNs now) noexcept {
  if (const OpCall* ours = ops_.call(header.op_seq); ours != nullptr && *ours != call_of(header)) {
    report_mismatch(rank, header.op_seq, *ours, call_of(header), now);
    return Drop::kNone;
  }
  if (told_ && told_->was_skipped(header.op_seq)) [[unlikely]] {
    told_->report_skipped(rank, header.op_seq, call_of(header), now);
    return Drop::kNone;
  }
  Op* op = ops_.find(header.op_seq);
  if (op != nullptr && !is_pushed(op->shape)) return Drop::kBadChunk;
  const Drop drop = direct_->take(rank, header, payload, crc, op, now);
  if (drop != Drop::kNone || op == nullptr) return drop;
  if (op->record.first_chunk_at == 0) op->record.first_chunk_at = now;
  stall_.moved(now);
  GRADWIRE_PROBE6(chunk_received, config_.key.group_id, header.op_seq, header.chunk, 0,
                  config_.rank, config_.lane);
  note_progress(*op, direct_->advance(*op, now), now);
  if (live()) op_ends_.finish_if_done(*op);
  return Drop::kNone;
}

void OffRing::report_mismatch(std::uint16_t rank, std::uint64_t op_seq, const OpCall& ours,
                              const OpCall& theirs, TimeNs now) noexcept {
  const std::uint16_t here = told_ ? told_->by(op_seq) : config_.rank;
  services_.abort(mismatch_of(config_, op_seq, {rank, theirs}, {here, ours}, rank), now);
}

}  // namespace gradwire::collective
