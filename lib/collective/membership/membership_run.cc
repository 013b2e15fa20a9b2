// SPDX-License-Identifier: BSD-3-Clause
// What a group does on this rank as time goes: it greets, tells of an abort, says bye, closes.
#include <algorithm>

#include "collective/membership/membership.h"

namespace gradwire::collective {

namespace {

constexpr std::uint32_t kAbortRepeats = 5;       ///< however soon the neighbors answer
constexpr std::uint32_t kAbortRepeatsMax = 400;  ///< if one does not
constexpr TimeNs kAbortSpacingNs = 4'000'000;    ///< doubled with each repetition
/// Of the leave limit, the part at its end in which a rank says bye though others still lack its
/// contributions.
constexpr TimeNs kLastWordsShare = 8;

}  // namespace

bool Membership::may_join(TimeNs now) const noexcept {
  return now - started_at_ < config_.timeouts.formation_ns && !greetings_.all_open();
}

bool Membership::ring_acknowledged() const noexcept {
  return neighbors_.all_acknowledged() && folds_.size() == 0 && ops_.spilled() == 0;
}

bool Membership::all_acknowledged() const noexcept {
  return ring_acknowledged() && off_ring_.idle();
}

TimeNs Membership::last_words_at() const noexcept {
  return leave_deadline_ - config_.timeouts.leave_ns / kLastWordsShare;
}

bool Membership::may_say_bye(TimeNs now) const noexcept {
  // A rank off the ring that died before it had all keeps this one waiting. Its neighbors must
  // hear that it leaves all the same: else they would take it for dead, and name it.
  return all_acknowledged() || (now >= last_words_at() && ring_acknowledged());
}

TimeNs Membership::deadline(TimeNs now, TimeNs soon) const noexcept {
  TimeNs earliest = kNever;
  if (group_.aborted()) {
    earliest = next_abort_;
    if (leave_wanted_ && !abort_event_wanted_) earliest = std::min(earliest, leave_deadline_);
  } else if (group_.state() == ShardState::kLeaving) {
    // Until then it waits for acknowledgements, and for the backend.
    if (ring_acknowledged()) earliest = may_say_bye(now) ? next_bye_ : last_words_at();
    if (folds_.size() == 0) earliest = std::min({earliest, close_at_, leave_deadline_});
  } else if (group_.forming()) {
    earliest = started_at_ + config_.timeouts.formation_ns;
    if (greetings_.greets_anyone()) earliest = std::min(earliest, next_hello_);
  }
  // Replies that found no room are tried again, soon but not at once: the port is full.
  if (greetings_.owes_answers() || neighbors_.owes_answers()) {
    earliest = std::min(earliest, now + soon);
  }
  return earliest;
}

bool Membership::run(TimeNs now, Outbox& out) noexcept {
  if (group_.aborted()) return run_aborted(now, out);
  if (greetings_.owes_answers()) greetings_.answer(now, out);
  if (neighbors_.owes_answers()) neighbors_.answer_byes(bye(), out);
  if (group_.forming()) return greet(now, out);
  return group_.state() == ShardState::kLeaving && run_leaving(now, out);
}

bool Membership::greet(TimeNs now, Outbox& out) noexcept {
  if (now < next_hello_ || !greetings_.greets_anyone()) return false;
  const bool worked = greetings_.greet(out);
  next_hello_ = now + (worked ? greetings_.spacing() : config_.timeouts.hello_interval_ns);
  return worked;
}

bool Membership::run_aborted(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  if (abort_event_wanted_ && folds_.size() == 0) {
    abort_event_wanted_ = false;
    events_.put({EventType::kAborted, 0, {}});
    worked = true;
  }
  const bool told = neighbors_.all_know_of(reason_);
  if (now >= next_abort_) {
    neighbors_.send_aborts(reason_, out);
    const TimeNs spacing_ns = std::min(kAbortSpacingNs << std::min(++aborts_sent_, kAbortRepeats),
                                       config_.timeouts.ping_interval_ns);
    const bool more =
        aborts_sent_ < (told ? kAbortRepeats : kAbortRepeatsMax) || (!told && may_join(now));
    next_abort_ = more ? now + spacing_ns : kNever;
    worked = true;
  }
  neighbors_.answer_after_abort(reason_, out);
  const bool last_word = told && next_abort_ == kNever;
  if (leave_wanted_ && !abort_event_wanted_ && (last_word || now >= leave_deadline_)) close();
  return worked;
}

bool Membership::run_leaving(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  const bool alone = neighbors_.count() == 0;
  if (!alone && now >= next_bye_ && may_say_bye(now)) {
    worked = neighbors_.send_byes(bye(), out);
    next_bye_ = now + config_.timeouts.hello_interval_ns;
    bye_sent_ = true;
  }
  if ((alone || bye_sent_) && neighbors_.all_byes_known() && close_at_ == kNever) {
    // After the last word a short while more, to answer a neighbor whose bye is on its way.
    close_at_ = bye_sent_ ? now + 2 * config_.timeouts.hello_interval_ns : now;
  }
  // A backend that still has chunks refers to client memory, however late it is.
  if ((now >= close_at_ || now >= leave_deadline_) && folds_.size() == 0) {
    close();
    worked = true;
  }
  return worked;
}

void Membership::close() noexcept {
  group_.become(ShardState::kClosed);
  events_.put({EventType::kClosed, 0, {}});
}

wire::ByeBody Membership::bye() const noexcept {
  const std::uint64_t done = ops_.done();
  return {done, ops_.digest(done).value_or(0), std::min(done, posted_by_all_)};
}

}  // namespace gradwire::collective
