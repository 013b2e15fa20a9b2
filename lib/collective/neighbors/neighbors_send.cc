// SPDX-License-Identifier: BSD-3-Clause
// What goes to neighbors: hellos, aborts, byes and the answers to them, pings and acknowledgements.
#include <algorithm>
#include <bit>

#include "collective/neighbors/neighbors.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

constexpr std::uint32_t kHellosByFirst = 8;    ///< path to a rank
constexpr std::uint32_t kHellosFromFirst = 2;  ///< source port
constexpr std::uint32_t kLastWordsFrom = 4;    ///< source ports, at once
/// Of the silence limit, for how long a rank whose port is behind answers no second hello: for
/// less than lies between rounds of them.
constexpr TimeNs kAnswerShare = 64;

}  // namespace

bool Neighbors::greets(LinkIndex link) const noexcept {
  return links_[link]->gets_data() && !end(link).answered();
}

bool Neighbors::greets_anyone() const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    if (greets(i)) return true;
  }
  return false;
}

bool Neighbors::greet(Outbox& out) noexcept {
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
  return worked;
}

void Neighbors::answer_hellos(TimeNs now, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    std::uint32_t& wanted = neighbors_[i].hello_acks_wanted;
    while (wanted != 0) {
      const auto path = static_cast<PathIndex>(std::countr_zero(wanted));
      if (!answer_path(i, path, now, out)) break;
      wanted &= wanted - 1;
    }
    // So that it does not begin with a source port that leads nowhere.
    std::uint8_t& heard = neighbors_[i].heard_source;
    const PathIndex path = end(i).path();
    if (heard != 0 &&
        send_hello(i, PacketType::kHello, {path, end(i).source_of(path)}, heard, out)) {
      heard = 0;
    }
  }
}

/// From the path's source port, and from one after the other beside it as long as the rank does not
/// say that it hears an answer.
bool Neighbors::answer_path(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept {
  Greetings& greetings = neighbors_[link].greetings[path];
  // A rank that says nothing of source ports is answered once anyway.
  const bool sources = greetings.unanswered > 1 && !group_.forming();
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
bool Neighbors::answer_first(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept {
  Greetings& greetings = neighbors_[link].greetings[path];
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

void Neighbors::answer_byes(const wire::ByeBody& done, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    bool& wanted = neighbors_[i].bye_ack_wanted;
    if (wanted) wanted = !send_bye(i, PacketType::kByeAck, done, out);
  }
}

bool Neighbors::send_byes(const wire::ByeBody& done, Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (!neighbors_[i].bye_acked) worked |= send_bye(i, PacketType::kBye, done, out);
  }
  return worked;
}

bool Neighbors::all_byes_known() const noexcept {
  return std::all_of(neighbors_.begin(), neighbors_.end(),
                     [](const Neighbor& neighbor) { return neighbor.bye_acked || neighbor.left; });
}

void Neighbors::send_aborts(const AbortReason& reason, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) send_abort(i, reason, out);
}

void Neighbors::answer_after_abort(const AbortReason& reason, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    bool& wanted = neighbors_[i].abort_reply_wanted;
    if (wanted) wanted = !send_abort(i, reason, out);
  }
}

bool Neighbors::all_know_of(const AbortReason& abort) const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    const Neighbor& neighbor = neighbors_[i];
    const bool fell_silent =
        abort.code == AbortCode::kSilence && abort.culprit_rank == end(i).rank();
    if (!neighbor.aborted && !neighbor.left && !fell_silent) return false;
  }
  return true;
}

bool Neighbors::send_hello(LinkIndex link, PacketType type, PathChoice::Way way, std::uint8_t heard,
                           Outbox& out) noexcept {
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
bool Neighbors::send_by_all(LinkIndex link, Outbox& out, Encode&& encode) noexcept {
  bool sent = false;
  const LinkEnd& to = end(link);
  const bool spare = to.any_side(out).has_spare();
  const std::uint32_t words =
      spare ? std::min<std::uint32_t>(kLastWordsFrom, to.sources().count) : 1;
  std::uint32_t& before = neighbors_[link].last_words;
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

bool Neighbors::send_abort(LinkIndex link, const AbortReason& reason, Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_abort(room, end(link).header(PacketType::kAbort), reason);
  });
}

bool Neighbors::send_bye(LinkIndex link, PacketType type, const wire::ByeBody& bye,
                         Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_bye(room, type, end(link).header(type), bye);
  });
}

bool Neighbors::send_rest(bool more_to_go, TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < count(); ++i) {
    Link& link = *links_[i];
    if (!link.gets_data() || !link.end.answered()) continue;
    LinkSender& to = link.sender();
    OutboxSide& box = link.end.side(out);
    worked |= to.send_ready(now, box);
    to.notice_blocked(more_to_go && link.on_ring(), now);
    if (!has_left(i)) worked |= to.send_ping_if_quiet(now, box);
  }
  return worked;
}

}  // namespace gradwire::collective
