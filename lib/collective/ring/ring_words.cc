// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ring/ring_words.h"

#include <algorithm>

#include "base/abort_detail.h"
#include "collective/ops/op_faults.h"

namespace gradwire::collective {

void RingWords::on_posted(const OpRules& rules, TimeNs now) noexcept {
  const std::uint64_t op_seq = ops_.posted();
  if (rules.waits_for_all) last_waiting_ = op_seq;
  if (rules.one_way) last_one_way_ = op_seq;
  if (rules.compares || rules.waits_for_all) last_compared_ = op_seq;
  if (compares_) {
    calls_.on_posted(op_seq);
    compare(now);
    if (!group_.live()) return;
  }
  on_words(now);
}

bool RingWords::on_ack(const wire::AckHeader& ack, TimeNs now) noexcept {
  const std::uint64_t agreed_before = calls_.agreed();
  calls_.hear(ack.called, ack.posted_op_seq);
  compare(now);
  // What waits for all ranks must not end before it is known where they differ.
  if (!group_.live() || calls_.differ()) return false;
  if (calls_.agreed() > agreed_before) on_words(now);
  if (posted_.hear(ack.posted_onwards, ack.posted_by_all)) on_words(now);
  return true;
}

void RingWords::compare_last(const wire::ByeBody& bye, TimeNs now) noexcept {
  // What it called otherwise explains more than that it left.
  calls_.hear_last(bye.completed_op_seq, bye.digest);
  compare(now);
}

void RingWords::on_left(const wire::ByeBody& bye, TimeNs now) noexcept {
  // It had posted all that it finished. Of what waits for all ranks its own word counts: it may
  // have called something else that did not.
  static_cast<void>(posted_.hear(bye.posted_by_all, bye.posted_by_all));
  on_words(now);
}

void RingWords::admit(TimeNs now) noexcept {
  const PostedWords here = words();
  for (const auto& link : links_) {
    if (!link->brings_data() || !link->on_ring()) continue;
    const PostedWords& told = link->receiver().words_told();
    if (std::min(here.onwards, last_waiting_) > told.onwards ||
        std::min(here.everyone, last_waiting_) > told.everyone) {
      link->receiver().transport().request_ack();
    }
  }
  const std::uint64_t last = std::min(here.everyone, last_waiting_);
  std::uint64_t op_seq = std::max(admitted_up_to_, ops_.done()) + 1;
  admitted_up_to_ = std::max(admitted_up_to_, last);
  membership_.note_posted_by_all(admitted_up_to_);
  for (; op_seq <= last; ++op_seq) {
    Op* op = ops_.find(op_seq);
    if (op == nullptr || op->admitted) continue;
    op->admitted = true;
    stall_.moved(now);
    op_ends_.finish_if_done(*op);
  }
}

bool RingWords::awaits_some() const noexcept {
  if (admitted_up_to_ < last_waiting_) return true;
  if (compares_ && std::max(agreed_up_to_, ops_.done()) < last_compared_) return true;
  if (last_one_way_ <= ops_.done()) return false;
  const Op* oldest = ops_.find(ops_.done() + 1);
  return oldest != nullptr && oldest->worked_off() && !oldest->finished();
}

Link& RingWords::next() const noexcept {
  const auto found = std::find_if(links_.begin(), links_.end(), [](const auto& link) {
    return link->gets_data() && link->on_ring();
  });
  require(found != links_.end(), "who compares calls has a next rank");
  return **found;
}

void RingWords::compare(TimeNs now) noexcept {
  Link& to = next();
  if (const wire::SaidCall* said = calls_.mismatch()) {
    const OpCall theirs = {said->count, said->tag, said->root,
                           kinds_of(said->collective, said->datatype),
                           how_of(said->redop, said->format)};
    const OpCall* ours = ops_.call(said->op_seq);
    if (said->op_seq == calls_.first() && ours != nullptr) {
      return services_.abort(mismatch_of(config_, said->op_seq, {to.end.rank(), theirs},
                                         {config_.rank, *ours}, config_.rank),
                             now);
    }
    return report_among("called", to.end.rank(), said->op_seq, now);
  }
  if (calls_.differs_from_who_left()) {
    return report_among("has left, and had called", to.end.rank(), calls_.last_of_who_left(), now);
  }
  const std::uint64_t last = std::min(calls_.agreed(), ops_.posted());
  agreed_up_to_ = std::max(agreed_up_to_, ops_.done());
  while (agreed_up_to_ < last) {
    Op* op = ops_.find(++agreed_up_to_);
    if (op == nullptr || !op->unagreed) continue;
    op->unagreed = false;
    stall_.moved(now);
    op_ends_.finish_if_done(*op);
  }
  to.sender().ask_for_call(calls_.asks(last_compared_));
}

void RingWords::report_among(const char* what, std::uint16_t rank, std::uint64_t last,
                             TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = config_.rank,
                     .reporter_rank = config_.rank,
                     .op_seq = calls_.first()};
  format_detail(reason, "rank {} {} something else than rank {} in one of the ops {} to {}", rank,
                what, config_.rank, calls_.first(), last);
  services_.abort(reason, now);
}

}  // namespace gradwire::collective
