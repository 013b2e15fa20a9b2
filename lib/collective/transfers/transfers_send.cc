// SPDX-License-Identifier: BSD-3-Clause
// What is sent, and when.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/transfers/transfers.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

wire::OfferHeader offer_of(const OutPair& pair) noexcept {
  wire::OfferHeader offer;
  offer.pair = pair.pair;
  offer.sequence = pair.sequence;
  offer.terms = pair.terms;
  return offer;
}

}  // namespace

/// @return whether it is the source's turn: to offer.
bool Transfers::look_at(OutPair& out, TimeNs now) noexcept {
  if (!out.active || out.heard) return false;
  if (now < out.timer.due) return true;
  links_.end(out.rank).repeats(out.timer.tries, config_.timeouts, now);
  out.offer_wanted = out.asks = true;
  ++out.timer.tries;
  out.timer.due = now + queues_.patience(out.rank, out.timer.tries);
  queues_.queue(out);
  return true;
}

/// @return whether it is the destination's turn: to pull, or to say that all has come.
bool Transfers::look_at(InPair& in, TimeNs now) noexcept {
  const bool pulls = in.active && in.asked != 0;
  const bool owes = in.owed > in.confirmed;
  if (!pulls && !owes) return false;
  if (now < in.timer.due) return true;
  links_.end(in.rank).repeats(in.timer.tries, config_.timeouts, now);
  if (owes && !pulls && links_.is_silent(in.rank)) {
    // The source is gone; what it sent is here.
    require(owed_ > 0, "a source that is given up was owed a word");
    in.confirmed = in.owed;
    --owed_;
    return false;
  }
  if (const TimeNs for_ns = links_.polled() - in.waits_since;
      pulls && in.timer.tries >= kUnansweredMin && for_ns >= config_.timeouts.stuck_ns) {
    lacking_ = {in.pair, in.sequence};
    links_.found_in_vain(in.rank, for_ns, InVain::kPiece);
    return false;
  }
  if (pulls && !planted(PlantedBug::kPulledOnce)) {
    const bool all = in.timer.tries % kTriesForAll == 0;
    pulls_.pull_again(in, all ? in.asked : in.asked & (~in.asked + 1), now);
  }
  in.pull_wanted = in.asks = true;
  ++in.timer.tries;
  in.timer.due = now + queues_.patience(in.rank, in.timer.tries);
  queues_.queue(in);
  return true;
}

void Transfers::look_at_watched(TimeNs now) noexcept {
  using Seen = Sweep<std::uint32_t>::Seen;
  queues_.watched().run(now, [&](std::uint32_t item) -> Seen {
    const bool comes = item % 2 == 1;
    PairTimer& timer = comes ? ins_[item / 2].timer : outs_[item / 2].timer;
    if (comes ? look_at(ins_[item / 2], now) : look_at(outs_[item / 2], now)) {
      return {Seen::Next::kStays, timer.due};
    }
    timer.watched = false;
    return {Seen::Next::kGoes};
  });
}

void Transfers::ask(std::uint16_t rank, TimeNs now) noexcept {
  links_.end(rank).repeats(links_.unanswered(rank), config_.timeouts, now);
  const std::uint32_t item = under_way_.asked_of(rank);
  require(item != PairOrder::kNobody, "a rank that is awaited has a transfer under way");
  if (item % 2 == 0) {
    OutPair& out = outs_[item / 2];
    out.offer_wanted = out.asks = true;
    queues_.queue(out);
  } else {
    InPair& in = ins_[item / 2];
    in.pull_wanted = in.asks = true;
    queues_.queue(in);
  }
}

bool Transfers::run(TimeNs now, Outbox& out) noexcept {
  bool worked = !here_.empty() && copy_here();
  if (now >= queues_.watched().next_due()) {
    look_at_watched(now);
    worked = true;
  }
  const std::uint32_t sent = turns_.run(
      kTransferBurst, [&] { return send_word(now, out); },
      [&] { return send_next_piece(now, out); });
  const bool waits =
      !queues_.words().empty() || (!queues_.sending().empty() && now >= paced_until_);
  turns_.note(sent, waits);
  return sent > 0 || worked;
}

bool Transfers::send_word(TimeNs now, Outbox& out) noexcept {
  while (!queues_.words().empty()) {
    const std::uint32_t item = queues_.words().front();
    const bool comes = item % 2 == 1;
    const Sent outcome = comes ? send(ins_[item / 2], now, out) : send(outs_[item / 2], now, out);
    if (outcome == Sent::kBlocked) return false;
    queues_.words().pop();
    (comes ? ins_[item / 2].timer : outs_[item / 2].timer).queued = false;
    if (comes && ins_[item / 2].pull_wanted) queues_.queue(ins_[item / 2]);
    if (!comes && outs_[item / 2].offer_wanted) queues_.queue(outs_[item / 2]);
    if (outcome == Sent::kYes) return true;
  }
  return false;
}

bool Transfers::send_next_piece(TimeNs now, Outbox& out) noexcept {
  while (!queues_.sending().empty()) {
    OutPair& pair = outs_[queues_.sending().front()];
    const bool sends = pair.wanted != 0;
    if (sends && (now < paced_until_ || send_piece(pair, now, out) == Sent::kBlocked)) return false;
    if (pair.wanted == 0) {
      pair.sending = false;
      queues_.sending().pop();
    }
    if (sends) return true;
  }
  return false;
}

TimeNs Transfers::deadline(TimeNs now) const noexcept {
  if (!here_.empty()) return now;
  if (!queues_.words().empty()) return now;
  const TimeNs due = queues_.watched().next_due();
  return queues_.sending().empty() ? due : std::min(due, std::max(now, paced_until_));
}

Transfers::Sent Transfers::send(OutPair& pair, TimeNs now, Outbox& out) noexcept {
  LinkEnd& end = links_.end(pair.rank);
  OutboxSide& box = end.any_side(out);
  if (box.full()) return Sent::kBlocked;
  if (!pair.offer_wanted) return Sent::kNothing;
  // An answer goes back the way that the question came.
  const PathIndex path = pair.asks ? end.path() : end.answer_by();
  const bool sent = end.send_by(path, config_.control_pool, box, [&](std::span<std::byte> room) {
    const wire::CommonHeader common = end.header(PacketType::kOffer);
    const auto number = static_cast<std::uint32_t>(common.packet_number);
    wire::OfferHeader offer = offer_of(pair);
    offer.asks = pair.asks;
    offer.again = pair.asks && links_.says_again(pair.rank, pair.timer.tries);
    offer.done = !pair.active && pair.sequence != 0;
    if (!pair.offered) pair.first_offer = number;
    pair.offered = true;
    if (pair.asks) {
      links_.time(pair.rank, common.packet_number, now);
      ++counters_.transfer_asks;
    }
    return wire::encode_offer(room, common, offer);
  });
  if (!sent) return Sent::kBlocked;
  if (pair.asks) links_.asked(pair.rank);
  pair.offer_wanted = !pair.asks && links_.answered(pair.rank);
  pair.asks = false;
  return Sent::kYes;
}

Transfers::Sent Transfers::send_piece(OutPair& pair, TimeNs now, Outbox& out) noexcept {
  LinkEnd& end = links_.end(pair.rank);
  OutboxSide& box = end.any_side(out);
  if (box.full() || !end.has_key()) return Sent::kBlocked;
  // It goes the way that the pulls come: of pieces that are lost this rank hears nothing else.
  const PathIndex path = end.back();
  const wire::FrameTemplate& to = end.frame_of(path);
  const auto index = static_cast<std::uint32_t>(std::countr_zero(pair.wanted));
  wire::OfferHeader piece = offer_of(pair);
  piece.chunk = pair.first + index;
  require(pair.active && pair.wanted != 0 && piece.chunk < pair.chunks,
          "a piece is sent of a send that is under way, and was pulled");
  const std::uint32_t bytes = chunks_.bytes_of(pair.pair, piece.chunk, pair.terms.bytes);
  const auto wire_bytes = static_cast<std::uint32_t>(to.bytes() + wire::kHeaderBytes) +
                          bytes * config_.payload_scale + end.tag_bytes();
  if (!pacer_.may_send(now, wire_bytes)) {
    paced_until_ = pacer_.time_for(now, wire_bytes);
    return Sent::kBlocked;
  }
  std::byte* payload = nullptr;
  rte_mbuf* mbuf = buffers_.alloc(payload);
  if (mbuf == nullptr) return Sent::kBlocked;
  std::memcpy(payload, pair.from + chunks_.offset_of(pair.pair, piece.chunk), bytes);
  const auto packet = frame_around(*mbuf, payload, bytes, to, end.port_of(path));
  const wire::CommonHeader common = end.header(PacketType::kPiece);
  wire::encode_piece(packet, common, piece, wire::crc32c({payload, bytes}));
  end.put(mbuf, to, payload, box);
  if (!pair.offered) pair.first_offer = static_cast<std::uint32_t>(common.packet_number);
  pair.offered = true;
  pacer_.on_sent(now, wire_bytes);
  pair.wanted &= pair.wanted - 1;
  pair.order.moved_at = now;
  ++counters_.pieces_sent;
  if (planted(PlantedBug::kSendDoneWhenSent) && pair.wanted == 0 &&
      piece.chunk + 1 == pair.chunks) {
    pair.active = false;
    under_way_.end(pair);
  }
  return Sent::kYes;
}

Transfers::Sent Transfers::send(InPair& pair, TimeNs now, Outbox& out) noexcept {
  LinkEnd& end = links_.end(pair.rank);
  OutboxSide& box = end.any_side(out);
  if (box.full()) return Sent::kBlocked;
  if (!pair.pull_wanted && pair.to_pull == 0) return Sent::kNothing;
  if (pair.to_pull != 0) end.may_go_home(now);
  const PathIndex path = pair.asks || pair.to_pull != 0 ? end.path() : end.answer_by();
  const bool sent = end.send_by(path, config_.control_pool, box, [&](std::span<std::byte> room) {
    wire::PullHeader pull;
    pull.pair = pair.pair;
    pull.sequence = pair.sequence;
    pull.wanted = pair.to_pull;
    pull.first = pair.first;
    pull.echo = pair.echo;
    pull.asks = pair.asks;
    pull.again = pair.asks && links_.says_again(pair.rank, pair.timer.tries);
    pull.complete = pair.complete();
    return wire::encode_pull(room, end.header(PacketType::kPull), pull);
  });
  if (!sent) return Sent::kBlocked;
  counters_.transfer_asks += pair.asks ? 1 : 0;
  if (pair.asks) links_.asked(pair.rank);
  pair.pull_wanted = pair.echo != 0 && links_.answered(pair.rank);
  pair.asks = false;
  pair.to_pull = 0;
  if (!pair.pull_wanted) pair.echo = 0;
  return Sent::kYes;
}

}  // namespace gradwire::collective
