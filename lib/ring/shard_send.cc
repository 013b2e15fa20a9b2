// SPDX-License-Identifier: BSD-3-Clause
// What goes out, in this order: what was lost, what is in transit, what was spilled, what starts
// here, and acknowledgements. Transit goes before own chunks, and own chunks may use half of the
// window only, so that what is already on its way round the ring seldom has to wait or spill. An
// exchange has no transit, and takes the whole window.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/planted_bug.h"
#include "base/probe.h"
#include "base/profile.h"
#include "ring/shard_impl.h"

namespace gradwire::ring {

using wire::PacketType;

bool Shard::Impl::poll(TimeNs now, bool idle, Outbox& out) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  if (state_ == ShardState::kIdle || state_ == ShardState::kClosed) return false;
  submit(now);
  if (!checks_.empty()) receive_checked(now);
  bool worked = false;
  account_silence(now);
  if (config_.nranks == 1) {
    worked = live() && run_local(now);
    worked |= run_lifecycle(now, out);
    return worked;
  }
  worked |= run_lifecycle(now, out);
  if (!live()) return worked;

  if (!progress_checks_.empty()) worked |= send_progress_checks(out);
  if (sender_.deadline() <= now) {
    apply_outcome(sender_.on_deadline(now), now);
    worked = true;
  }
  if (!early_.empty()) retry_early(now);
  if (!live() || !downstream_.heard) return worked | send_ack(now, idle, out);
  if (probes_wanted_ > 0) send_probes(now, out);
  worked |= send_lost(now, out);
  worked |= send_transit(now, out);
  if (ops_.spilled() > 0) worked |= start_spilled(now, out);
  worked |= start_own(now, out);
  submit(now);
  // What waited for that.
  if (!early_.empty()) retry_early(now);
  worked |= send_transit(now, out);
  notice_blocked(now);
  worked |= send_ping_if_quiet(now, out);
  worked |= send_ack(now, idle, out);
  return worked;
}

void Shard::Impl::write_data_frame(rte_mbuf* mbuf, const ReadyChunk& chunk,
                                   std::uint64_t packet_number) noexcept {
  const std::size_t frame_bytes = config_.to_downstream.bytes();
  std::byte* frame = nullptr;
  if (buffers_.on_device()) {
    frame = rte_pktmbuf_mtod(mbuf, std::byte*);
  } else {
    frame = chunk.payload - wire::kHeaderBytes - frame_bytes;
    mbuf->data_off = static_cast<std::uint16_t>(frame - static_cast<std::byte*>(mbuf->buf_addr));
    mbuf->data_len = static_cast<std::uint16_t>(frame_bytes + wire::kHeaderBytes + chunk.bytes);
    mbuf->pkt_len = mbuf->data_len;
    mbuf->ol_flags = 0;
  }
  std::byte* header = frame + frame_bytes;
  config_.to_downstream.write(frame, wire::kHeaderBytes + chunk.bytes);
  // As it was before the chunk kept it, but that a null pointer is not read.
  if (planted(PlantedBug::kDescriptorOfForgottenOp) && ops_.call(chunk.id.op_seq) == nullptr) {
    std::abort();
  }
  wire::DataHeader data;
  data.op_seq = chunk.id.op_seq;
  data.total_count = chunk.call.count;
  data.chunk = chunk.id.chunk;
  data.tag = chunk.call.tag;
  data.count = static_cast<std::uint16_t>(chunk.bytes / element_bytes(chunk.call.datatype));
  data.hop = chunk.id.hop;
  data.datatype = chunk.call.datatype;
  data.redop = chunk.call.redop;
  wire::encode_data(std::span<std::byte, wire::kHeaderBytes>(header, wire::kHeaderBytes),
                    common_header(PacketType::kData, true, packet_number), data, chunk.crc);
}

bool Shard::Impl::transmit_record(SentRecord& record, TimeNs now, Outbox& out) noexcept {
  ReadyChunk& chunk = record.chunk;
  rte_mbuf* frame = chunk.mbuf;
  if (buffers_.on_device()) {
    // What a driver may still hold has a header of its own, and the payload does not change.
    frame = buffers_.chain_header(chunk);
    if (frame == nullptr) return false;
  } else if (rte_mbuf_refcnt_read(chunk.mbuf) != 1 && !planted(PlantedBug::kEarlyReuse)) {
    // A driver still holds the frame that went out before: its bytes must not change.
    std::byte* payload = nullptr;
    rte_mbuf* copy = buffers_.alloc(payload);
    if (copy == nullptr) return false;
    std::memcpy(payload, chunk.payload, chunk.bytes);
    rte_pktmbuf_free(chunk.mbuf);
    frame = chunk.mbuf = copy;
    chunk.payload = payload;
    ++counters_.copies;
  }
  const auto index = static_cast<std::uint64_t>(&record - records_.data());
  const transport::Cookie cookie = std::uint64_t{record.generation} << 32 | index;
  record.last_packet_number = sender_.on_sent(now, wire_bytes(chunk.bytes), cookie);
  record.state = SentRecord::State::kInFlight;
  write_data_frame(frame, chunk, record.last_packet_number);
  rte_mbuf_refcnt_update(chunk.mbuf, 1);
  out.down[out.down_count++] = frame;
  GRADWIRE_PROBE6(chunk_sent, config_.key.group_id, chunk.id.op_seq, chunk.id.chunk, chunk.id.hop,
                  config_.rank, config_.lane);
  last_down_sent_ = now;
  ++counters_.data_packets_sent;
  counters_.data_bytes_sent += chunk.bytes;
  return true;
}

bool Shard::Impl::transmit_first(const ReadyChunk& chunk, TimeNs now, Outbox& out) noexcept {
  SentRecord& record = records_[records_free_.back()];
  records_free_.pop_back();
  record.chunk = chunk;
  ++record.generation;
  ++distinct_sent_;
  if (transmit_record(record, now, out)) return true;
  // No header is to be had (payloads on a device alone): as if it had been lost on its way.
  record.state = SentRecord::State::kLost;
  ++lost_count_;
  return false;
}

void Shard::Impl::free_record(SentRecord& record) noexcept {
  if (record.state == SentRecord::State::kLost) --lost_count_;
  rte_pktmbuf_free(record.chunk.mbuf);
  record.chunk.mbuf = nullptr;
  record.state = SentRecord::State::kFree;
  records_free_.push_back(static_cast<std::uint32_t>(&record - records_.data()));
}

void Shard::Impl::sent_again(const SentRecord& record) noexcept {
  ++counters_.retransmissions;
  [[maybe_unused]] const ChunkId& id = record.chunk.id;
  GRADWIRE_PROBE6(retransmission, config_.key.group_id, id.op_seq, id.chunk, id.hop, config_.rank,
                  config_.lane);
}

bool Shard::Impl::send_lost(TimeNs now, Outbox& out) noexcept {
  if (lost_count_ == 0) return false;
  bool worked = false;
  for (SentRecord& record : records_) {
    if (record.state != SentRecord::State::kLost) continue;
    if (out.down_count >= out.down_room || !sender_.can_send(now, wire_bytes(record.chunk.bytes)) ||
        !transmit_record(record, now, out)) {
      break;
    }
    --lost_count_;
    sent_again(record);
    worked = true;
  }
  return worked;
}

void Shard::Impl::send_probes(TimeNs now, Outbox& out) noexcept {
  while (probes_wanted_ > 0 && out.down_count < out.down_room && sender_.has_number()) {
    --probes_wanted_;
    ++counters_.probes;
    // The oldest chunk that is not acknowledged is the most useful probe.
    SentRecord* oldest = nullptr;
    for (SentRecord& record : records_) {
      if (record.state == SentRecord::State::kInFlight &&
          (oldest == nullptr || record.last_packet_number < oldest->last_packet_number)) {
        oldest = &record;
      }
    }
    if (oldest != nullptr && transmit_record(*oldest, now, out)) {
      sent_again(*oldest);
    } else {
      send_ping(now, out);
    }
  }
}

bool Shard::Impl::send_transit(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  while (!ready_.empty() && out.down_count < out.down_room && !records_free_.empty() &&
         distinct_sent_ < sender_.credit_chunks() &&
         sender_.can_send(now, wire_bytes(ready_.front().bytes))) {
    const ReadyChunk chunk = ready_.front();
    ready_.pop();
    transmit_first(chunk, now, out);
    worked = true;
  }
  return worked;
}

bool Shard::Impl::has_grant(const Op& op) const noexcept {
  return op.spec.op_seq <= sender_.posted_op_seq() || eager_outstanding_ < config_.eager_packets;
}

bool Shard::Impl::take_grant(Op& op) noexcept {
  if (op.spec.op_seq <= sender_.posted_op_seq()) return true;
  if (eager_outstanding_ >= config_.eager_packets) return false;
  ++eager_outstanding_;
  ++op.eager_sent;
  return true;
}

void Shard::Impl::release_eager(std::uint64_t posted_before) noexcept {
  const std::uint64_t last = std::min(sender_.posted_op_seq(), ops_.posted());
  // Those done have given their places back, and may be millions: ops of no elements.
  for (std::uint64_t op_seq = std::max(posted_before, ops_.done()) + 1; op_seq <= last; ++op_seq) {
    Op* op = ops_.find(op_seq);
    if (op == nullptr) continue;
    eager_outstanding_ -= op->eager_sent;
    op->eager_sent = 0;
  }
}

bool Shard::Impl::may_start(std::uint32_t payload_bytes, TimeNs now,
                            const Outbox& out) const noexcept {
  return !folds_.full() && records_free_.size() > ready_.size() + ready_promised_ &&
         out.down_count + ready_.size() + ready_promised_ < out.down_room &&
         distinct_sent_ + ready_.size() + ready_promised_ < sender_.credit_chunks() &&
         sender_.can_send(now, wire_bytes(payload_bytes));
}

bool Shard::Impl::start_outgoing(Op& op, std::uint64_t chunk, std::uint16_t hop, reduce::Kind kind,
                                 TimeNs now) noexcept {
  std::byte* payload = nullptr;
  rte_mbuf* mbuf = buffers_.alloc(payload);
  if (mbuf == nullptr) return false;
  if (!take_grant(op)) {
    rte_pktmbuf_free(mbuf);
    return false;
  }
  FoldWork& work = folds_.take();
  work.role = FoldWork::Role::kOutgoing;
  work.chunk.mbuf = mbuf;
  work.chunk.payload = payload;
  const ChunkSpan span = op.partition.span_of(chunk);
  work.chunk.bytes = span.elements * element_bytes(op.spec.datatype);
  work.chunk.id = ChunkId{op.spec.op_seq, static_cast<std::uint32_t>(chunk), hop};
  work.chunk.call = call_of(op.spec);
  ++ready_promised_;
  queue_entry(work, kind, op, span, false, now);
  return true;
}

bool Shard::Impl::start_spilled(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  std::uint64_t next = 1;
  while (Op* op = ops_.next_spilled(next)) {
    next = op->spec.op_seq + 1;
    if (!has_grant(*op)) break;  // Later ops have none either.
    while (op->spilled_left > 0) {
      const std::uint64_t index = OpTable::first_spilled(*op);
      if (!may_start(config_.payload_bytes, now, out) || !has_grant(*op)) return worked;
      const std::uint64_t chunk = ops_.chunk_of(index);
      const Place place =
          place_of(op->shape, config_.rank, op->partition.segment_of(chunk), config_.nranks);
      const std::uint16_t arrived =
          test_bit(op->gathered, index) ? place.gathering_hop : place.reducing_hop;
      if (!start_outgoing(*op, chunk, static_cast<std::uint16_t>(arrived + 1),
                          reduce::Kind::kLoadFromOutput, now)) {
        return worked;
      }
      if (!live()) return true;  // The backend failed at once: nothing is to be sent any more.
      ops_.remove_spilled(*op, index);
      worked = true;
      finish_if_done(*op);  // A backend that is done at once was done before the lines above.
    }
  }
  return worked;
}

bool Shard::Impl::spilled_may_go() const noexcept {
  const Op* op = ops_.oldest_spilled();
  return op != nullptr && has_grant(*op);
}

bool Shard::Impl::own_may_go(const Op& op) const noexcept {
  const std::size_t busy = records_.size() - records_free_.size() + ready_.size() + ready_promised_;
  return has_grant(op) && (op.rules.whole_window || busy * 2 < records_.size());
}

bool Shard::Impl::something_may_go() const noexcept {
  // Window, credit and grants are opened by packets, which wake who sleeps, or by the probe
  // timeout.
  if (!live() || !downstream_.heard || !sender_.window_lets(wire_bytes(config_.payload_bytes))) {
    return false;
  }
  if (lost_count_ > 0) return true;
  if (distinct_sent_ + ready_promised_ >= sender_.credit_chunks()) return false;
  if (records_free_.size() <= ready_promised_) return false;
  if (!ready_.empty()) return true;
  if (folds_.full()) return false;  // deadline() asks the backend.
  if (spilled_may_go()) return true;
  const Op* own = ops_.peek_own();
  return own != nullptr && own_may_go(*own);
}

bool Shard::Impl::start_own(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  const bool spilled_first =
      planted(PlantedBug::kSpillWithoutGrantHoldsBack) ? ops_.spilled() > 0 : spilled_may_go();
  while (Op* op = ops_.next_own()) {
    while (op->own_next < op->own_end) {
      if (spilled_first || !own_may_go(*op) || !may_start(config_.payload_bytes, now, out) ||
          !start_outgoing(*op, op->own_next, 0, reduce::Kind::kLoad, now)) {
        return worked;
      }
      op->own_next += config_.lanes;
      worked = true;
      if (!live()) return true;
      finish_if_done(*op);  // All that was to arrive may have, in an exchange.
    }
  }
  return worked;
}

bool Shard::Impl::run_local(TimeNs now) noexcept {
  // A group of one rank: as many chunks per round as a burst, so that other groups get their turn.
  bool worked = false;
  while (Op* op = ops_.next_own()) {
    while (op->own_next < op->own_end) {
      if (folds_.size() >= folds_.places() / 2) return true;
      const std::uint64_t chunk = op->own_next;
      FoldWork& work = folds_.take();
      work.role = FoldWork::Role::kLocal;
      work.chunk.id.op_seq = op->spec.op_seq;
      work.chunk.id.chunk = static_cast<std::uint32_t>(chunk);
      op->own_next += config_.lanes;
      const bool last = op->own_next >= op->own_end;
      queue_entry(work, reduce::Kind::kLocal, *op, op->partition.span_of(chunk), true, now);
      worked = true;
      if (last) break;
      if (ops_.index_of(chunk) % 64 == 63) {
        submit(now);
        return true;
      }
    }
  }
  submit(now);
  return worked;
}

void Shard::Impl::notice_blocked(TimeNs now) noexcept {
  if (sender_.packets_in_flight() != 0) return;
  const bool waits_for_grant = !ready_.empty() || ops_.spilled() > 0 || ops_.own_waits();
  if (waits_for_grant) sender_.set_blocked(now);
}

void Shard::Impl::send_ping(TimeNs now, Outbox& out) noexcept {
  if (!sender_.has_number()) return;
  send_control(config_.control_pool, true, out, [&](std::span<std::byte> room) {
    const std::uint64_t number = sender_.on_sent(now, wire_bytes(0), transport::kNoCookie);
    return wire::encode_ping(room, common_header(PacketType::kPing, true, number));
  });
  last_down_sent_ = now;
  ++counters_.pings_sent;
}

bool Shard::Impl::send_ping_if_quiet(TimeNs now, Outbox& out) noexcept {
  if (now - last_down_sent_ < config_.timeouts.ping_interval_ns || downstream_.left ||
      out.down_count >= out.down_room) {
    return false;
  }
  send_ping(now, out);
  return true;
}

bool Shard::Impl::send_ack(TimeNs now, bool idle, Outbox& out) noexcept {
  if (!upstream_.heard || out.up_count >= out.up_room || !receiver_.ack_due(now, idle)) {
    return false;
  }
  const profile::Stage stage(profile::StageId::kTransport);
  const bool sent = send_control(config_.control_pool, false, out, [&](std::span<std::byte> room) {
    wire::AckHeader& ack = ack_;
    ack.credit_chunks = credit_told_ = credit_limit();
    ack.posted_op_seq = ops_.posted();
#ifdef GRADWIRE_PLANTED_BUGS
    if (planted(PlantedBug::kLostCreditUpdate)) say_limits_once(ack);
#endif
    receiver_.write_ack(now, ack);
    return wire::encode_ack(
        room, common_header(PacketType::kAck, false, receiver_.next_packet_number()), ack);
  });
  if (sent) ++counters_.acks_sent;
  return sent;
}

}  // namespace gradwire::ring
