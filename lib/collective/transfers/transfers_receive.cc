// SPDX-License-Identifier: BSD-3-Clause
// What a packet does, and which chunks are pulled.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/bits.h"
#include "collective/transfers/transfers.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

namespace {

/// Whether the processes are of these ranks, and the lane has a part in their stream.
bool is_of(const GroupProcesses& processes, const TransferChunks& chunks,
           const wire::ProcessPair& pair, std::uint16_t source_rank,
           std::uint16_t destination_rank) noexcept {
  const std::uint32_t count = processes.count();
  return pair.source < count && pair.destination < count && chunks.has(pair) &&
         processes.rank_of(pair.source) == source_rank &&
         processes.rank_of(pair.destination) == destination_rank;
}

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

Drop Transfers::receive_offer(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  if (!is_of(processes_, chunks_, packet.offer.pair, rank, config_.rank)) return Drop::kBadChunk;
  InPair* in = ins_.enter(packet.offer.pair, rank);
  if (in == nullptr) return Drop::kNoBuffer;
  const Drop drop = hear_offer(*in, packet.offer, now);
  if (drop != Drop::kNone || !packet.offer.asks) return drop;
  links_.was_asked(rank);
  in->pull_wanted = true;
  in->echo = static_cast<std::uint32_t>(packet.common.packet_number);
  queues_.queue(*in);
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
    require(!owed || owed_ > 0, "a source that confirms an end was owed it");
    if (owed && in.owed <= done) --owed_;
  }
  if (offer.sequence > in.offered) {
    in.offered = offer.sequence;
    in.offered_terms = offer.terms;
  }
  if (offer.sequence != in.sequence || offer.sequence == 0) return Drop::kNone;
  if (!in.takes(offer.terms)) {
    differ(in, offer.terms);
    return Drop::kNone;
  }
  settle_size(in, offer.terms.bytes);
  if (in.active && !in.ready) become_ready(in, now);
  return Drop::kNone;
}

Drop Transfers::receive_piece(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::OfferHeader& piece = packet.offer;
  if (!is_of(processes_, chunks_, piece.pair, rank, config_.rank)) return Drop::kBadChunk;
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

  if ((in->asked & bit) != 0) pulls_.came(*in, piece.chunk, ecn_ce, now);
  store(*in, piece.chunk, packet.payload, now);
  in->timer.tries = 0;
  queues_.watch(*in, now + queues_.patience(rank, 0));
  if (in->first == in->chunks) {
    finish(*in, now);
    return Drop::kNone;
  }
  const TimeNs rtt = std::max(links_.rtt(rank), config_.sender.granularity_ns);
  if (piece.chunk >= in->first + kOvertaken && now - in->pulled_again_at >= rtt) {
    const std::uint64_t overtaken =
        in->asked & ~in->to_pull & low_bits(piece.chunk - in->first - kOvertaken + 1);
    if (overtaken != 0) pulls_.pull_again(*in, overtaken, now);
  }
  pulls_.pull_more(now);
  return Drop::kNone;
}

void Transfers::store(InPair& in, std::uint32_t chunk, std::span<const std::byte> payload,
                      TimeNs now) noexcept {
  require(in.active && chunk < in.chunks && chunk - in.first < 64,
          "a chunk is stored for a receive that waits for it");
  std::memcpy(in.to + chunks_.offset_of(in.pair, chunk), payload.data(), payload.size());
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
  pulls_.line_up(in, now);
}

void Transfers::finish(InPair& in, TimeNs now) noexcept {
  require(in.active && in.first == in.chunks, "a receive ends when all of it has come");
  in.active = in.ready = false;
  pulls_.finish(in);
  const bool owed = in.owed > in.confirmed;
  in.owed = in.sequence;
  if (!owed && in.owed > in.confirmed) ++owed_;
  in.pull_wanted = in.asks = true;
  in.timer.tries = 0;
  queues_.watch(in, now + queues_.patience(in.rank, 0));
  queues_.queue(in);
  under_way_.end(in);
  pulls_.give_turns(now);
}

void Transfers::finish(OutPair& out) noexcept {
  require(out.active, "a send ends once");
  out.active = false;
  out.wanted = 0;
  // The other end must know that this one does.
  out.offer_wanted = true;
  out.asks = false;
  queues_.queue(out);
  under_way_.end(out);
}

Drop Transfers::receive_pull(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::PullHeader& pull = packet.pull;
  if (!is_of(processes_, chunks_, pull.pair, config_.rank, rank)) return Drop::kBadChunk;
  OutPair* out = outs_.enter(pull.pair, rank);
  if (out == nullptr) return Drop::kNoBuffer;
  if (pull.echo != 0) {
    (void)links_.end(rank).arrived(pull.echo);
    links_.echoed(rank, pull.echo, 0, now);
  }
  if (pull.asks) {
    links_.was_asked(rank);
    out->offer_wanted = true;
    queues_.queue(*out);
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
    queues_.queue_pieces(*out);
  }
  return Drop::kNone;
}

}  // namespace gradwire::collective
