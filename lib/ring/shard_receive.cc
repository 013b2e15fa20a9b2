// SPDX-License-Identifier: BSD-3-Clause
// What a received packet does. The order of the checks is the point: nothing is changed before a
// packet is known to be right, its packet number is taken as received only when the packet is kept
// for good (an acknowledged packet is never dropped afterwards), and a chunk is claimed in its
// bitmap in the same step, so that it is applied once however often it comes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/planted_bug.h"
#include "base/probe.h"
#include "base/profile.h"
#include "ring/shard_impl.h"

namespace gradwire::ring {

using wire::Drop;
using wire::PacketType;

namespace {

bool payload_is_whole(const wire::Packet& packet, const std::byte* ahead) noexcept {
  const profile::Stage stage(profile::StageId::kIntegrity);
  return wire::payload_crc_ok(packet, ahead);
}

}  // namespace

Drop Shard::Impl::check_sender(const wire::Packet& packet,
                               const wire::IpAddress& source) const noexcept {
  const bool from_upstream = (packet.common.flags & wire::kFlagFromUpstream) != 0;
  if (!(source == (from_upstream ? config_.upstream_ip : config_.downstream_ip))) {
    return Drop::kForeign;
  }
  // A source address can be forged.
  const std::uint64_t token = from_upstream ? config_.upstream_token : config_.downstream_token;
  return packet.common.token == token ? Drop::kNone : Drop::kToken;
}

void Shard::Impl::on_packet(rte_mbuf* frame, const wire::Packet& packet,
                            const wire::IpAddress& source, bool ecn_ce, TimeNs now) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  const bool from_upstream = (packet.common.flags & wire::kFlagFromUpstream) != 0;
  Neighbor& neighbor = from_upstream ? upstream_ : downstream_;
  Drop drop = check_sender(packet, source);
  bool taken = false;
  if (drop != Drop::kNone) {
    // Nothing of it takes effect.
  } else if (packet.common.lane != config_.lane || config_.nranks == 1) {
    drop = Drop::kMalformed;
  } else if (state_ == ShardState::kAborted) {
    neighbor.aborted |= packet.common.type == PacketType::kAbort;
    // Whoever still talks to us has not heard: tell again, but never faster than this.
    if (packet.common.type != PacketType::kAbort && now >= neighbor.next_abort_reply) {
      neighbor.next_abort_reply = now + config_.timeouts.hello_interval_ns;
      (from_upstream ? abort_reply_up_ : abort_reply_down_) = true;
      const bool greets =
          packet.common.type == (from_upstream ? PacketType::kHello : PacketType::kHelloAck);
      if (greets && !neighbor.heard &&
          packet.hello.incarnation ==
              (from_upstream ? config_.upstream_incarnation : config_.downstream_incarnation)) {
        neighbor.heard = true;
        neighbor.connection_id = packet.hello.connection_id;
      }
      // And whoever greets gets to know where to tell us.
      hello_ack_wanted_ |= greets && from_upstream && neighbor.heard;
    }
    drop = Drop::kState;
  } else if (!live()) {
    drop = Drop::kState;
  } else {
    // What only one direction may carry is refused in the other.
    switch (packet.common.type) {
      case PacketType::kHello:
        if (from_upstream) receive_hello(packet, now);
        break;
      case PacketType::kHelloAck:
        if (!from_upstream) receive_hello_ack(packet, now);
        break;
      case PacketType::kData:
        if (!from_upstream || !upstream_.heard) {
          drop = Drop::kState;
        } else {
          neighbor.silence_ns = 0;
          taken = receive_data(frame, packet, ecn_ce, false, now);
        }
        break;
      case PacketType::kPing:
        if (!from_upstream || !upstream_.heard) {
          drop = Drop::kState;
        } else {
          neighbor.silence_ns = 0;
          if (receiver_.check(packet.common.packet_number) == transport::Receiver::Verdict::kNew) {
            receiver_.accept(now, packet.common.packet_number, ecn_ce);
          }
          receiver_.request_ack();
        }
        break;
      case PacketType::kAck:
        if (from_upstream || !downstream_.heard) {
          drop = Drop::kState;
        } else {
          neighbor.silence_ns = 0;
          receive_ack(packet, now);
        }
        break;
      case PacketType::kAbort:
        neighbor.silence_ns = 0;
        neighbor.aborted = true;
        become_aborted(packet.abort, now);
        break;
      case PacketType::kBye:
        neighbor.silence_ns = 0;
        receive_bye(packet, from_upstream, now);
        break;
      case PacketType::kByeAck:
        neighbor.silence_ns = 0;
        neighbor.bye_acked = true;
        break;
      case PacketType::kProgressCheck:
        if (!from_upstream || !upstream_.heard || packet.check.origin_rank >= config_.nranks) {
          drop = Drop::kState;
        } else {
          neighbor.silence_ns = 0;
          receive_progress_check(packet.check, now);
        }
        break;
    }
  }
  if (drop != Drop::kNone) count_drop(drop);
  if (!taken) rte_pktmbuf_free(frame);
}

bool Shard::Impl::receive_data(rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce,
                               bool checked, TimeNs now) noexcept {
  const wire::DataHeader& header = packet.data;
  const std::uint64_t number = packet.common.packet_number;
  switch (receiver_.check(number)) {
    case transport::Receiver::Verdict::kNew:
      break;
    case transport::Receiver::Verdict::kDuplicate:
      receiver_.on_duplicate(now);
      count_drop(Drop::kDuplicate);
      return false;
    case transport::Receiver::Verdict::kTooOld:
      receiver_.on_duplicate(now);
      count_drop(Drop::kReplay);
      return false;
  }
  if (header.op_seq > ops_.posted() + OpTable::kDescriptorsKept) {
    receiver_.request_ack();  // It comes again and again: who refuses it is not to seem silent.
    count_drop(Drop::kOpAhead);
    return false;
  }
  if (buffers_.on_device() && !checked) {
    bool may_be_done = false;
    const Drop drop = checks_.start(frame, packet, kUpstream, ecn_ce, folds_, may_be_done);
    if (drop != Drop::kNone) count_drop(drop);
    if (may_be_done) take_folded(now);
    return drop == Drop::kNone;
  }
  if (header.op_seq > ops_.posted()) return hold_early(frame, packet, ecn_ce, checked, now);

  if (const OpCall* ours = ops_.call(header.op_seq); ours != nullptr && *ours != call_of(header)) {
    // The header's CRC is right and so is the neighbour's address: it did call something else.
    report_mismatch(*ours, header, now);
    return false;
  }
  Op* op = ops_.find(header.op_seq);
  Site site;
  const Arrival arrival =
      op == nullptr ? Arrival::kDuplicate : classify(config_, ops_, folds_, *op, header, site);
  if (arrival == Arrival::kBad) {
    count_drop(Drop::kBadChunk);
    return false;
  }
  if (arrival == Arrival::kDuplicate) {
    receiver_.accept(now, number, ecn_ce);
    receiver_.on_duplicate(now);
    count_drop(Drop::kDuplicate);
    return false;
  }
  if (op->keeps_own && ops_.waits_for_own(header)) {
    return hold_early(frame, packet, ecn_ce, checked, now);
  }
  const std::byte* const next_read =
      arrival == Arrival::kReducing ? own_part(*op, site.span) : nullptr;
  if (!checked && !payload_is_whole(packet, next_read)) {
    if (planted(PlantedBug::kLyingAck)) receiver_.accept(now, number, ecn_ce);
    count_drop(Drop::kPayloadCrc);
    return false;
  }
  auto* payload = const_cast<std::byte*>(packet.payload.data());
  if (!apply(*op, header, arrival, site, frame, payload, packet.payload_crc, now)) {
    receiver_.request_ack();
    count_drop(Drop::kNoBuffer);
    return false;
  }
  receiver_.accept(now, number, ecn_ce);
  GRADWIRE_PROBE6(chunk_received, config_.key.group_id, header.op_seq, header.chunk, header.hop,
                  config_.rank, config_.lane);
  progress_at_ = now;
  counters_.ecn_ce_received += ecn_ce ? 1 : 0;
  ++counters_.data_packets_received;
  counters_.data_bytes_received += packet.payload.size();
  return true;
}

bool Shard::Impl::hold_early(rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce, bool checked,
                             TimeNs now) noexcept {
  const wire::DataHeader& header = packet.data;
  const bool held_already = early_.holds(header);
  if (!held_already && !early_.has_place(header, ready_.size() + ready_promised_, ops_)) {
    receiver_.request_ack();
    count_drop(Drop::kEagerOverflow);
    return false;
  }
  if (!checked && !payload_is_whole(packet, nullptr)) {
    count_drop(Drop::kPayloadCrc);
    return false;
  }
  receiver_.accept(now, packet.common.packet_number, ecn_ce);
  if (held_already) {
    count_drop(Drop::kDuplicate);
    return false;
  }
  early_.add(EarlyPacket{frame, const_cast<std::byte*>(packet.payload.data()), packet.payload_crc,
                         header});
  ++counters_.early_packets;
  counters_.ecn_ce_received += ecn_ce ? 1 : 0;
  ++counters_.data_packets_received;
  counters_.data_bytes_received += packet.payload.size();
  return true;
}

void Shard::Impl::retry_early(TimeNs now) noexcept {
  const std::uint64_t op_seq = early_.op_that_may_go(ops_);
  if (op_seq != 0) apply_early(op_seq, now);
}

void Shard::Impl::apply_early(std::uint64_t op_seq, TimeNs now) noexcept {
  // Out of the list before anything is done with it: an abort frees what is in the list.
  EarlyPacket packet;
  for (std::size_t from = 0; live() && early_.take(op_seq, ops_, from, packet);) {
    const wire::DataHeader& header = packet.header;
    const OpCall* ours = ops_.call(op_seq);  // none if the op is long done
    if (ours != nullptr && *ours != call_of(header)) {
      rte_pktmbuf_free(packet.mbuf);
      report_mismatch(*ours, header, now);
      return;
    }
    Op* op = ops_.find(op_seq);
    Site site;
    const Arrival arrival =
        op == nullptr ? Arrival::kDuplicate : classify(config_, ops_, folds_, *op, header, site);
    if (arrival != Arrival::kReducing && arrival != Arrival::kGathering) {
      count_drop(arrival == Arrival::kBad ? Drop::kBadChunk : Drop::kDuplicate);
      rte_pktmbuf_free(packet.mbuf);
    } else if (!apply(*op, header, arrival, site, packet.mbuf, packet.payload, packet.crc, now)) {
      early_.add(packet);  // No buffer now; it was acknowledged, so poll() tries again.
      return;
    }
  }
}

void Shard::Impl::report_mismatch(const OpCall& ours, const wire::DataHeader& theirs,
                                  TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = upstream_rank(),
                     .reporter_rank = config_.rank,
                     .op_seq = theirs.op_seq};
  // Several ranks may see it at once, each its own pair: the lower rank first, so that two ranks
  // that see each other say the same.
  struct Call {
    std::uint16_t rank;
    OpCall op;
  };
  Call first{upstream_rank(), call_of(theirs)};
  Call second{config_.rank, ours};
  if (second.rank < first.rank) std::swap(first, second);
  const auto written = fmt::format_to_n(
      reason.detail, AbortReason::kDetailBytes - 1,
      "rank {} called {} of {} {} with tag {}, rank {} called {} of {} {} with tag {}", first.rank,
      name_of(first.op.redop), first.op.count, name_of(first.op.datatype), first.op.tag,
      second.rank, name_of(second.op.redop), second.op.count, name_of(second.op.datatype),
      second.op.tag);
  *written.out = '\0';
  abort(reason, now);
}

void Shard::Impl::receive_ack(const wire::Packet& packet, TimeNs now) noexcept {
  ++counters_.acks_received;
  const std::uint64_t posted_before = sender_.posted_op_seq();
  const profile::Stage stage(profile::StageId::kTransport);
  const transport::Outcome outcome = sender_.on_ack(now, packet.ack);
  if (outcome.malformed) {
    count_drop(Drop::kMalformed);
    return;
  }
  if (outcome.limits_changed) release_eager(posted_before);
  apply_outcome(outcome, now);
}

void Shard::Impl::apply_outcome(const transport::Outcome& outcome, TimeNs now) noexcept {
  if (!outcome.acked.empty()) progress_at_ = now;
  const auto record_of = [&](transport::Cookie cookie) -> SentRecord* {
    if (cookie == transport::kNoCookie) return nullptr;
    SentRecord& record = records_[static_cast<std::uint32_t>(cookie)];
    const bool current = record.state != SentRecord::State::kFree &&
                         record.generation == static_cast<std::uint32_t>(cookie >> 32);
    return current ? &record : nullptr;
  };
  for (const transport::Cookie cookie : outcome.acked) {
    if (SentRecord* record = record_of(cookie)) free_record(*record);
  }
  for (const transport::Cookie cookie : outcome.lost) {
    SentRecord* record = record_of(cookie);
    // It may have been repeated since by a probe and be lost under its old number only: sending it
    // once more than needed is harmless.
    if (record == nullptr || record->state != SentRecord::State::kInFlight) continue;
    record->state = SentRecord::State::kLost;
    ++lost_count_;
  }
  probes_wanted_ = std::max(probes_wanted_, outcome.probes);
}

}  // namespace gradwire::ring
