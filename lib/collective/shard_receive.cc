// SPDX-License-Identifier: BSD-3-Clause
// What a received packet does. The order of the checks is the point: nothing is changed before a
// packet is known to be right, its packet number is taken as received only when the packet is kept
// for good (an acknowledged packet is never dropped afterwards), and a chunk is claimed in its
// bitmap in the same step, so that it is applied once however often it comes.
#include <algorithm>
#include <utility>

#include "base/abort_detail.h"
#include "base/planted_bug.h"
#include "base/probe.h"
#include "base/profile.h"
#include "collective/shard.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

namespace {

/// @param carries_crc ShardConfig::payload_crc
bool payload_is_whole(const wire::Packet& packet, bool carries_crc,
                      const std::byte* ahead) noexcept {
  if (!carries_crc) return true;
  const profile::Stage stage(profile::StageId::kIntegrity);
  return wire::payload_crc_ok(packet, ahead);
}

}  // namespace

inline Drop Shard::receive(const PacketSource& from, rte_mbuf* frame, const wire::Packet& packet,
                           bool ecn_ce, TimeNs now, bool& taken) noexcept {
  const LinkIndex index = from.link;
  Link& link = *links()[index];
  const LinkEnd& end = link.end;
  const PacketType type = packet.common.type;
  // What only one direction may carry is refused in the other.
  switch (type) {
    case PacketType::kHello:
    case PacketType::kHelloAck:
      if (const Drop drop = receive_hello(from, packet, now); drop != Drop::kNone) return drop;
      break;
    case PacketType::kData:
      if (!link.brings_data() || !link.on_ring() || !end.greeted()) return Drop::kState;
      neighbors_.heard(index);
      taken = receive_data(link, frame, packet, ecn_ce, false, now);
      return Drop::kNone;  // It took the number, or did not.
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
    case PacketType::kContribution:
    case PacketType::kReceipt:
    case PacketType::kInquiry:
    case PacketType::kPiece:
    case PacketType::kOffer:
    case PacketType::kPull:
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
  if (is_answer ? !link.gets_data() : !link.brings_data()) return Drop::kState;
  if (!neighbors_.is_of(index, packet.hello)) return Drop::kState;
  const bool repeats = !is_answer && neighbors_.is_to_answer(index, from.path, packet.hello.source);
  abort_if(membership_.on_hello(index, packet.hello, is_answer, from.path, now), now);
  if (repeats) count_drop(Drop::kDuplicate);
  if (!live()) return Drop::kNone;
  if (is_answer) {
    const std::uint64_t granted_before = link.sender().transport().posted_op_seq();
    link.sender().raise_limits(packet.hello.credit_chunks, packet.hello.posted_op_seq);
    finish_granted(link.sender(), granted_before);
  } else {
    rails_.note_source(link, packet.hello, from.path, group_.forming(), now);
  }
  return Drop::kNone;
}

PacketSource Shard::source_of(const wire::CommonHeader& header,
                              const wire::IpAddress& source) const noexcept {
  if (wire::goes_to_any_rank(header.type)) [[unlikely]] {
    const bool taken = wire::is_of_transfer(header.type)
                           ? transfers_ != nullptr && header.from_rank < config_.nranks
                           : direct_ != nullptr;
    PacketSource from;
    if (taken && ends_ != nullptr) from.drop = ends_->source_of(header, source, from.path);
    return from;
  }
  if (const PacketSource from = neighbors_.source_of(header, source); from.link != kNoLink) {
    return from;
  }
  // A rank that is awaited may have aborted, and says so to whoever awaits it.
  if (header.type == PacketType::kAbort && ends_ != nullptr) {
    PacketSource from{.link = kNoLink};
    from.drop = ends_->source_of(header, source, from.path);
    return from;
  }
  return {Drop::kForeign};
}

void Shard::on_packet(rte_mbuf* frame, const wire::Packet& packet, const PacketSource& from,
                      bool ecn_ce, TimeNs now) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  Drop drop = from.drop;
  bool taken = false;
  if (rails_.several_paths() && drop == Drop::kNone) [[unlikely]] {
    const bool any = wire::goes_to_any_rank(packet.common.type);
    Rails::note_path(packet, from.path,
                     any ? ends_->of(packet.common.from_rank) : links()[from.link]->end);
  }
  if (drop != Drop::kNone) {
    // Nothing of it takes effect.
  } else if (packet.common.lane != config_.lane) {
    drop = Drop::kMalformed;
  } else if (wire::goes_to_any_rank(packet.common.type)) [[unlikely]] {
    drop = live() ? receive_from_any(packet, ecn_ce, now) : Drop::kState;
    if (group_.aborted() && drop == Drop::kState) {
      abort_answers_->answer(packet.common.from_rank, now);
    }
  } else if (from.link == kNoLink) [[unlikely]] {
    if (names_ranks(packet.abort)) {
      abort(packet.abort, now);
    } else {
      drop = Drop::kMalformed;
    }
  } else if (live()) {
    drop = receive(from, frame, packet, ecn_ce, now, taken);
  } else {
    if (group_.aborted()) {
      neighbors_.on_packet_after_abort(from.link, packet, now);
    }
    drop = Drop::kState;
  }
  if (drop != Drop::kNone) count_drop(drop);
  if (!taken) rte_pktmbuf_free(frame);
}

Arrival Shard::arrival_of(const Op* op, const wire::DataHeader& header, Site& site) const noexcept {
  if (op == nullptr) return Arrival::kDuplicate;
  const Arrival arrival = classify(ops_, folds_, *op, header, site);
  // If it goes on from here and cannot be spilled, it starts only after all ranks have posted the
  // op, and by then the next rank has told this one that it has. It would wait here for a grant.
  if (op->rules.holds && arrival == Arrival::kReducing && site.place.forwards_reduced &&
      !sender_of(*op).was_posted_there(*op)) [[unlikely]] {
    return Arrival::kBad;
  }
  return arrival;
}

bool Shard::receive_data(Link& link, rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce,
                         bool checked, TimeNs now) noexcept {
  const wire::DataHeader& header = packet.data;
  const std::uint64_t number = packet.common.packet_number;
  transport::Receiver& receiver = link.receiver().transport();
  switch (receiver.check(number)) {
    case transport::Receiver::Verdict::kNew:
      break;
    case transport::Receiver::Verdict::kDuplicate:
      receiver.on_duplicate(now);
      count_drop(Drop::kDuplicate);
      return false;
    case transport::Receiver::Verdict::kTooOld:
      receiver.on_duplicate(now);
      count_drop(Drop::kReplay);
      return false;
  }
  if (header.op_seq > ops_.posted() + OpTable::kDescriptorsKept) {
    receiver.request_ack();  // It comes again and again: who refuses it is not to seem silent.
    count_drop(Drop::kOpAhead);
    return false;
  }
  if (buffers_.on_device() && !checked) {
    bool may_be_done = false;
    const Drop drop =
        checks_.start(frame, packet, link.end.address().index, ecn_ce, folds_, may_be_done);
    if (drop != Drop::kNone) count_drop(drop);
    if (may_be_done) take_folded(now);
    return drop == Drop::kNone;
  }
  if (!ops_.was_posted(header.op_seq)) return hold_early(link, frame, packet, ecn_ce, checked, now);

  if (const OpCall* ours = ops_.call(header.op_seq); ours != nullptr && *ours != call_of(header)) {
    // The header's CRC is right and so is the neighbour's address: it did call something else.
    report_mismatch(link.end.rank(), header.op_seq, *ours, call_of(header), link.end.rank(), now);
    return false;
  }
  Op* op = ops_.find(header.op_seq);
  Site site;
  const Arrival arrival = arrival_of(op, header, site);
  if (arrival == Arrival::kBad) {
    count_drop(Drop::kBadChunk);
    return false;
  }
  if (arrival == Arrival::kDuplicate) {
    receiver.accept(now, number, ecn_ce);
    receiver.on_duplicate(now);
    count_drop(Drop::kDuplicate);
    return false;
  }
  if (op->keeps_own && ops_.waits_for_own(header)) {
    return hold_early(link, frame, packet, ecn_ce, checked, now);
  }
  const std::byte* const next_read =
      arrival == Arrival::kReducing ? op->own_part(site.span) : nullptr;
  if (!checked && !payload_is_whole(packet, config_.payload_crc, next_read)) {
    if (planted(PlantedBug::kLyingAck)) receiver.accept(now, number, ecn_ce);
    count_drop(Drop::kPayloadCrc);
    return false;
  }
  auto* payload = const_cast<std::byte*>(packet.payload.data());
  if (!apply(*op, header, arrival, site, frame, payload, packet.payload_crc, now)) {
    receiver.request_ack();
    count_drop(Drop::kNoBuffer);
    return false;
  }
  receiver.accept(now, number, ecn_ce);
  GRADWIRE_PROBE6(chunk_received, config_.key.group_id, header.op_seq, header.chunk, header.hop,
                  config_.rank, config_.lane);
  stall_.moved(now);
  count_received(packet, ecn_ce);
  link.receiver().take_chunk();
  return true;
}

void Shard::count_received(const wire::Packet& packet, bool ecn_ce) noexcept {
  counters_.ecn_ce_received += ecn_ce ? 1 : 0;
  ++counters_.data_packets_received;
  counters_.data_bytes_received += packet.payload.size();
}

bool Shard::hold_early(Link& link, rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce,
                       bool checked, TimeNs now) noexcept {
  const wire::DataHeader& header = packet.data;
  transport::Receiver& receiver = link.receiver().transport();
  const bool held_already = early_.holds(header);
  if (!held_already && !early_.has_place(header, in_transit(), ops_)) {
    receiver.request_ack();
    count_drop(Drop::kEagerOverflow);
    return false;
  }
  if (!checked && !payload_is_whole(packet, config_.payload_crc, nullptr)) {
    count_drop(Drop::kPayloadCrc);
    return false;
  }
  receiver.accept(now, packet.common.packet_number, ecn_ce);
  if (held_already) {
    count_drop(Drop::kDuplicate);
    return false;
  }
  early_.add(EarlyPacket{frame, const_cast<std::byte*>(packet.payload.data()), packet.payload_crc,
                         link.end.address().index, header});
  ++counters_.early_packets;
  count_received(packet, ecn_ce);
  link.receiver().take_chunk();
  return true;
}

void Shard::retry_early(TimeNs now) noexcept {
  const std::uint64_t op_seq = early_.op_that_may_go(ops_);
  if (op_seq != 0) apply_early(op_seq, now);
}

void Shard::apply_early(std::uint64_t op_seq, TimeNs now) noexcept {
  // Out of the list before anything is done with it: an abort frees what is in the list.
  EarlyPacket packet;
  for (std::size_t from = 0; live() && early_.take(op_seq, ops_, from, packet);) {
    const wire::DataHeader& header = packet.header;
    const OpCall* ours = ops_.call(op_seq);  // none if the op is long done
    if (ours != nullptr && *ours != call_of(header)) {
      rte_pktmbuf_free(packet.mbuf);
      const std::uint16_t upstream = links()[packet.link]->end.rank();
      report_mismatch(upstream, op_seq, *ours, call_of(header), upstream, now);
      return;
    }
    Op* op = ops_.find(op_seq);
    Site site;
    const Arrival arrival = arrival_of(op, header, site);
    if (arrival != Arrival::kReducing && arrival != Arrival::kGathering) {
      count_drop(arrival == Arrival::kBad ? Drop::kBadChunk : Drop::kDuplicate);
      rte_pktmbuf_free(packet.mbuf);
    } else if (!apply(*op, header, arrival, site, packet.mbuf, packet.payload, packet.crc, now)) {
      early_.add(packet);  // No buffer now; it was acknowledged, so poll() tries again.
      return;
    }
  }
}

void Shard::receive_ack(Link& link, const wire::AckHeader& ack, TimeNs now) noexcept {
  // Those of a rank without members say nothing of the way to the next rank.
  if (!link.attached()) ++counters_.acks_received;
  const profile::Stage stage(profile::StageId::kTransport);
  LinkSender& sender = link.sender();
  const std::uint64_t granted_before = sender.transport().posted_op_seq();
  const SendOutcome outcome = sender.on_ack(ack, now);
  if (outcome.malformed) return count_drop(Drop::kMalformed);
  if (outcome.acknowledged) stall_.moved(now);
  if (PathChoice* const choice = link.choice()) [[unlikely]]
    choice->on_acknowledged(outcome.newest, outcome.acknowledged || sender.nothing_in_flight());
  return_credit(sender);
  if (!link.on_ring()) return;
  if (compares_calls_) {
    const std::uint64_t agreed_before = calls_.agreed();
    calls_.hear(ack.called, ack.posted_op_seq);
    compare_calls(now);
    // What waits for all ranks must not end before it is known where they differ.
    if (!live() || calls_.differ()) return;
    if (calls_.agreed() > agreed_before) on_words(now);
  }
  if (posted_by_all_.hear(ack.posted_onwards, ack.posted_by_all)) on_words(now);
  if (sender.transport().posted_op_seq() > granted_before) finish_granted(sender, granted_before);
}

void Shard::finish_granted(const LinkSender& to, std::uint64_t granted_before) noexcept {
  const std::uint64_t last = std::min(to.transport().posted_op_seq(), ops_.posted());
  for (std::uint64_t op_seq = std::max(granted_before, ops_.done()) + 1; op_seq <= last; ++op_seq) {
    if (Op* op = ops_.find(op_seq)) finish_if_done(*op);
  }
}

void Shard::receive_bye(LinkIndex index, const wire::ByeBody& bye, TimeNs now) noexcept {
  if (neighbors_.has_left(index)) {
    neighbors_.answer_bye(index);
    return;
  }
  const Membership::Cause missed = membership_.on_bye(index, bye, now);
  if (compares_calls_ && live() && links()[index]->on_ring() && links()[index]->gets_data()) {
    // What it called otherwise explains more than that it left.
    calls_.hear_last(bye.completed_op_seq, bye.digest);
    compare_calls(now);
  }
  if (live()) abort_if(missed, now);
  if (!links()[index]->on_ring()) {
    if (live()) links()[index]->sender().drop_all();
    if (!config_.folds_only() || !live()) return;
    direct_->on_left(links()[index]->end.rank(), bye.completed_op_seq);
    if (membership_.wants_to_leave()) leave(now);
    return;
  }
  if (live() && direct_ != nullptr) {
    direct_->on_left(links()[index]->end.rank(), bye.completed_op_seq);
  }
  // It finished every op, so whatever it did not acknowledge it has.
  if (!live() || !links()[index]->gets_data()) return;
  LinkSender& to = links()[index]->sender();
  to.drop_all();
  return_credit(to);
  // It had posted all that it finished. Of what waits for all ranks its own word counts: it may
  // have called something else that did not.
  static_cast<void>(posted_by_all_.hear(bye.posted_by_all, bye.posted_by_all));
  on_words(now);
  const std::uint64_t granted_before = to.transport().posted_op_seq();
  to.raise_limits(0, bye.completed_op_seq);
  finish_granted(to, granted_before);
}

}  // namespace gradwire::collective
