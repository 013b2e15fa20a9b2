// SPDX-License-Identifier: BSD-3-Clause
// Ranks that call different things: what the next rank says that it called, and how it is told.
#include <algorithm>
#include <utility>

#include "base/abort_detail.h"
#include "collective/shard.h"

namespace gradwire::collective {

void Shard::compare_calls(TimeNs now) noexcept {
  const auto next = std::find_if(links().begin(), links().end(), [](const auto& link) {
    return link->gets_data() && link->on_ring();
  });
  require(next != links().end(), "who compares calls has a next rank");
  if (const wire::SaidCall* said = calls_.mismatch()) {
    const OpCall theirs = {said->count, said->tag, said->root,
                           kinds_of(said->collective, said->datatype), said->redop};
    const OpCall* ours = ops_.call(said->op_seq);
    if (said->op_seq == calls_.first() && ours != nullptr) {
      return report_mismatch((*next)->end.rank(), said->op_seq, *ours, theirs, config_.rank, now);
    }
    return report_mismatch_among("called", (*next)->end.rank(), said->op_seq, now);
  }
  if (calls_.differs_from_who_left()) {
    return report_mismatch_among("has left, and had called", (*next)->end.rank(),
                                 calls_.last_of_who_left(), now);
  }
  const std::uint64_t last = std::min(calls_.agreed(), ops_.posted());
  agreed_up_to_ = std::max(agreed_up_to_, ops_.done());
  while (agreed_up_to_ < last) {
    Op* op = ops_.find(++agreed_up_to_);
    if (op == nullptr || !op->unagreed) continue;
    op->unagreed = false;
    stall_.moved(now);
    finish_if_done(*op);
  }
  (*next)->sender().ask_for_call(calls_.asks(last_compared_));
}

void Shard::report_mismatch_among(const char* what, std::uint16_t rank, std::uint64_t last,
                                  TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = config_.rank,
                     .reporter_rank = config_.rank,
                     .op_seq = calls_.first()};
  format_detail(reason, "rank {} {} something else than rank {} in one of the ops {} to {}", rank,
                what, config_.rank, calls_.first(), last);
  abort(reason, now);
}

void Shard::report_mismatch(std::uint16_t rank, std::uint64_t op_seq, const OpCall& ours,
                            const OpCall& theirs, std::uint16_t culprit, TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = culprit,
                     .reporter_rank = config_.rank,
                     .op_seq = op_seq};
  // Several ranks may see it at once, each its own pair: the lower rank first, so that two ranks
  // that see each other say the same.
  struct Call {
    std::uint16_t rank;
    OpCall op;
  };
  Call first{rank, theirs};
  const bool told = config_.folds_only();
  Call second{told ? told_by_[op_seq % told_by_.size()] : config_.rank, ours};
  if (second.rank < first.rank) std::swap(first, second);
  format_detail(reason, "rank {} called {}, rank {} called {}", first.rank, text_of(first.op).text,
                second.rank, text_of(second.op).text);
  abort(reason, now);
}

}  // namespace gradwire::collective
