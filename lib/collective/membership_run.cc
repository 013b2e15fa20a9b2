// SPDX-License-Identifier: BSD-3-Clause
// What a shard sends about itself, and when: hellos, aborts, byes and the answers to them.
#include <algorithm>
#include <bit>

#include "collective/membership.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

constexpr std::uint32_t kHellosByFirst = 8;      ///< path to a rank
constexpr std::uint32_t kAbortRepeats = 5;       ///< however soon the neighbours answer
constexpr std::uint32_t kAbortRepeatsMax = 400;  ///< if one does not
constexpr TimeNs kAbortSpacingNs = 4'000'000;    ///< doubled with each repetition
/// Of the leave limit, the part at its end in which a rank says bye though others still lack its
/// contributions.
constexpr TimeNs kLastWordsShare = 8;

}  // namespace

bool Membership::greets(LinkIndex link) const noexcept {
  return links_[link]->gets_data() && !end(link).answered();
}

bool Membership::greets_anyone() const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    if (greets(i)) return true;
  }
  return false;
}

bool Membership::may_join(TimeNs now) const noexcept {
  return now - started_at_ < config_.timeouts.formation_ns &&
         std::any_of(links_.begin(), links_.end(),
                     [](const auto& link) { return !link->end.open(); });
}

bool Membership::ring_acknowledged() const noexcept {
  return std::all_of(
             links_.begin(), links_.end(),
             [](const auto& link) { return !link->gets_data() || link->sender().idle(); }) &&
         folds_.size() == 0 && ops_.spilled() == 0;
}

bool Membership::all_acknowledged() const noexcept {
  return ring_acknowledged() && (direct_ == nullptr || direct_->idle()) &&
         (transfers_ == nullptr || transfers_->idle());
}

TimeNs Membership::last_words_at() const noexcept {
  return leave_deadline_ - config_.timeouts.leave_ns / kLastWordsShare;
}

bool Membership::may_say_bye(TimeNs now) const noexcept {
  // A rank off the ring that died before it had all keeps this one waiting. Its neighbours must
  // hear that it leaves all the same: else they would take it for dead, and name it.
  return all_acknowledged() || (now >= last_words_at() && ring_acknowledged());
}

bool Membership::knows_of_abort(LinkIndex link) const noexcept {
  const Neighbour& neighbour = neighbours_[link];
  return neighbour.aborted || neighbour.left ||
         (reason_.code == AbortCode::kSilence && reason_.culprit_rank == end(link).rank());
}

TimeNs Membership::deadline(TimeNs now, TimeNs soon) const noexcept {
  TimeNs earliest = kNever;
  if (state_ == ShardState::kAborted) {
    earliest = next_abort_;
    if (leave_wanted_ && !abort_event_wanted_) earliest = std::min(earliest, leave_deadline_);
  } else if (state_ == ShardState::kLeaving) {
    // Until then it waits for acknowledgements, and for the backend.
    if (ring_acknowledged()) earliest = may_say_bye(now) ? next_bye_ : last_words_at();
    if (folds_.size() == 0) earliest = std::min({earliest, close_at_, leave_deadline_});
  } else if (state_ == ShardState::kForming) {
    earliest = started_at_ + config_.timeouts.formation_ns;
    if (greets_anyone()) earliest = std::min(earliest, next_hello_);
  }
  // Replies that found no room are tried again, soon but not at once: the port is full.
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.hello_acks_wanted != 0 || neighbour.bye_ack_wanted ||
        neighbour.abort_reply_wanted) {
      earliest = std::min(earliest, now + soon);
    }
  }
  return earliest;
}

bool Membership::run(TimeNs now, Outbox& out) noexcept {
  if (state_ == ShardState::kAborted) return run_aborted(now, out);
  answer_hellos(out);
  for (LinkIndex i = 0; i < count(); ++i) {
    bool& wanted = neighbours_[i].bye_ack_wanted;
    if (wanted) wanted = !send_bye(i, PacketType::kByeAck, out);
  }
  if (state_ == ShardState::kForming) return greet(now, out);
  return state_ == ShardState::kLeaving && run_leaving(now, out);
}

bool Membership::greet(TimeNs now, Outbox& out) noexcept {
  if (now < next_hello_ || !greets_anyone()) return false;
  bool worked = false;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (!greets(i)) continue;
    // If the first path does not answer, the others are tried in turn.
    const std::uint32_t beyond = hellos_sent_ < kHellosByFirst ? 0 : hellos_sent_ - kHellosByFirst;
    const auto path = static_cast<PathIndex>(beyond % end(i).path_count());
    worked |= send_hello(i, PacketType::kHello, path, out);
  }
  ++hellos_sent_;
  next_hello_ = now + config_.timeouts.hello_interval_ns;
  return worked;
}

void Membership::answer_hellos(Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    std::uint32_t& wanted = neighbours_[i].hello_acks_wanted;
    while (wanted != 0) {
      const auto path = static_cast<PathIndex>(std::countr_zero(wanted));
      if (!send_hello(i, PacketType::kHelloAck, path, out)) break;
      wanted &= wanted - 1;
    }
  }
}

bool Membership::run_aborted(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  if (abort_event_wanted_ && folds_.size() == 0) {
    abort_event_wanted_ = false;
    events_.put({EventType::kAborted, 0, {}});
    worked = true;
  }
  bool told = true;
  for (LinkIndex i = 0; i < count(); ++i) told &= knows_of_abort(i);
  if (now >= next_abort_) {
    for (LinkIndex i = 0; i < count(); ++i) send_abort(i, out);
    const TimeNs spacing_ns = std::min(kAbortSpacingNs << std::min(++aborts_sent_, kAbortRepeats),
                                       config_.timeouts.ping_interval_ns);
    const bool more =
        aborts_sent_ < (told ? kAbortRepeats : kAbortRepeatsMax) || (!told && may_join(now));
    next_abort_ = more ? now + spacing_ns : kNever;
    worked = true;
  }
  for (LinkIndex i = 0; i < count(); ++i) {
    bool& wanted = neighbours_[i].abort_reply_wanted;
    if (wanted) wanted = !send_abort(i, out);
  }
  const bool last_word = told && next_abort_ == kNever;
  if (leave_wanted_ && !abort_event_wanted_ && (last_word || now >= leave_deadline_)) close();
  return worked;
}

bool Membership::run_leaving(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  if (!links_.empty() && now >= next_bye_ && may_say_bye(now)) {
    for (LinkIndex i = 0; i < count(); ++i) {
      if (!neighbours_[i].bye_acked) worked |= send_bye(i, PacketType::kBye, out);
    }
    next_bye_ = now + config_.timeouts.hello_interval_ns;
    bye_sent_ = true;
  }
  const bool done = std::all_of(neighbours_.begin(), neighbours_.end(), [&](const Neighbour& each) {
    return bye_sent_ && (each.bye_acked || each.left);
  });
  if (done && close_at_ == kNever) {
    // After the last word a short while more, to answer a neighbour whose bye is on its way.
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
  state_ = ShardState::kClosed;
  events_.put({EventType::kClosed, 0, {}});
}

bool Membership::send_hello(LinkIndex link, PacketType type, PathIndex path, Outbox& out) noexcept {
  // A hello is as long as a data packet, so it needs a packet's buffer.
  OutboxSide& box = end(link).any_side(out);
  return end(link).send_by(path, config_.packet_pool, box, [&](std::span<std::byte> room) {
    wire::HelloBody body;
    body.key = config_.key;
    body.incarnation = config_.incarnation;
    body.table_digest = config_.table_digest;
    body.payload_bytes = config_.payload_bytes;
    body.from_rank = config_.rank;
    body.to_rank = end(link).rank();
    body.nranks = config_.all_ranks();
    body.lanes = config_.lanes;
    for (const auto& each : links_) {
      if (each->brings_data()) body.credit_chunks = each->receiver().credit_limit();
    }
    body.posted_op_seq = ops_.posted();
    return wire::encode_hello(room, type, end(link).header(type), body,
                              std::max<std::size_t>(wire::kHeaderBytes + config_.payload_bytes,
                                                    wire::kHeaderBytes + wire::kHelloBodyBytes));
  });
}

/// By every path, since nobody knows yet which of them live. @return whether one took it.
template <class Encode>
bool Membership::send_by_all(LinkIndex link, Outbox& out, Encode&& encode) noexcept {
  bool sent = false;
  for (std::size_t path = 0; path < end(link).path_count(); ++path) {
    sent |= end(link).send_by(static_cast<PathIndex>(path), config_.control_pool,
                              end(link).any_side(out), encode);
  }
  return sent;
}

bool Membership::send_abort(LinkIndex link, Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_abort(room, end(link).header(PacketType::kAbort), reason_);
  });
}

bool Membership::send_bye(LinkIndex link, PacketType type, Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_bye(room, type, end(link).header(type), wire::ByeBody{ops_.done()});
  });
}

}  // namespace gradwire::collective
