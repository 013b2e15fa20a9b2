// SPDX-License-Identifier: BSD-3-Clause
// A rank without members: no client posts there. Ops are told of by what others contribute to them.
#include "base/abort_detail.h"
#include "collective/shard.h"

namespace gradwire::collective {

using wire::Drop;

void Shard::post_told(TimeNs now) noexcept {
  while (group_.formed()) {
    const auto told = direct_->told();
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
    spec.redop = early.call.redop;
    told_by_[early.op_seq % OpTable::kDescriptorsKept] = told->rank;
    const std::uint16_t rank = told->rank;
    const PostResult posted = post(spec, now);
    if (posted == PostResult::kFull) return;
    if (posted != PostResult::kOk) return refuse_told(rank, spec, posted, now);
  }
}

/// Others wait for this rank's sum, which will not come.
void Shard::refuse_told(std::uint16_t rank, const OpSpec& spec, PostResult why,
                        TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = why == PostResult::kTooLarge ? config_.rank : rank,
                     .reporter_rank = config_.rank,
                     .op_seq = spec.op_seq};
  format_detail(reason, "rank {} called {}, {} rank {}{}", rank, text_of(call_of(spec)).text,
                why == PostResult::kTooLarge ? "of which too many chunks go to a lane of"
                                             : "of which nothing should go to",
                config_.rank, why == PostResult::kTooLarge ? ": raise its limits.lane_chunks" : "");
  abort(reason, now);
}

/// It names an op that was taken for one which has nothing for this rank.
bool Shard::was_skipped(std::uint64_t op_seq) const noexcept {
  return config_.folds_only() && ops_.was_posted(op_seq) && ops_.call(op_seq) == nullptr &&
         op_seq + OpTable::kDescriptorsKept > ops_.posted();
}

void Shard::report_skipped(std::uint16_t rank, const wire::DataHeader& theirs,
                           TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = rank,
                     .reporter_rank = config_.rank,
                     .op_seq = theirs.op_seq};
  format_detail(reason,
                "rank {} called {}, other ranks something else, of which rank {} sums nothing",
                rank, text_of(call_of(theirs)).text, config_.rank);
  abort(reason, now);
}

}  // namespace gradwire::collective
