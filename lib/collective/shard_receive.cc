// SPDX-License-Identifier: BSD-3-Clause
// Which part a received packet concerns. What only one direction, or only the ring, may carry is
// refused elsewhere, before any part sees it.
#include "base/profile.h"
#include "collective/shard.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

Drop Shard::receive(const PacketSource& from, const wire::Packet& packet, bool ecn_ce,
                    TimeNs now) noexcept {
  const LinkIndex index = from.link;
  Link& link = *links()[index];
  const LinkEnd& end = link.end;
  const PacketType type = packet.common.type;
  // Its silence nobody else judges, and whoever greets has been started.
  if (link.quiet()) off_ring_.hear(end.rank());
  // What only one direction may carry is refused in the other.
  switch (type) {
    case PacketType::kHello:
    case PacketType::kHelloAck:
      if (const Drop drop = receive_hello(from, packet, now); drop != Drop::kNone) return drop;
      break;
    case PacketType::kPing:
      if (!link.brings_data() || !end.greeted()) return Drop::kState;
      return neighbors_.on_ping(index, packet, ecn_ce, now) ? Drop::kNone : Drop::kDuplicate;
    case PacketType::kAck:
      if (!link.gets_data() || !end.answered()) return Drop::kState;
      neighbors_.heard(index);
      receive_ack(link, packet.ack, now);
      break;
    case PacketType::kAbort:
      if (!names_ranks(packet.abort)) return Drop::kMalformed;
      neighbors_.heard(index);
      neighbors_.on_abort(index);
      abort(packet.abort, now);
      break;
    case PacketType::kBye:
      neighbors_.heard(index);
      receive_bye(index, packet.bye, now);
      break;
    case PacketType::kByeAck:
      neighbors_.heard(index);
      neighbors_.on_bye_ack(index);
      break;
    case PacketType::kProgressCheck:
      if (!link.brings_data() || !link.on_ring() || !end.greeted() ||
          packet.check.origin_rank >= config_.nranks) {
        return Drop::kState;
      }
      neighbors_.heard(index);
      receive_question(packet.check, now);
      break;
    case PacketType::kData:
      require(false, "data is a run's");
      break;
    case PacketType::kContribution:
    case PacketType::kReceipt:
    case PacketType::kInquiry:
    case PacketType::kPiece:
    case PacketType::kOffer:
    case PacketType::kPull:
    case PacketType::kTilePiece:
    case PacketType::kTileCall:
    case PacketType::kTilePull:
      require(false, "packets between any two ranks are no link's");
      break;
  }
  // Those that want no acknowledgement have numbers of the same row.
  if (link.brings_data()) link.receiver().transport().note(packet.common.packet_number);
  return Drop::kNone;
}

Drop Shard::receive_hello(const PacketSource& from, const wire::Packet& packet,
                          TimeNs now) noexcept {
  const LinkIndex index = from.link;
  Link& link = *links()[index];
  const bool is_answer = packet.common.type == PacketType::kHelloAck;
  if (is_answer ? !link.greets() : !link.is_greeted()) return Drop::kState;
  if (!greetings_.is_of(index, packet.hello)) return Drop::kState;
  const bool repeats = !is_answer && greetings_.is_to_answer(index, from.path, packet.hello.source);
  abort_if(membership_.on_hello(index, packet.hello, is_answer, from.path, now), now);
  if (repeats) counters_.count_drop(Drop::kDuplicate);
  if (!live()) return Drop::kNone;
  if (is_answer) {
    if (!link.gets_data()) return Drop::kNone;
    const std::uint64_t granted_before = link.sender().transport().posted_op_seq();
    link.sender().raise_limits(packet.hello.credit_chunks, packet.hello.posted_op_seq);
    if (link.on_ring()) ring_->on_granted(link.sender(), granted_before);
  } else {
    rails_.note_source(link, packet.hello, from.path, group_.forming(), now);
  }
  return Drop::kNone;
}

PacketSource Shard::source_of(const wire::CommonHeader& header,
                              const wire::IpAddress& source) const noexcept {
  if (wire::goes_to_any_rank(header.type)) [[unlikely]] {
    PacketSource from;
    if (off_ring_.takes(header)) from.drop = ends_.source_of(header, source, from.path);
    from.sealed = config_.seals != nullptr;
    return from;
  }
  if (const PacketSource from = neighbors_.source_of(header, source); from.link != kNoLink) {
    return from;
  }
  // A rank that is awaited may have aborted, and says so to whoever awaits it.
  if (header.type == PacketType::kAbort && ends_.ranks() != 0) {
    PacketSource from{.link = kNoLink};
    from.drop = ends_.source_of(header, source, from.path);
    from.sealed = config_.seals != nullptr;
    return from;
  }
  return {Drop::kForeign};
}

Drop Shard::open(const wire::CommonHeader& header, rte_mbuf*& frame,
                 std::span<const std::byte>& packet) noexcept {
  if (config_.seals->encrypts() && !buffers_.exclusive(frame)) [[unlikely]] {
    rte_mbuf* const copy = rte_pktmbuf_copy(frame, config_.packet_pool, 0, UINT32_MAX);
    if (copy == nullptr) return Drop::kNoBuffer;
    if (copy->nb_segs != 1) {  // the pool's buffers are too short for it
      rte_pktmbuf_free(copy);
      return Drop::kNoBuffer;
    }
    const auto at = packet.data() - rte_pktmbuf_mtod(frame, const std::byte*);
    packet = {rte_pktmbuf_mtod_offset(copy, const std::byte*, at), packet.size()};
    rte_pktmbuf_free(frame);
    frame = copy;
    ++counters_.copies;
  }
  const Drop drop =
      config_.seals->open(header, {const_cast<std::byte*>(packet.data()), packet.size()});
  if (drop == Drop::kNone) packet = packet.first(packet.size() - wire::kSealTagBytes);
  return drop;
}

void Shard::on_packet(rte_mbuf* frame, const wire::Packet& packet, const PacketSource& from,
                      bool ecn_ce, TimeNs now) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  Drop drop = from.drop;
  if (packet.common.type == PacketType::kData && drop == Drop::kNone) {
    DataRun run = run_of(from, packet, ecn_ce);
    const RunPacket only = only_of(packet, frame);
    run.packets = {&only, 1};
    return on_data(run, now);
  }
  if (rails_.several_paths() && drop == Drop::kNone) [[unlikely]] {
    // An abort may come from a rank to which there is no link.
    if (wire::goes_to_any_rank(packet.common.type)) {
      Rails::note_path(packet, from.path, ends_.of(packet.common.from_rank));
    } else if (from.link != kNoLink) {
      Rails::note_path(packet, from.path, links()[from.link]->end);
    }
  }
  if (drop != Drop::kNone) {
    // Nothing of it takes effect.
  } else if (packet.common.lane != config_.lane) {
    drop = Drop::kMalformed;
  } else if (wire::goes_to_any_rank(packet.common.type)) [[unlikely]] {
    drop = live() ? off_ring_.receive(packet, ecn_ce, now) : Drop::kState;
    if (group_.aborted() && drop == Drop::kState) {
      abort_answers_.answer(packet.common.from_rank, now);
    }
  } else if (from.link == kNoLink) [[unlikely]] {
    if (names_ranks(packet.abort)) {
      abort(packet.abort, now);
    } else {
      drop = Drop::kMalformed;
    }
  } else if (live()) {
    drop = receive(from, packet, ecn_ce, now);
  } else {
    if (group_.aborted()) neighbors_.on_packet_after_abort(from.link, packet.common.type, now);
    drop = Drop::kState;
  }
  if (drop != Drop::kNone) counters_.count_drop(drop);
  rte_pktmbuf_free(frame);
}

void Shard::on_data(const DataRun& run, TimeNs now) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  Link& link = *links()[run.from.link];
  if (rails_.several_paths()) [[unlikely]] {
    for (const RunPacket& packet : run.packets) {
      link.end.came_by(run.from.path, packet.place.packet_number);
    }
  }
  std::size_t taken = 0;
  Drop drop = Drop::kState;
  if (run.lane != config_.lane) {
    drop = Drop::kMalformed;
  } else if (live() && link.brings_data() && link.on_ring() && link.end.greeted()) {
    neighbors_.heard(run.from.link);
    taken = ring_->receive_data(run, now);
  }
  for (const RunPacket& packet : run.packets.subspan(taken)) {
    if (group_.aborted() && drop == Drop::kState) {
      neighbors_.on_packet_after_abort(run.from.link, PacketType::kData, now);
    }
    counters_.count_drop(drop);
    rte_pktmbuf_free(packet.mbuf);
  }
}

void Shard::receive_question(const wire::ProgressCheckBody& check, TimeNs now) noexcept {
  if (check.origin_rank != config_.rank) {
    stall_.hand_on(check, ops_.posted());
  } else if (group_.formed() && check.op_seq == ops_.oldest_unfinished() &&
             stall_.on_return(check)) {
    become_stuck(now);
  }
}

void Shard::receive_ack(Link& link, const wire::AckHeader& ack, TimeNs now) noexcept {
  // Those of a rank without members say nothing of the way to the next rank.
  if (!link.attached()) ++counters_.acks_received;
  const profile::Stage stage(profile::StageId::kTransport);
  const std::uint64_t granted_before = link.sender().transport().posted_op_seq();
  const SendOutcome outcome = link.on_ack(ack, now);
  if (outcome.malformed) return counters_.count_drop(Drop::kMalformed);
  if (outcome.acknowledged) stall_.moved(now);
  if (link.on_ring()) ring_->on_ack(link, ack, granted_before, now);
}

void Shard::receive_bye(LinkIndex index, const wire::ByeBody& bye, TimeNs now) noexcept {
  if (neighbors_.has_left(index)) {
    neighbors_.answer_bye(index);
    return;
  }
  Link& link = *links()[index];
  const std::uint16_t rank = link.end.rank();
  const Membership::Cause missed = membership_.on_bye(index, bye, now);
  if (link.on_ring()) ring_->compare_last(link, bye, now);
  if (live()) abort_if(missed, now);
  if (!link.on_ring()) {
    if (live() && link.gets_data()) link.sender().drop_all();
    if (!link.to_host() || !live()) return;
    off_ring_.on_left(rank, bye.completed_op_seq, now);
    if (membership_.wants_to_leave()) leave(now);
    return;
  }
  if (live()) off_ring_.on_left(rank, bye.completed_op_seq, now);
  if (live()) ring_->on_left(link, bye, now);
}

}  // namespace gradwire::collective
