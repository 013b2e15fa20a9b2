// SPDX-License-Identifier: BSD-3-Clause
// Ops by tiles: how they end, and what ends the group.
#include "collective/off_ring/off_ring.h"
#include "collective/ops/op_faults.h"

namespace gradwire::collective {

void OffRing::settle_tiles(TimeNs now) noexcept {
  if (!live()) return;
  if (tiles_->take_moved()) stall_.moved(now);
  if (const auto& mismatch = tiles_->mismatch()) {
    return report_mismatch(mismatch->rank, mismatch->op_seq, mismatch->ours, mismatch->theirs, now);
  }
  if (tiles_->failed() != 0) return abort_for_fold(tiles_->failed(), now);
  for (std::uint64_t op_seq = 0; tiles_->pop_done(op_seq);) {
    Op* op = ops_.find(op_seq);
    require(op != nullptr, "an op by tiles is active until it is done");
    op->arrivals_left = 0;
    op_ends_.finish_if_done(*op);
  }
}

void OffRing::fill_tiles(ShardStatus& status) const noexcept {
  const auto missing = tiles_->missing(ops_.done() + 1);
  if (!missing) return;
  status.is_contribution_missing = true;
  status.missing_rank = missing->rank;
  status.missing_rank_has_posted = missing->posted;
  status.tiles = missing->progress;
}

}  // namespace gradwire::collective
