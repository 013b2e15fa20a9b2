// SPDX-License-Identifier: BSD-3-Clause
// What a packet does, and which chunks are pulled.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "collective/bits.h"
#include "collective/transfers/transfers.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

namespace {

/// A pull is for so many chunks at least, if they can be had, so that they are worth a packet.
constexpr std::uint32_t kPullChunks = 8;
/// Chunks that were pulled later and came: what came not is lost.
constexpr std::uint32_t kOvertaken = 3;

}  // namespace

Drop Transfers::receive(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const bool again = packet.common.type == PacketType::kOffer  ? packet.offer.again
                     : packet.common.type == PacketType::kPull ? packet.pull.again
                                                               : false;
  if (again) {
    links_.end(packet.common.from_rank).was_asked_again(config_.timeouts, now);
  }
  switch (packet.common.type) {
    case PacketType::kOffer:
      return receive_offer(packet, now);
    case PacketType::kPiece:
      return receive_piece(packet, ecn_ce, now);
    default:
      return receive_pull(packet, now);
  }
}

bool Transfers::is_of(const wire::ProcessPair& pair, std::uint16_t source_rank,
                      std::uint16_t destination_rank) const noexcept {
  const std::uint32_t processes = processes_.count();
  return pair.source < processes && pair.destination < processes &&
         processes_.rank_of(pair.source) == source_rank &&
         processes_.rank_of(pair.destination) == destination_rank;
}

Drop Transfers::receive_offer(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  if (!is_of(packet.offer.pair, rank, config_.rank)) return Drop::kBadChunk;
  InPair* in = ins_.enter(packet.offer.pair, rank);
  if (in == nullptr) return Drop::kNoBuffer;
  const Drop drop = hear_offer(*in, packet.offer, now);
  if (drop != Drop::kNone || !packet.offer.asks) return drop;
  links_.was_asked(rank);
  in->pull_wanted = true;
  in->echo = static_cast<std::uint32_t>(packet.common.packet_number);
  queue(*in);
  return Drop::kNone;
}

Drop Transfers::hear_offer(InPair& in, const wire::OfferHeader& offer, TimeNs now) noexcept {
  // Nobody goes on before this end says that all has come.
  if (offer.sequence > in.sequence + (in.active ? 0 : 1)) return Drop::kOpAhead;
  const std::uint64_t done =
      offer.done || offer.sequence == 0 ? offer.sequence : offer.sequence - 1;
  if (done > in.confirmed) {
    const bool owed = in.owed > in.confirmed;
    in.confirmed = done;
    if (owed && in.owed <= done) --owed_;
  }
  if (offer.sequence > in.offered) {
    in.offered = offer.sequence;
    in.offered_terms = offer.terms;
  }
  if (offer.sequence != in.sequence || offer.sequence == 0) return Drop::kNone;
  if (!(offer.terms == in.terms)) {
    differ(in, offer.terms);
    return Drop::kNone;
  }
  if (in.active && !in.ready) become_ready(in, now);
  return Drop::kNone;
}

Drop Transfers::receive_piece(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::OfferHeader& piece = packet.offer;
  if (!is_of(piece.pair, rank, config_.rank)) return Drop::kBadChunk;
  InPair* in = ins_.enter(piece.pair, rank);
  if (in == nullptr) return Drop::kNoBuffer;
  if (const Drop drop = hear_offer(*in, piece, now); drop != Drop::kNone) return drop;
  if (mismatch_) return Drop::kNone;
  if (piece.sequence > in->sequence) return keep_ahead(*in, packet);
  const bool old = piece.sequence < in->sequence && !planted(PlantedBug::kPieceOfOtherTransfer);
  if (old || !in->active || piece.chunk < in->first) return Drop::kDuplicate;
  if (!fits(*in, piece.chunk, packet.payload.size())) return Drop::kBadChunk;
  const std::uint32_t index = piece.chunk - in->first;
  const std::uint64_t bit = std::uint64_t{1} << index;
  if ((in->have & bit) != 0) return Drop::kDuplicate;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;

  if ((in->asked & bit) != 0) {
    const bool timed = in->timed && piece.chunk == in->timed_chunk;
    const TimeNs delay = timed ? std::max<TimeNs>(now - in->timed_at, 1) : 0;
    if (timed) {
      links_.sample(rank, delay);
      in->timed = false;
    }
    in->asked &= ~bit;
    in->to_pull &= ~bit;
    window_.came(now, ecn_ce, delay);
  }
  store(*in, piece.chunk, packet.payload, now);
  in->timer.tries = 0;
  watch(*in, now + patience(rank, 0));
  if (in->first == in->chunks) {
    finish(*in, now);
    return Drop::kNone;
  }
  const TimeNs rtt = std::max(links_.rtt(rank), config_.sender.granularity_ns);
  if (piece.chunk >= in->first + kOvertaken && now - in->pulled_again_at >= rtt) {
    const std::uint64_t overtaken =
        in->asked & ~in->to_pull & low_bits(piece.chunk - in->first - kOvertaken + 1);
    if (overtaken != 0) pull_again(*in, overtaken, now);
  }
  pull_more(now);
  return Drop::kNone;
}

void Transfers::store(InPair& in, std::uint32_t chunk, std::span<const std::byte> payload,
                      TimeNs now) noexcept {
  std::memcpy(in.to + offset_of(chunk), payload.data(), payload.size());
  ++counters_.pieces_received;
  counters_.piece_bytes_received += payload.size();
  in.order.moved_at = now;
  in.waits_since = links_.polled();
  in.have |= std::uint64_t{1} << (chunk - in.first);
  const auto whole = static_cast<std::uint32_t>(std::countr_one(in.have));
  in.first += whole;
  in.have = shifted(in.have, whole);
  in.asked = shifted(in.asked, whole);
  in.to_pull = shifted(in.to_pull, whole);
  in.next = std::max(in.next, in.first);
}

Drop Transfers::keep_ahead(InPair& in, const wire::Packet& packet) noexcept {
  const std::uint32_t chunk = packet.offer.chunk;
  if (chunk >= InPair::kAhead || packet.payload.size() > config_.payload_bytes) {
    return Drop::kBadChunk;
  }
  if (in.places[chunk] != InPair::kNoPlace) return Drop::kDuplicate;
  if (early_.full()) return Drop::kEagerOverflow;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;
  in.places[chunk] = early_.keep(packet.payload);
  ++counters_.early_pieces;
  return Drop::kNone;
}

void Transfers::take_ahead(InPair& in, TimeNs now) noexcept {
  for (std::uint32_t chunk = 0; chunk < InPair::kAhead; ++chunk) {
    const std::uint16_t place = in.places[chunk];
    if (place == InPair::kNoPlace) continue;
    in.places[chunk] = InPair::kNoPlace;
    const auto payload = early_.payload(place);
    if (fits(in, chunk, payload.size())) store(in, chunk, payload, now);
    early_.give_back(place);
  }
}

void Transfers::become_ready(InPair& in, TimeNs now) noexcept {
  in.ready = true;
  if (in.first == in.chunks && in.offered == in.sequence) {
    finish(in, now);
    return;
  }
  if (!in.in_line) {
    in.in_line = true;
    require(ready_.push(ins_.index_of(in)), "a pair waits for its turn once");
  }
  give_turns(now);
}

void Transfers::give_turns(TimeNs now) noexcept {
  while (turns_.size() < kTurns && !ready_.empty()) {
    const std::uint32_t index = ready_.front();
    ready_.pop();
    InPair& in = ins_[index];
    in.in_line = false;
    // What went ahead may have been all of it.
    if (!in.ready) continue;
    in.admitted = true;
    turns_.push_back(index);
  }
  pull_more(now);
}

void Transfers::pull_more(TimeNs now) noexcept {
  bool pulled = false;
  for (const std::uint32_t index : turns_) pulled |= pull_new(ins_[index], now);
  // Somebody else is the first next time, so that a small window goes round.
  if (pulled) std::rotate(turns_.begin(), turns_.begin() + 1, turns_.end());
}

bool Transfers::pull_new(InPair& in, TimeNs now) noexcept {
  if (in.offered != in.sequence) return false;
  const std::uint32_t end = in.first + std::min(in.chunks - in.first, 64u);
  const std::uint64_t most = std::min<std::uint64_t>(end - in.next, window_.room());
  if (most == 0) return false;
  if (in.asked != 0 && most < std::min(kPullChunks, in.chunks - in.next)) return false;
  if (in.asked == 0) in.waits_since = links_.polled();
  std::uint64_t pulled = 0;
  for (; in.next < end && pulled < most; ++in.next) {
    const std::uint64_t bit = std::uint64_t{1} << (in.next - in.first);
    if ((in.have & bit) != 0) continue;
    if (!in.timed) {
      in.timed = true;
      in.timed_chunk = in.next;
      in.timed_at = now;
    }
    in.asked |= bit;
    in.to_pull |= bit;
    ++pulled;
  }
  if (pulled == 0) return false;
  window_.pulled(now, pulled);
  watch(in, now + patience(in.rank, in.timer.tries));
  queue(in);
  return true;
}

void Transfers::pull_again(InPair& in, std::uint64_t chunks, TimeNs now) noexcept {
  const auto count = static_cast<std::uint64_t>(std::popcount(chunks));
  in.to_pull |= chunks;
  in.timed = false;  // Nobody knows which pull brings it.
  in.pulled_again_at = now;
  counters_.pieces_pulled_again += count;
  window_.lost(now, count);
  queue(in);
}

void Transfers::finish(InPair& in, TimeNs now) noexcept {
  window_.forget(static_cast<std::uint64_t>(std::popcount(in.asked)));
  in.active = in.ready = false;
  in.asked = in.to_pull = 0;
  in.timed = false;
  if (in.admitted) {
    in.admitted = false;
    std::erase(turns_, ins_.index_of(in));
  }
  const bool owed = in.owed > in.confirmed;
  in.owed = in.sequence;
  if (!owed && in.owed > in.confirmed) ++owed_;
  in.pull_wanted = in.asks = true;
  in.timer.tries = 0;
  watch(in, now + patience(in.rank, 0));
  queue(in);
  end(in);
  give_turns(now);
}

void Transfers::finish(OutPair& out) noexcept {
  out.active = false;
  out.wanted = 0;
  // The other end must know that this one does.
  out.offer_wanted = true;
  out.asks = false;
  queue(out);
  end(out);
}

Drop Transfers::receive_pull(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::PullHeader& pull = packet.pull;
  if (!is_of(pull.pair, config_.rank, rank)) return Drop::kBadChunk;
  OutPair* out = outs_.enter(pull.pair, rank);
  if (out == nullptr) return Drop::kNoBuffer;
  if (pull.echo != 0) {
    (void)links_.end(rank).arrived(pull.echo);
    links_.echoed(rank, pull.echo, 0, now);
  }
  if (pull.asks) {
    links_.was_asked(rank);
    out->offer_wanted = true;
    queue(*out);
  }
  if (!out->active) return Drop::kNone;
  if (pull.sequence > out->sequence || (pull.sequence == out->sequence && pull.complete)) {
    finish(*out);
    return Drop::kNone;
  }
  const auto after_first_offer = static_cast<std::int32_t>(pull.echo - out->first_offer);
  if (pull.echo != 0 && out->offered && after_first_offer >= 0) {
    out->heard = true;
  }
  if (pull.sequence < out->sequence) return Drop::kNone;
  out->posted_there = true;
  if (pull.first > out->chunks || (pull.wanted & ~low_bits(out->chunks - pull.first)) != 0) {
    return Drop::kBadChunk;
  }
  if (pull.first < out->first) return Drop::kNone;  // It was overtaken.
  if (pull.first > out->first) out->order.moved_at = now;
  out->wanted = shifted(out->wanted, pull.first - out->first) | pull.wanted;
  out->first = pull.first;
  if (pull.wanted != 0) {
    out->heard = true;
    queue_pieces(*out);
  }
  return Drop::kNone;
}

}  // namespace gradwire::collective
