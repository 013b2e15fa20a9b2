// SPDX-License-Identifier: BSD-3-Clause
// What a shard sends about itself, and when: hellos, aborts, byes and the answers to them.
#include <algorithm>
#include <bit>

#include "collective/membership/membership.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

constexpr std::uint32_t kHellosByFirst = 8;    ///< path to a rank
constexpr std::uint32_t kHellosFromFirst = 2;  ///< source port
constexpr std::uint32_t kLastWordsFrom = 4;    ///< source ports, at once
/// Of the silence limit, for how long a rank whose port is behind answers no second hello: for
/// less than lies between rounds of them.
constexpr TimeNs kAnswerShare = 64;
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
    if (neighbour.hello_acks_wanted != 0 || neighbour.heard_source != 0 ||
        neighbour.bye_ack_wanted || neighbour.abort_reply_wanted) {
      earliest = std::min(earliest, now + soon);
    }
  }
  return earliest;
}

bool Membership::run(TimeNs now, Outbox& out) noexcept {
  if (state_ == ShardState::kAborted) return run_aborted(now, out);
  answer_hellos(now, out);
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
    const std::size_t paths = end(i).path_count();
    const auto path = static_cast<PathIndex>(beyond % paths);
    // All of them from each path, however many paths there are.
    const std::size_t turn = hellos_sent_ - beyond + beyond / paths;
    const auto source = hellos_sent_ < kHellosFromFirst ? 0 : static_cast<std::uint32_t>(turn);
    worked |= send_hello(i, PacketType::kHello, {path, end(i).source_after(path, source)}, 0, out);
  }
  ++hellos_sent_;
  next_hello_ = now + config_.timeouts.hello_interval_ns;
  return worked;
}

void Membership::answer_hellos(TimeNs now, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    std::uint32_t& wanted = neighbours_[i].hello_acks_wanted;
    while (wanted != 0) {
      const auto path = static_cast<PathIndex>(std::countr_zero(wanted));
      if (!answer_hellos(i, path, now, out)) break;
      wanted &= wanted - 1;
    }
    // So that it does not begin with a source port that leads nowhere.
    std::uint8_t& heard = neighbours_[i].heard_source;
    const PathIndex path = end(i).path();
    if (heard != 0 &&
        send_hello(i, PacketType::kHello, {path, end(i).source_of(path)}, heard, out)) {
      heard = 0;
    }
  }
}

/// From the path's source port, and from one after the other beside it as long as the rank does not
/// say that it hears an answer.
bool Membership::answer_hellos(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept {
  Greetings& greetings = neighbours_[link].greetings[path];
  // A rank that says nothing of source ports is answered once anyway.
  const bool sources = greetings.unanswered > 1 && state_ != ShardState::kForming;
  if (sources && !end(link).any_side(out).has_spare()) return answer_first(link, path, now, out);
  // What it asks for may be an acknowledgement that was lost.
  if (sources) links_[link]->receiver().transport().request_ack();
  while (greetings.unanswered != 0) {
    const auto heard = static_cast<std::uint8_t>(std::countr_zero(greetings.unanswered));
    const std::uint8_t own = end(link).source_of(path);
    const std::uint8_t other =
        greetings.heard ? own : end(link).source_after(path, greetings.answers);
    // A port that has room for one packet at a time would send the same answer for ever, and
    // nothing after it.
    if (greetings.own_answered != heard) {
      if (!send_hello(link, PacketType::kHelloAck, {path, own}, heard, out)) return false;
      greetings.own_answered = heard;
    }
    if (other != own && !send_hello(link, PacketType::kHelloAck, {path, other}, heard, out)) {
      return false;
    }
    greetings.own_answered.reset();
    greetings.unanswered &= greetings.unanswered - 1;
    ++greetings.answers;
  }
  return true;
}

/// The port is behind, and others wait for what goes out there: of all that came in a while the
/// first is answered, from the path's source port and from others by turns.
bool Membership::answer_first(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept {
  Greetings& greetings = neighbours_[link].greetings[path];
  if (now >= greetings.next_answer) {
    const bool own = greetings.heard || greetings.answers % 2 == 0;
    const std::uint8_t from = end(link).source_after(path, own ? 0 : (greetings.answers + 1u) / 2);
    if (!send_hello(link, PacketType::kHelloAck, {path, from}, greetings.first, out)) return false;
    links_[link]->receiver().transport().request_ack();
    ++greetings.answers;
    greetings.next_answer = now + config_.timeouts.silence_ns / kAnswerShare;
  }
  greetings.unanswered = 0;
  return true;
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

bool Membership::send_hello(LinkIndex link, PacketType type, PathChoice::Way way,
                            std::uint8_t heard, Outbox& out) noexcept {
  // A hello is as long as a data packet, so it needs a packet's buffer.
  OutboxSide& box = end(link).any_side(out);
  const auto encode = [&](std::span<std::byte> room) {
    wire::HelloBody body;
    body.key = config_.key;
    body.incarnation = config_.incarnation;
    body.table_digest = config_.table_digest;
    body.payload_bytes = config_.payload_bytes;
    body.from_rank = config_.rank;
    body.to_rank = end(link).rank();
    body.nranks = config_.all_ranks();
    body.members = config_.members_said();
    body.folding_ranks = config_.folding_ranks;
    body.lanes = config_.lanes;
    for (const auto& each : links_) {
      if (each->brings_data()) body.credit_chunks = each->receiver().credit_limit();
    }
    body.posted_op_seq = ops_.posted();
    if (end(link).sources().known) body.source = static_cast<std::uint8_t>(way.source + 1);
    body.heard_source = heard;
    return wire::encode_hello(room, type, end(link).header(type), body,
                              std::max<std::size_t>(wire::kHeaderBytes + config_.payload_bytes,
                                                    wire::kHeaderBytes + wire::kHelloBodyBytes));
  };
  return end(link).send_from(way.path, way.source, config_.packet_pool, box, encode);
}

/// By every path, and from other source ports each time, since nobody knows yet which of them live:
/// from several at once, unless the port is behind.
/// @return whether one took it.
template <class Encode>
bool Membership::send_by_all(LinkIndex link, Outbox& out, Encode&& encode) noexcept {
  bool sent = false;
  const LinkEnd& to = end(link);
  const bool spare = to.any_side(out).has_spare();
  const std::uint32_t words =
      spare ? std::min<std::uint32_t>(kLastWordsFrom, to.sources().count) : 1;
  std::uint32_t& before = neighbours_[link].last_words;
  for (std::size_t i = 0; i < to.path_count(); ++i) {
    const auto path = static_cast<PathIndex>(i);
    for (std::uint32_t word = 0; word < words; ++word) {
      const bool own = word == 0 && (spare || before % 2 == 0);
      const std::uint8_t source = to.source_after(path, own ? 0 : before + word);
      sent |= to.send_from(path, source, config_.control_pool, to.any_side(out), encode);
    }
  }
  before += words;
  return sent;
}

bool Membership::send_abort(LinkIndex link, Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_abort(room, end(link).header(PacketType::kAbort), reason_);
  });
}

bool Membership::send_bye(LinkIndex link, PacketType type, Outbox& out) noexcept {
  const std::uint64_t done = ops_.done();
  const wire::ByeBody bye{done, ops_.digest(done).value_or(0), std::min(done, posted_by_all_)};
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_bye(room, type, end(link).header(type), bye);
  });
}

}  // namespace gradwire::collective
