// SPDX-License-Identifier: BSD-3-Clause
// What a shard does with transfers between processes: it hands packets and time on, and aborts.
#include "base/abort_detail.h"
#include "collective/shard.h"

namespace gradwire::collective {

using wire::Drop;

PostResult Shard::post(const TransferSpec& spec, TimeNs now) noexcept {
  if (!group_.formed()) return PostResult::kRefused;
  if (transfers_ == nullptr) return PostResult::kUnsupported;
  const PostResult result = transfers_->post(spec, now);
  if (result != PostResult::kOk) return result;
  judge_transfers(now);
  if (live()) abort_if(membership_.missed_by_who_left(), now);
  return result;
}

bool Shard::pop_transfer_done(Event& out) noexcept {
  std::uint64_t id = 0;
  if (transfers_ == nullptr || !transfers_->pop_done(id)) return false;
  out = {EventType::kTransferDone, id, {}};
  return true;
}

Drop Shard::receive_from_any(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  // Whatever came from a rank, it lives: a slow port may have had no room for the other kind.
  const std::uint16_t rank = packet.common.from_rank;
  neighbors_.heard_from(rank);
  if (!wire::is_of_transfer(packet.common.type)) {
    if (transfers_ != nullptr && rank < config_.nranks) transfers_->heard(rank);
    return receive_direct(packet, ecn_ce, now);
  }
  if (direct_ != nullptr) direct_->heard(rank);
  const Drop drop = transfers_->receive(packet, ecn_ce, now);
  judge_transfers(now);
  return drop;
}

void Shard::judge_transfers(TimeNs now) noexcept {
  const auto& mismatch = transfers_->mismatch();
  if (!mismatch || !live()) return;
  AbortReason reason{
      .code = AbortCode::kMismatch, .culprit_rank = mismatch->rank, .reporter_rank = config_.rank};
  format_detail(
      reason,
      "transfer {} of process {} to process {}: sent {} bytes with tag {} ({}), received {} bytes "
      "with tag {} ({})",
      mismatch->sequence, mismatch->pair.source, mismatch->pair.destination, mismatch->sent.bytes,
      mismatch->sent.tag, name_of(mismatch->sent.call), mismatch->received.bytes,
      mismatch->received.tag, name_of(mismatch->received.call));
  abort(reason, now);
}

bool Shard::run_transfers(TimeNs now, Outbox& out) noexcept {
  const bool worked = transfers_->run(now, out);
  const auto& silent = transfers_->silent();
  if (!silent) return worked;
  if (silent->in_vain == 0 && neighbors_.judges_silence_of(silent->rank)) {
    transfers_->heard(silent->rank);
    return worked;
  }
  AbortReason reason{.code = AbortCode::kSilence,
                     .culprit_rank = silent->rank,
                     .reporter_rank = config_.rank,
                     .duration_ns = static_cast<std::uint64_t>(silent->for_ns)};
  if (silent->never_heard) {
    reason.set_detail("nothing ever came from it, though the ring has formed");
  }
  if (silent->in_vain != 0) {
    format_detail(
        reason,
        "transfer {} of process {} to process {}: it answers, but chunks that were pulled "
        "again and again never came: the MTU of the path may be below that of the ring's",
        silent->in_vain, silent->pair.source, silent->pair.destination);
  }
  abort(reason, now);
  return true;
}

}  // namespace gradwire::collective
