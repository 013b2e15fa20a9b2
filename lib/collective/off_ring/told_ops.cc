// SPDX-License-Identifier: BSD-3-Clause
#include "collective/off_ring/told_ops.h"

#include "base/abort_detail.h"
#include "base/planted_bug.h"

namespace gradwire::collective {

std::optional<ToldCall> ToldOps::next() const noexcept {
  std::optional<ToldCall> oldest;
  if (const ToldCall* call = calls_.oldest()) oldest = *call;
  if (const auto& parts = direct_.early().oldest()) {
    const EarlyContribution& early = parts->contribution;
    if (!oldest || early.op_seq < oldest->op_seq) {
      oldest = ToldCall{early.op_seq, parts->rank, early.since, early.call};
    }
  }
  if (!oldest) return {};
  // What its sender had told of before has ended here, if that is so long ago: else it could not
  // have posted this one.
  const bool is_next = oldest->since == 0 || ops_.posted() >= oldest->op_seq - oldest->since;
  if (!is_next && !planted(PlantedBug::kToldOutOfOrder)) return {};
  return oldest;
}

void ToldOps::hear(std::uint16_t rank, const wire::TileHeader& call, TimeNs now) noexcept {
  const OpCall theirs = call_of(call);
  if (!ops_.was_posted(call.op_seq)) {
    calls_.keep({call.op_seq, rank, call.since, theirs});
    post(now);
  } else if (was_skipped(call.op_seq)) [[unlikely]] {
    report_skipped(rank, call.op_seq, theirs, now);
  }
}

void ToldOps::post(TimeNs now) noexcept {
  while (group_.formed()) {
    const auto told = next();
    if (!told) return;
    // Ops between, of which nothing came here, have nothing for this rank.
    if (!ops_.skip_to(told->op_seq - 1)) return;
    OpSpec spec;
    spec.op_seq = told->op_seq;
    spec.collective = told->call.collective();
    spec.root = told->call.root;
    spec.count = told->call.count;
    spec.tag = told->call.tag;
    spec.datatype = told->call.datatype();
    spec.redop = told->call.redop();
    spec.wire = told->call.wire();
    told_by_[told->op_seq % OpTable::kDescriptorsKept] = told->rank;
    const PostResult posted = services_.post_told(spec, now);
    if (posted == PostResult::kFull) return;
    if (posted != PostResult::kOk) return refuse(told->rank, spec, posted, now);
    calls_.forget(told->op_seq);
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

void ToldOps::report_skipped(std::uint16_t rank, std::uint64_t op_seq, const OpCall& theirs,
                             TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = rank,
                     .reporter_rank = config_.rank,
                     .op_seq = op_seq};
  format_detail(reason,
                "rank {} called {}, other ranks something else, of which rank {} sums nothing",
                rank, text_of(theirs).text, config_.rank);
  services_.abort(reason, now);
}

}  // namespace gradwire::collective
