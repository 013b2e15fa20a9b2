// SPDX-License-Identifier: BSD-3-Clause
// Transfers between processes: their time, and what ends the group.
#include "base/abort_detail.h"
#include "collective/off_ring/off_ring.h"

namespace gradwire::collective {

PostResult OffRing::post(const TransferSpec& spec, TimeNs now) noexcept {
  if (!transfers_) return PostResult::kUnsupported;
  const PostResult result = transfers_->post(spec, now);
  if (result == PostResult::kOk) judge_transfers(now);
  return result;
}

bool OffRing::pop_done(Event& out) noexcept {
  if (!transfers_) return false;
  if (Transfers::Sized sized; transfers_->pop_sized(sized)) {
    out = {EventType::kTransferSized, sized.id, {}, sized.bytes};
    return true;
  }
  std::uint64_t id = 0;
  if (!transfers_->pop_done(id)) return false;
  out = {EventType::kTransferDone, id, {}, 0};
  return true;
}

void OffRing::judge_transfers(TimeNs now) noexcept {
  const auto& mismatch = transfers_->mismatch();
  if (!mismatch || !live()) return;
  AbortReason reason{
      .code = AbortCode::kMismatch, .culprit_rank = mismatch->rank, .reporter_rank = config_.rank};
  format_detail(reason,
                "transfer {} of {}: sent {} bytes with tag {} ({}), received {}{} "
                "bytes with tag {} ({})",
                mismatch->sequence, wire::text_of(mismatch->pair).text, mismatch->sent.bytes,
                mismatch->sent.tag, name_of(mismatch->sent.call), mismatch->up_to ? "up to " : "",
                mismatch->received.bytes, mismatch->received.tag, name_of(mismatch->received.call));
  services_.abort(reason, now);
}

}  // namespace gradwire::collective
