// SPDX-License-Identifier: BSD-3-Clause
// What changes the state: packets, time, the lane. membership_run.cc has what follows in time.
#include "collective/membership/membership.h"

#include "base/abort_detail.h"
#include "base/probe.h"
#include "base/require.h"

namespace gradwire::collective {

Membership::Membership(const ShardConfig& config, Group& group, Neighbors& neighbors,
                       Greetings& greetings, const OpTable& ops, const FoldQueue& folds,
                       const OffRing& off_ring, EventQueue& events)
    : config_(config),
      group_(group),
      neighbors_(neighbors),
      greetings_(greetings),
      ops_(ops),
      folds_(folds),
      off_ring_(off_ring),
      events_(events) {}

void Membership::start(TimeNs now) noexcept {
  started_at_ = now;
  next_hello_ = now;
  group_.become(ShardState::kForming);
  become_formed_if_ready(now);
}

void Membership::become_formed_if_ready(TimeNs now) noexcept {
  if (!group_.forming() || !greetings_.all_open()) return;
  group_.become(ShardState::kFormed);
  neighbors_.on_formed(now);
  greetings_.on_formed();
  events_.put({EventType::kFormed, 0, {}});
}

bool Membership::abort(const AbortReason& reason, TimeNs now) noexcept {
  if (!group_.live()) return false;
  group_.become(ShardState::kAborted);
  reason_ = reason;
  GRADWIRE_PROBE6(abort, config_.key.group_id, reason.op_seq, config_.rank, config_.lane,
                  static_cast<int>(reason.code), reason.culprit_rank);
  neighbors_.on_aborted();
  greetings_.on_aborted();
  abort_event_wanted_ = true;
  next_abort_ = now;
  if (leave_wanted_) leave_deadline_ = now + config_.timeouts.leave_ns;
  return true;
}

Membership::Cause Membership::leave(TimeNs now) noexcept {
  const bool hangs = hangs_ && group_.formed();
  if (leave_wanted_ && !hangs) return {};
  leave_wanted_ = true;
  // One without members goes on for the others.
  if (hangs && !neighbors_.someone_left()) return {};
  leave_deadline_ = now + config_.timeouts.leave_ns;
  next_bye_ = now;
  const std::uint64_t unfinished = ops_.oldest_unfinished();
  const bool transfers = off_ring_.has_transfers();
  if (group_.forming() || (group_.formed() && (unfinished != 0 || transfers))) {
    return AbortReason{.code = AbortCode::kPeerLeft,
                       .culprit_rank = config_.rank,
                       .reporter_rank = config_.rank,
                       .op_seq = unfinished};
  }
  if (group_.formed()) group_.become(ShardState::kLeaving);
  return {};
}

Membership::Cause Membership::on_hello(LinkIndex link, const wire::HelloBody& hello, bool is_answer,
                                       PathIndex path, TimeNs now) noexcept {
  Cause cause = is_answer ? greetings_.on_hello_ack(link, hello, path)
                          : greetings_.on_hello(link, hello, path, now);
  if (cause) return cause;
  neighbors_.heard(link);
  become_formed_if_ready(now);
  return {};
}

Membership::Cause Membership::on_bye(LinkIndex link, const wire::ByeBody& bye,
                                     TimeNs now) noexcept {
  neighbors_.on_bye(link, bye);
  become_formed_if_ready(now);
  return neighbors_.link(link).attached() ? left_alone_by(link) : missed_by(link);
}

/// A rank without members leaves when this one has said that it leaves: before, somebody ended it.
Membership::Cause Membership::left_alone_by(LinkIndex link) const noexcept {
  if (group_.state() == ShardState::kLeaving) return {};
  AbortReason reason{.code = AbortCode::kPeerLeft,
                     .culprit_rank = neighbors_.link(link).end.rank(),
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished()};
  reason.set_detail("it has no members and sums for the others, and left before them");
  return reason;
}

Membership::Cause Membership::missed_by(LinkIndex link) const noexcept {
  require(link < neighbors_.count(), "a link is one of this rank's");
  if (!neighbors_.has_left(link) || neighbors_.link(link).attached()) return {};
  const std::uint64_t last_there = neighbors_.left_after_op_seq(link);
  if (off_ring_.has_transfers_with(neighbors_.link(link).end.rank())) {
    AbortReason reason{.code = AbortCode::kPeerLeft,
                       .culprit_rank = neighbors_.link(link).end.rank(),
                       .reporter_rank = config_.rank};
    reason.set_detail("a transfer with it is unfinished here");
    return reason;
  }
  if (ops_.oldest_unfinished() == 0 || ops_.posted() <= last_there) return {};
  AbortReason reason{.code = AbortCode::kPeerLeft,
                     .culprit_rank = neighbors_.link(link).end.rank(),
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished()};
  format_detail(reason, "its last op was {}, here {} were posted", last_there, ops_.posted());
  return reason;
}

Membership::Cause Membership::missed_by_who_left() const noexcept {
  // As in Neighbors::silent(): whom data comes from is judged before whom it goes to.
  for (LinkIndex i = neighbors_.count(); i-- > 0;) {
    if (Cause cause = missed_by(i)) return cause;
  }
  return {};
}

Membership::Cause Membership::overdue(TimeNs now) const noexcept {
  if (!group_.forming() || now - started_at_ < config_.timeouts.formation_ns) return {};
  for (const auto& link : neighbors_.links()) {
    if (link->end.open()) continue;
    AbortReason reason{.code = AbortCode::kFormation,
                       .culprit_rank = link->end.rank(),
                       .reporter_rank = config_.rank,
                       .duration_ns = static_cast<std::uint64_t>(now - started_at_)};
    const bool unanswered = link->greets() && !link->end.answered();
    const char* const missing =
        unanswered ? "it did not answer our hello" : "no hello came from it";
    const Unfit& unfit = greetings_.unfit(link->end.address().index);
    const std::uint8_t version = unfit.version;
    if (unfit.other_epoch) {
      format_detail(reason, "rank {} at {} joins epoch {} of the group, rank {} epoch {}; {}",
                    link->end.rank(), wire::to_string(link->end.address().ip), unfit.epoch,
                    config_.rank, config_.key.epoch, missing);
    } else if (version != 0) {
      format_detail(reason,
                    "rank {} at {} sends version {} of the chunk protocol, rank {} version {}; {}",
                    link->end.rank(), wire::to_string(link->end.address().ip), version,
                    config_.rank, wire::kProtocolVersion, missing);
    } else if (unfit.unsealed) {
      format_detail(
          reason, "rank {} at {} sends packets that are not sealed as those of rank {} are; {}",
          link->end.rank(), wire::to_string(link->end.address().ip), config_.rank, missing);
    } else {
      format_detail(reason, "{} in {} ms (lane {}, payload {})", missing,
                    (now - started_at_) / 1'000'000, config_.lane, config_.payload_bytes);
    }
    return reason;
  }
  require(false, "a group is formed when all its links are open");
  return {};
}

}  // namespace gradwire::collective
