// SPDX-License-Identifier: BSD-3-Clause
// What is sent to other ranks for direct ops, and when.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "base/probe.h"
#include "base/require.h"
#include "collective/direct/direct.h"
#include "collective/shapes/shape_gathered.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

/// Packets that go to a rank until another has its turn: where a port is slow, nobody waits for all
/// that goes to all others, and takes this rank for silent.
constexpr std::uint32_t kTurnPackets = 4;
/// So many inquiries must be answered in vain until another source port is tried.
constexpr std::uint32_t kVainBeforeSource = 2;

}  // namespace

void Direct::queue(std::uint16_t rank) noexcept {
  DirectPeer& peer = peers_[rank];
  if (peer.queued) return;
  peer.queued = true;
  require(queue_.push(rank), "a rank is queued once");
}

void Direct::watch(std::uint16_t rank, TimeNs due) noexcept {
  DirectPeer& peer = peers_[rank];
  if (peer.watched) return watched_.may_be_due(due);
  peer.watched = true;
  watched_.add(rank, due);
}

/// For how long nothing is sent to a rank to which something is unacknowledged, and nothing new is
/// heard, until it is asked.
TimeNs Direct::patience(std::uint16_t rank) const noexcept {
  const DirectPeer& peer = peers_[rank];
  // An inquiry that is not answered is repeated as often as neighbors on the ring ping. A host
  // that stood still made a round-trip time that is no bound for anything.
  const TimeNs cap =
      peer.inquiry != 0 ? config_.timeouts.ping_interval_ns : config_.sender.max_pto_ns;
  return links_.repeated_after(rank, peer.tries, cap);
}

void Direct::look_at_watched(TimeNs now) noexcept {
  using Seen = Sweep<std::uint16_t>::Seen;
  watched_.run(now, [&](std::uint16_t rank) -> Seen {
    DirectPeer& peer = peers_[rank];
    if (peer.receipt_due <= now) {
      peer.receipt_due = kNever;
      peer.receipt_wanted = true;
      queue(rank);
    }
    const bool waits = unacknowledged(rank);
    if (waits && peer.quiet_since + patience(rank) <= now) probe(rank, now);
    if (waits || peer.receipt_due != kNever) {
      const TimeNs probed = waits ? peer.quiet_since + patience(rank) : kNever;
      return {Seen::Next::kStays, std::min(probed, peer.receipt_due)};
    }
    peer.watched = false;
    return {Seen::Next::kGoes};
  });
}

/// Nothing new came for a probe timeout.
void Direct::probe(std::uint16_t rank, TimeNs now) noexcept {
  require(links_.is_listed(rank), "whoever is to acknowledge something is awaited");
  DirectPeer& peer = peers_[rank];
  peer.quiet_since = now;
  // What is to go there already waits for room at the port: more of it would only wait longer.
  if (peer.inquiry_wanted) return;
  // Many ranks may be late, and wait for a client: all together they are asked so often. But who
  // has posted the op and lacks something of it is not late, and others may wait for what it sends
  // then; nor is a rank without members, which posts when all has come.
  const bool late = rank < config_.nranks && !is_lacking(rank);
  if (late && !links_.may_ask(now)) {
    ++peer.tries;
    return;
  }
  links_.count_ask();
  inquire(rank, now);
}

void Direct::ask(std::uint16_t rank, TimeNs now) noexcept {
  if (!peers_[rank].inquiry_wanted) inquire(rank, now);
}

void Direct::inquire(std::uint16_t rank, TimeNs now) noexcept {
  DirectPeer& peer = peers_[rank];
  peer.quiet_since = now;
  peer.inquiry_wanted = true;
  queue(rank);
  // What it owes, it sends again by itself: it is asked only whether it is there.
  if (!unacknowledged(rank)) return;
  ++peer.tries;
  // The oldest chunk goes along: most likely it is what was lost.
  resend_missing(rank, false);
  // It answers, but full packets may not get there from this source port.
  if (peer.vain_answers >= kVainBeforeSource && is_lacking(rank)) {
    LinkEnd& end = links_.end(rank);
    end.arrives_never(config_.timeouts, now);
    // What goes by another port is another question: until each was tried once, none is late
    // because those before it were in vain.
    if (peer.vain_answers < kVainBeforeSource + end.sources().count) peer.tries = 0;
  }
  // The op may be done here: it is there that it never will be.
  if (is_in_vain(rank)) {
    const TimeNs for_ns = links_.polled() - peer.news_at;
    links_.found_in_vain(rank, for_ns, InVain::kAcknowledgement);
  }
}

void Direct::on_silent(std::uint16_t rank, TimeNs now) noexcept {
  // One that owes nothing, and has only not acknowledged, may have left: its last receipts were
  // lost. If it died, its neighbors on the ring say so.
  if (awaited(rank, ops_.posted()) || post_waits_) {
    links_.found_silent(rank);
  } else if (leaving_) {
    // All is done here: it is gone, or its neighbors miss it.
    acknowledge(rank, ops_.posted(), now);
  }
}

/// Whether it answers, but nothing that it lacks comes there, however often it is sent.
bool Direct::is_in_vain(std::uint16_t rank) const noexcept {
  const DirectPeer& peer = peers_[rank];
  return is_lacking(rank) && peer.vain_answers >= kUnansweredMin &&
         links_.polled() - peer.news_at >= links_.limit(rank);
}

/// Whether it has posted an op and lacks something of it that this rank has sent.
bool Direct::is_lacking(std::uint16_t rank) const noexcept {
  const DirectPeer& peer = peers_[rank];
  const DirectOp* op = scratch_.first_to(rank, peer.received);
  return op != nullptr && unacknowledged(rank) && op->op_seq <= peer.entered;
}

std::optional<Direct::Missing> Direct::missing(std::uint64_t op_seq) const noexcept {
  std::optional<Missing> found;
  const DirectOp* op = scratch_.first_above(op_seq - 1);
  if (op == nullptr || op->op_seq != op_seq) return found;
  for (const std::uint16_t rank : others_) {
    if (scratch_.arrived(*op, rank) == scratch_.expected(*op, rank)) continue;
    // In a gathered op a rank says nothing here before it has what others give. What goes first
    // comes from the next rank.
    const bool waits = op->gathered && gathered::distance(rank, config_.rank, config_.nranks) > 1;
    const bool posted = waits || peers_[rank].entered >= op_seq;
    if (!posted) return Missing{rank, posted};
    if (!found) found = Missing{rank, posted};
  }
  return found;
}

bool Direct::run(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  if (now >= watched_.next_due()) {
    look_at_watched(now);
    worked = true;
  }
  sent_last_ = 0;
  while (sent_last_ < kDirectBurst && !queue_.empty()) {
    const std::uint16_t rank = queue_.front();
    const Sent outcome = send_to(rank, now, out);
    if (outcome == Sent::kBlocked) break;
    worked = true;
    if (outcome == Sent::kYes) ++sent_last_;
    if (outcome == Sent::kYes && ++turn_packets_ < kTurnPackets) continue;
    turn_packets_ = 0;
    queue_.pop();
    peers_[rank].queued = false;
    if (outcome == Sent::kYes) queue(rank);
  }
  return worked;
}

Direct::Sent Direct::send_to(std::uint16_t rank, TimeNs now, Outbox& out) noexcept {
  DirectPeer& peer = peers_[rank];
  OutboxSide& box = links_.end(rank).any_side(out);
  if (box.full() || !links_.end(rank).has_key()) return Sent::kBlocked;
  const Sent outcome = send_contribution(rank, now, box);
  if (outcome != Sent::kNothing) return outcome;
  if (peer.inquiry_wanted) {
    return send_receipt(rank, PacketType::kInquiry, now, box) ? Sent::kYes : Sent::kBlocked;
  }
  if (peer.receipt_wanted) {
    return send_receipt(rank, PacketType::kReceipt, now, box) ? Sent::kYes : Sent::kBlocked;
  }
  return Sent::kNothing;
}

Direct::Sent Direct::send_contribution(std::uint16_t rank, TimeNs now, OutboxSide& box) noexcept {
  DirectPeer& peer = peers_[rank];
  const DirectOp* op = scratch_.first_to(rank, peer.received);
  for (; op != nullptr; op = scratch_.first_to(rank, op->op_seq)) {
    if (!op->loaded) return Sent::kNothing;  // Ops go in their order.
    const bool entered = op->op_seq <= peer.entered && !planted(PlantedBug::kFloorUsedUp);
    if (!entered && peer.ahead >= DirectPeer::kFloor) return Sent::kNothing;
    if (scratch_.unsent(*op, rank) != 0) break;
  }
  if (op == nullptr) return Sent::kNothing;
  std::uint64_t& unsent = scratch_.unsent(*op, rank);
  const auto index = static_cast<std::uint32_t>(std::countr_zero(unsent));
  std::byte* payload = nullptr;
  rte_mbuf* mbuf = buffers_.alloc_on_host(payload);
  if (mbuf == nullptr) return Sent::kBlocked;

  links_.end(rank).may_go_home(now);
  const DirectLayout::Outgoing outgoing = layout_.outgoing_of(*op, rank, index);
  const std::uint32_t chunk = outgoing.chunk;
  const std::uint32_t bytes = outgoing.size;
  require(bytes <= config_.payload_bytes, "a contribution fits a packet");
  std::memcpy(payload, outgoing.bytes, bytes);
  const LinkAddress& address = links_.end(rank).address();
  const auto packet = frame_around(*mbuf, payload, bytes, address.frame, address.port);
  wire::DataHeader data = header_of(op->op_seq, op->call);
  data.chunk = chunk;
  data.step = outgoing.step;
  if (rank >= config_.nranks) data.since = scratch_.since(*op, rank);
  const wire::CommonHeader common = links_.end(rank).header(PacketType::kContribution);
  const std::uint64_t received = scratch_.received_from(rank, ops_.posted());
  wire::encode_contribution(
      packet, common, data, received,
      outgoing.crc != nullptr ? *outgoing.crc : wire::crc32c({payload, bytes}));
  links_.end(rank).put(mbuf, address.frame, payload, box);

  unsent &= ~(std::uint64_t{1} << index);
  scratch_.begun(*op, rank) = 1;
  if (op->op_seq > peer.entered || planted(PlantedBug::kFloorUsedUp)) ++peer.ahead;
  peer.told = std::max(peer.told, op->op_seq);
  peer.quiet_since = now;
  links_.time(rank, common.packet_number, now);
  // It says all that a receipt would, but for an op of which a part is here.
  const bool says_it = received >= op->op_seq || op->op_seq - received < wire::kWordSpan - 1;
  const DirectOp* partial = scratch_.first_above(received);
  if (says_it && received <= op->op_seq &&
      (partial == nullptr || scratch_.arrived(*partial, rank) == 0)) {
    peer.receipt_due = kNever;
    said_by(rank, links_.end(rank).path());
  }
  GRADWIRE_PROBE6(chunk_sent, config_.key.group_id, op->op_seq, chunk, 0, config_.rank,
                  config_.lane);
  ++counters_.data_packets_sent;
  counters_.data_bytes_sent += bytes;
  return Sent::kYes;
}

/// All that a receipt says went by that path: no receipt is wanted, unless a question awaits its
/// answer by another one.
void Direct::said_by(std::uint16_t rank, PathIndex path) noexcept {
  DirectPeer& peer = peers_[rank];
  if (peer.answers && path != links_.end(rank).answer_by()) return;
  peer.receipt_wanted = peer.answers = peer.answers && links_.answered(rank);
}

bool Direct::send_receipt(std::uint16_t rank, PacketType type, TimeNs now,
                          OutboxSide& box) noexcept {
  DirectPeer& peer = peers_[rank];
  wire::Receipt receipt;
  receipt.entered = ops_.posted();
  receipt.received = scratch_.received_from(rank, ops_.posted());
  if (const DirectOp* op = scratch_.first_above(receipt.received)) {
    receipt.chunks = scratch_.arrived(*op, rank);
  }
  receipt.echo = static_cast<std::uint32_t>(peer.newest);
  receipt.delay_us =
      static_cast<std::uint16_t>(std::clamp<TimeNs>((now - peer.newest_at) / 1000, 0, 0xffff));
  std::uint64_t number = 0;
  LinkEnd& end = links_.end(rank);
  const bool asks = type == PacketType::kInquiry;
  if (asks && peer.inquiry != 0) {
    end.repeats(peer.lost_inquiries + 1, config_.timeouts, now);
    receipt.again = end.sources().known && LinkEnd::asks_again(peer.lost_inquiries + 1);
  }
  // An answer goes back the way that the question came.
  const PathIndex path = asks ? end.path() : peer.answers ? end.answer_by() : end.back();
  const bool sent = end.send_by(path, config_.control_pool, box, [&](std::span<std::byte> room) {
    const wire::CommonHeader common = end.header(type);
    number = common.packet_number;
    return wire::encode_receipt(room, type, common, receipt);
  });
  if (!sent) return false;
  peer.receipt_due = kNever;
  said_by(rank, path);
  peer.told = receipt.entered;
  ++counters_.acks_sent;
  if (!asks) return true;
  peer.lost_inquiries = peer.inquiry != 0 ? peer.lost_inquiries + 1 : 0;
  peer.inquiry_wanted = false;
  links_.asked(rank);
  peer.inquiry = number;
  links_.time(rank, number, now);
  ++counters_.probes;
  return true;
}

}  // namespace gradwire::collective
