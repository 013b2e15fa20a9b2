// SPDX-License-Identifier: BSD-3-Clause
// What is seen of a shard: its status, when it has something to do next, and whether the group
// moves.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/abort_detail.h"
#include "collective/shard.h"

namespace gradwire::collective {
namespace {

/// Between looks at a backend that has work, if nothing else calls for one.
constexpr TimeNs kBackendPollNs = 20'000;
/// The most that a round counts for: a lane that was paused did not poll.
constexpr TimeNs kRoundNsMax = 10'000'000;

}  // namespace

ShardStatus Shard::status(TimeNs) const noexcept {
  ShardStatus status;
  status.state = group_.state();
  status.posted_op_seq = ops_.posted();
  status.done_op_seq = ops_.done();
  neighbors_.fill(status);
  status.downstream_ip_since = rails_.path_since();
  if (ends_ != nullptr) status.peers_on_other_path = ends_->on_other_path();
  status.early_held = static_cast<std::uint32_t>(early_.size());
  status.in_backend = folds_.size();
  status.backend_name = folds_.backend().name();
  status.backend_path = folds_.backend().path();
  status.backend = folds_.backend().counters();
  if (direct_ != nullptr) status.scratch_bytes = direct_->scratch_bytes();
  if (const Op* oldest = ops_.find(ops_.done() + 1)) {
    status.oldest_op = oldest->record;
    status.oldest_op.retransmissions = counters_.retransmissions - oldest->record.retransmissions;
    status.waits_for_posts = !oldest->admitted;
    status.posted_onwards = posted_by_all_.heard_onwards() >= oldest->spec.op_seq;
  }
  if (direct_ != nullptr) {
    const Direct::Silent least = direct_->least_heard();
    status.least_heard_rank = least.rank;
    status.least_heard_ns = least.for_ns;
    status.least_heard_unanswered = least.unanswered;
    if (least.for_ns != 0) status.least_heard_ip = ends_->sends_to(least.rank);
    if (const auto missing = direct_->missing(ops_.done() + 1)) {
      status.is_contribution_missing = true;
      status.missing_rank = missing->rank;
      status.missing_rank_has_posted = missing->posted;
    }
  }
  neighbors_.fill_least_heard(status);
  if (transfers_ != nullptr && live()) status.transfer = transfers_->oldest();
  status.progress_at = stall_.moved_at();
  status.waits_for_downstream = waits_for_others();
  status.counters = counters_;
  return status;
}

TimeNs Shard::deadline(TimeNs now) const noexcept {
  const ShardState state = group_.state();
  if (state == ShardState::kIdle || state == ShardState::kClosed) return kNever;
  // What only a packet, a post or a client can move is not in here: a lane must not spin for it.
  TimeNs earliest = membership_.deadline(now, kBackendPollNs);
  if (state == ShardState::kAborted && abort_answers_ != nullptr && !abort_answers_->idle()) {
    earliest = std::min(earliest, now + kBackendPollNs);
  }
  // A backend that finishes later tells nobody when it does.
  if (folds_.size() > 0) earliest = std::min(earliest, now + kBackendPollNs);
  if (transfers_ != nullptr && live()) earliest = std::min(earliest, transfers_->deadline(now));
  if (links().empty()) {
    const bool room = folds_.size() < folds_.places() / 2;
    return live() && room && ops_.peek_own() != nullptr ? now : earliest;
  }
  if (stall_.asks() || neighbors_.owes_probes())
    earliest = std::min(earliest, now + kBackendPollNs);
  if (!live()) return earliest;
  if (direct_ != nullptr) earliest = std::min(earliest, direct_->deadline(now));
  if (!checks_.empty() || (!folds_.full() && early_.op_that_may_go(ops_) != 0) || held_may_go()) {
    return now;
  }
  earliest = std::min(earliest, neighbors_.deadline());
  for (const auto& link : links()) {
    if (!link->gets_data() || !link->end.answered() || !link->on_ring()) continue;
    if (something_may_go(link->sender())) {
      earliest = std::min(earliest, link->sender().pacing_time(now));
    }
  }
  return earliest;
}

bool Shard::something_may_go(const LinkSender& to) const noexcept {
  switch (to.blocked()) {
    case LinkSender::Blocked::kYes:
      return false;
    case LinkSender::Blocked::kNo:
      return true;
    case LinkSender::Blocked::kIfNothingStarts:
      break;
  }
  if (folds_.full()) return false;  // deadline() asks the backend.
  if (held_may_go() || spilled_may_go()) return true;
  const Op* own = ops_.peek_own();
  return own != nullptr && to.own_may_go(*own);
}

bool Shard::waits_for_others() const noexcept {
  if (ops_.spilled() > 0 || ops_.own_may_be_left()) return true;
  return std::any_of(links().begin(), links().end(),
                     [](const auto& link) { return link->gets_data() && !link->sender().idle(); });
}

bool Shard::has_in_flight(std::uint64_t op_seq) const noexcept {
  return std::any_of(links().begin(), links().end(), [&](const auto& link) {
    return link->gets_data() && link->sender().has_in_flight(op_seq);
  });
}

Membership::Cause Shard::left_too_early() const noexcept {
  // A rank says bye when all that it sent was acknowledged. So all of it is here by then, claimed
  // or among the early packets, and the rank has all that it needs of this one.
  const bool all_folded = folds_.size() == 0 && checks_.empty() && held_.empty();
  for (LinkIndex i = 0; i < links().size(); ++i) {
    if (!neighbors_.has_left(i)) continue;
    const std::uint64_t last = std::min(neighbors_.left_after_op_seq(i), ops_.posted());
    for (std::uint64_t op_seq = ops_.done() + 1; op_seq <= last; ++op_seq) {
      const Op* op = ops_.find(op_seq);
      if (op == nullptr || is_off_ring(op->shape)) continue;
      const bool to_send = op->rules.sends && op->rules.to == i &&
                           (op->own_next < op->own_end || op->spilled_left > 0 ||
                            links()[i]->sender().has_any_of(op_seq));
      const bool to_get =
          op->rules.from == i && op->arrivals_left > 0 && all_folded && !early_.has_any_of(op_seq);
      if (!to_send && !to_get) continue;
      AbortReason reason{.code = AbortCode::kPeerLeft,
                         .culprit_rank = links()[i]->end.rank(),
                         .reporter_rank = config_.rank,
                         .op_seq = op_seq};
      format_detail(reason,
                    "it said that it was done with op {}, but it has not {} all of its data",
                    op_seq, to_send ? "received" : "sent");
      return reason;
    }
  }
  return {};
}

TimeNs Shard::account_round(TimeNs now) noexcept {
  const TimeNs round = std::clamp<TimeNs>(now - last_poll_, 0, kRoundNsMax);
  last_poll_ = now;
  if (ends_ != nullptr) ends_->polled(now);
  if (direct_ != nullptr) direct_->count(round);
  if (transfers_ != nullptr) transfers_->count(round);
  if (!group_.formed()) return round;
  stall_.count(round);
  if (ops_.oldest_unfinished() != 0 && now - stall_.moved_at() >= kStallNs) {
    (waits_for_others() ? counters_.stalled_on_downstream_ns : counters_.stalled_on_upstream_ns) +=
        static_cast<std::uint64_t>(round);
    abort_if(left_too_early(), now);
    // If this rank has no members, those that have find that out.
    if (live() && !config_.folds_only() && stall_.look(ops_.oldest_unfinished(), links().empty()))
      become_stuck(now);
  }
  if (live()) abort_if(neighbors_.silent(round), now);
  return round;
}

bool Shard::send_questions(Outbox& out) noexcept {
  bool worked = false;
  auto& questions = stall_.questions();
  for (LinkIndex i = 0; i < links().size(); ++i) {
    Link& link = *links()[i];
    if (!link.gets_data() || !link.on_ring()) continue;
    if (!link.end.answered() || neighbors_.has_left(i)) {
      questions.clear();
      return false;
    }
    while (!questions.empty() &&
           link.end.send(config_.control_pool, link.end.side(out), [&](std::span<std::byte> room) {
             return wire::encode_progress_check(
                 room, link.end.header(wire::PacketType::kProgressCheck), questions.front());
           })) {
      questions.pop();
      worked = true;
    }
  }
  return worked;
}

void Shard::receive_question(const wire::ProgressCheckBody& check, TimeNs now) noexcept {
  if (check.origin_rank != config_.rank) {
    stall_.hand_on(check, ops_.posted());
  } else if (group_.formed() && check.op_seq == ops_.oldest_unfinished() &&
             stall_.on_return(check)) {
    become_stuck(now);
  }
}

void Shard::become_stuck(TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kStuck,
                     .culprit_rank = config_.rank,
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished(),
                     .duration_ns = static_cast<std::uint64_t>(stall_.stalled_ns())};
  const ShardStatus here = status(now);
  std::uint32_t lost = 0;
  for (const auto& link : links()) lost += link->gets_data() ? link->sender().lost() : 0;
  // Who is missing comes first: the rest may not fit.
  std::array<char, 64> who{};
  if (here.is_contribution_missing) {
    reason.culprit_rank = here.missing_rank;
    fmt::format_to_n(who.data(), who.size() - 1, "rank {} gives nothing to it{}; ",
                     here.missing_rank, neighbors_.has(here.missing_rank) ? ", but pings" : "");
  }
  format_detail(reason,
                "{}lane {}: posted {}, done {}, next posted {}, in flight {}, lost {}, ready {}, "
                "spilled {}, early {}, in backend {}, sent {} of {}",
                who.data(), config_.lane, ops_.posted(), ops_.done(), here.downstream_posted_op_seq,
                here.packets_in_flight, lost, here.transit_queued, ops_.spilled(), early_.size(),
                folds_.size(), here.chunks_sent, here.credit_chunks);
  abort(reason, now);
}

}  // namespace gradwire::collective
