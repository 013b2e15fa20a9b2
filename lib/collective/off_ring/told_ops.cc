// SPDX-License-Identifier: BSD-3-Clause
#include "collective/off_ring/told_ops.h"

#include "base/abort_detail.h"

namespace gradwire::collective {

void ToldOps::post(TimeNs now) noexcept {
  while (group_.formed()) {
    const auto told = direct_.told();
    if (!told) return;
    const EarlyContribution& early = told->contribution;
    // Ops between, of which nothing came here, have nothing for this rank.
    if (!ops_.skip_to(early.op_seq - 1)) return;
    OpSpec spec;
    spec.op_seq = early.op_seq;
    spec.collective = early.call.collective();
    spec.root = early.call.root;
    spec.count = early.call.count;
    spec.tag = early.call.tag;
    spec.datatype = early.call.datatype();
    spec.redop = early.call.redop();
    told_by_[early.op_seq % OpTable::kDescriptorsKept] = told->rank;
    const std::uint16_t rank = told->rank;
    const PostResult posted = services_.post_told(spec, now);
    if (posted == PostResult::kFull) return;
    if (posted != PostResult::kOk) return refuse(rank, spec, posted, now);
  }
}

/// Others wait for this rank's sum, which will not come.
void ToldOps::refuse(std::uint16_t rank, const OpSpec& spec, PostResult why, TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = why == PostResult::kTooLarge ? config_.rank : rank,
                     .reporter_rank = config_.rank,
                     .op_seq = spec.op_seq};
  format_detail(reason, "rank {} called {}, {} rank {}{}", rank, text_of(call_of(spec)).text,
                why == PostResult::kTooLarge ? "of which too many chunks go to a lane of"
                                             : "of which nothing should go to",
                config_.rank, why == PostResult::kTooLarge ? ": raise its limits.lane_chunks" : "");
  services_.abort(reason, now);
}

bool ToldOps::was_skipped(std::uint64_t op_seq) const noexcept {
  return ops_.was_posted(op_seq) && ops_.call(op_seq) == nullptr &&
         op_seq + OpTable::kDescriptorsKept > ops_.posted();
}

void ToldOps::report_skipped(std::uint16_t rank, const wire::DataHeader& theirs,
                             TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = rank,
                     .reporter_rank = config_.rank,
                     .op_seq = theirs.op_seq};
  format_detail(reason,
                "rank {} called {}, other ranks something else, of which rank {} sums nothing",
                rank, text_of(call_of(theirs)).text, config_.rank);
  services_.abort(reason, now);
}

}  // namespace gradwire::collective
