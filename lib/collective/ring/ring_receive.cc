// SPDX-License-Identifier: BSD-3-Clause
// What a received packet does. The order of the checks is the point: nothing is changed before a
// packet is known to be right, its packet number is taken as received only when the packet is kept
// for good (an acknowledged packet is never dropped afterwards), and a chunk is claimed in its
// bitmap in the same step, so that it is applied once however often it comes.
#include <algorithm>

#include "base/planted_bug.h"
#include "base/probe.h"
#include "base/profile.h"
#include "collective/ops/op_faults.h"
#include "collective/ring/ring.h"
#include "collective/ring/ring_work.h"

namespace gradwire::collective {

using wire::Drop;

inline Arrival Ring::arrival_of(const Op& op, const LinkSender& to, const wire::DataHeader& header,
                                Site& site) const noexcept {
  const Arrival arrival = classify(ops_, folds_, op, header, site);
  // If it goes on from here and cannot be spilled, it starts only after all ranks have posted the
  // op, and by then the next rank has told this one that it has. It would wait here for a grant.
  if (op.rules.holds && arrival == Arrival::kReducing && site.place.forwards_reduced &&
      !to.was_posted_there(op)) [[unlikely]] {
    return Arrival::kBad;
  }
  return arrival;
}

inline bool Ring::payload_is_right(const IncomingPacket& packet, bool checked,
                                   const std::byte* read_next) const noexcept {
  if (checked || !config_.payload_crc) return true;
  const profile::Stage stage(profile::StageId::kIntegrity);
  return wire::crc32c({packet.payload, packet.bytes}, read_next) == packet.crc;
}

Ring::Arriving Ring::look_up(LinkIndex from, const wire::DataHeader& header, bool ecn_ce,
                             bool checked) noexcept {
  LinkReceiver& receiver = links()[from]->receiver();
  Arriving out{*links()[from], receiver, {receiver.transport(), ecn_ce}};
  out.op = ops_.find(header.op_seq);
  out.checked = checked;
  if (out.op != nullptr) out.ends = {&sender_of(*out.op), &receiver};
  const OpCall* const ours = ops_.call(header.op_seq);
  if (header.op_seq > ops_.posted() + OpTable::kDescriptorsKept) {
    out.fate = Arriving::Fate::kFarAhead;
  } else if (buffers_.on_device() && !checked) {
    out.fate = Arriving::Fate::kToBeChecked;
  } else if (!ops_.was_posted(header.op_seq)) {
    out.fate = Arriving::Fate::kEarly;
  } else if (ours != nullptr && *ours != call_of(header)) {
    out.fate = Arriving::Fate::kCalledOtherwise;
  }
  return out;
}

std::size_t Ring::receive_data(const DataRun& run, TimeNs now) noexcept {
  IncomingPacket incoming;
  incoming.link = run.from.link;
  incoming.header = run.header;
  incoming.bytes = run.payload_bytes;
  incoming.ecn_ce = run.ecn_ce;
  Arriving arriving = look_up(run.from.link, run.header, run.ecn_ce, false);
  std::size_t taken = 0;
  for (; taken < run.packets.size() && live(); ++taken) {
    const RunPacket& packet = run.packets[taken];
    incoming.header.chunk = packet.place.chunk;
    incoming.header.hop = packet.place.hop;
    incoming.mbuf = packet.mbuf;
    incoming.payload = packet.payload;
    incoming.crc = packet.place.payload_crc;
    incoming.packet_number = packet.place.packet_number;
    if (!receive(incoming, arriving, now)) rte_pktmbuf_free(incoming.mbuf);
  }
  arriving.accepted.tell(now);
  count_received(arriving, incoming);
  return taken;
}

bool Ring::receive(IncomingPacket& packet, Arriving& arriving, TimeNs now) noexcept {
  transport::Receiver& receiver = arriving.from.transport();
  if (const auto verdict = arriving.accepted.check(now, packet.packet_number);
      verdict != transport::Receiver::Verdict::kNew) [[unlikely]] {
    receiver.on_duplicate(now);
    const bool old = verdict == transport::Receiver::Verdict::kTooOld;
    counters_.count_drop(old ? Drop::kReplay : Drop::kDuplicate);
    return false;
  }
  if (arriving.fate != Arriving::Fate::kGoesIn) [[unlikely]] {
    arriving.accepted.tell(now);
    return receive_other(packet, arriving, now);
  }
  // A run may have the last chunk of its op, and a packet that comes once more behind it.
  Op* const op = arriving.op;
  const Arrival arrival = op != nullptr && op->state == Op::State::kActive
                              ? arrival_of(*op, *arriving.ends.to, packet.header, arriving.site)
                              : Arrival::kDuplicate;
  if (arrival == Arrival::kBad) [[unlikely]] {
    counters_.count_drop(Drop::kBadChunk);
    return false;
  }
  if (arrival == Arrival::kDuplicate) [[unlikely]] {
    arriving.accepted.accept(packet.packet_number);
    arriving.accepted.tell(now);
    receiver.on_duplicate(now);
    counters_.count_drop(Drop::kDuplicate);
    return false;
  }
  if (op->keeps_own && ops_.waits_for_own(packet.header)) return hold_early(packet, arriving, now);
  const std::byte* const next_read =
      arrival == Arrival::kReducing ? op->own_part(arriving.site.span) : nullptr;
  if (!payload_is_right(packet, arriving.checked, next_read)) [[unlikely]] {
    if (planted(PlantedBug::kLyingAck)) arriving.accepted.accept(packet.packet_number);
    counters_.count_drop(Drop::kPayloadCrc);
    return false;
  }
  if (!apply_inline(*op, arriving.ends, packet, arrival, arriving.site, now)) [[unlikely]] {
    arriving.accepted.tell(now);
    receiver.request_ack();
    counters_.count_drop(Drop::kNoBuffer);
    return false;
  }
  arriving.accepted.accept(packet.packet_number);
  GRADWIRE_PROBE6(chunk_received, config_.key.group_id, packet.header.op_seq, packet.header.chunk,
                  packet.header.hop, config_.rank, config_.lane);
  stall_.moved(now);
  ++arriving.kept;
  return true;
}

bool Ring::receive_other(const IncomingPacket& packet, Arriving& arriving, TimeNs now) noexcept {
  const wire::DataHeader& header = packet.header;
  switch (arriving.fate) {
    case Arriving::Fate::kFarAhead:
      // It comes again and again: who refuses it is not to seem silent.
      arriving.from.transport().request_ack();
      counters_.count_drop(Drop::kOpAhead);
      return false;
    case Arriving::Fate::kToBeChecked: {
      bool may_be_done = false;
      const Drop drop = checks_.start(packet, folds_, may_be_done);
      if (drop != Drop::kNone) counters_.count_drop(drop);
      if (may_be_done) services_.take_folded(now);
      return drop == Drop::kNone;
    }
    case Arriving::Fate::kEarly:
      return hold_early(packet, arriving, now);
    case Arriving::Fate::kCalledOtherwise:
      // The header's CRC is right and so is the neighbor's address: it did call something else.
      report_mismatch(arriving.link, header.op_seq, *ops_.call(header.op_seq), call_of(header),
                      now);
      return false;
    case Arriving::Fate::kGoesIn:
      break;
  }
  require(false, "what goes in is received as others are");
  return false;
}

bool Ring::hold_early(const IncomingPacket& packet, Arriving& arriving, TimeNs now) noexcept {
  const wire::DataHeader& header = packet.header;
  transport::Receiver& receiver = arriving.from.transport();
  arriving.accepted.tell(now);
  const bool held_already = early_.holds(header);
  if (!held_already && !early_.has_place(header, in_transit(), ops_)) {
    receiver.request_ack();
    counters_.count_drop(Drop::kEagerOverflow);
    return false;
  }
  if (!payload_is_right(packet, arriving.checked, nullptr)) {
    counters_.count_drop(Drop::kPayloadCrc);
    return false;
  }
  arriving.accepted.accept(packet.packet_number);
  arriving.accepted.tell(now);
  if (held_already) {
    counters_.count_drop(Drop::kDuplicate);
    return false;
  }
  early_.add(packet);
  ++counters_.early_packets;
  ++arriving.kept;
  return true;
}

void Ring::retry_early(TimeNs now) noexcept {
  const std::uint64_t op_seq = early_.op_that_may_go(ops_);
  if (op_seq != 0) apply_early(op_seq, now);
}

void Ring::apply_early(std::uint64_t op_seq, TimeNs now) noexcept {
  // Out of the list before anything is done with it: an abort frees what is in the list.
  EarlyPacket packet;
  for (std::size_t from = 0; live() && early_.take(op_seq, ops_, from, packet);) {
    const wire::DataHeader& header = packet.header;
    const OpCall* ours = ops_.call(op_seq);  // none if the op is long done
    if (ours != nullptr && *ours != call_of(header)) {
      rte_pktmbuf_free(packet.mbuf);
      return report_mismatch(*links()[packet.link], op_seq, *ours, call_of(header), now);
    }
    Op* op = ops_.find(op_seq);
    Site site;
    const Arrival arrival =
        op == nullptr ? Arrival::kDuplicate : arrival_of(*op, sender_of(*op), header, site);
    if (arrival != Arrival::kReducing && arrival != Arrival::kGathering) {
      counters_.count_drop(arrival == Arrival::kBad ? Drop::kBadChunk : Drop::kDuplicate);
      rte_pktmbuf_free(packet.mbuf);
    } else if (!apply(*op, packet, arrival, site, now)) {
      early_.add(packet);  // No buffer now; it was acknowledged, so poll() tries again.
      return;
    }
  }
}

void Ring::on_granted(const LinkSender& to, std::uint64_t granted_before) noexcept {
  const std::uint64_t last = std::min(to.transport().posted_op_seq(), ops_.posted());
  for (std::uint64_t op_seq = std::max(granted_before, ops_.done()) + 1; op_seq <= last; ++op_seq) {
    if (Op* op = ops_.find(op_seq)) op_ends_.finish_if_done(*op);
  }
}

void Ring::on_ack(Link& link, const wire::AckHeader& ack, std::uint64_t granted_before,
                  TimeNs now) noexcept {
  require(link.on_ring() && link.gets_data(),
          "the next rank acknowledges what goes round the ring");
  LinkSender& sender = link.sender();
  return_credit(sender);
  if (!words_.on_ack(ack, now)) return;
  if (sender.transport().posted_op_seq() > granted_before) on_granted(sender, granted_before);
}

void Ring::on_left(Link& link, const wire::ByeBody& bye, TimeNs now) noexcept {
  // It finished every op, so whatever it did not acknowledge it has.
  if (!live() || !link.gets_data()) return;
  LinkSender& to = link.sender();
  to.drop_all();
  return_credit(to);
  words_.on_left(bye, now);
  const std::uint64_t granted_before = to.transport().posted_op_seq();
  to.raise_limits(0, bye.completed_op_seq);
  on_granted(to, granted_before);
}

void Ring::report_mismatch(const Link& from, std::uint64_t op_seq, const OpCall& ours,
                           const OpCall& theirs, TimeNs now) noexcept {
  const std::uint16_t rank = from.end.rank();
  services_.abort(mismatch_of(config_, op_seq, {rank, theirs}, {config_.rank, ours}, rank), now);
}

void Ring::take_checked(TimeNs now) noexcept {
  while (!checks_.empty()) {  // an abort empties it
    IncomingPacket check = checks_.take();
    Arriving arriving = look_up(check.link, check.header, check.ecn_ce, true);
    if (!receive(check, arriving, now)) rte_pktmbuf_free(check.mbuf);
    arriving.accepted.tell(now);
    count_received(arriving, check);
  }
  fold(now);
}

}  // namespace gradwire::collective
