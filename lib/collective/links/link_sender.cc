// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/link_sender.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/planted_bug.h"
#include "base/probe.h"
#include "base/require.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

std::unique_ptr<transport::CongestionController> controller(const ShardConfig& config) {
  return transport::make_controller({.kind = config.congestion,
                                     .max_window_bytes = window_bytes(config),
                                     .packet_bytes = full_packet_wire_bytes(config),
                                     .swift_target_ns = config.swift_target_ns});
}

}  // namespace

LinkSender::LinkSender(const ShardConfig& config, LinkEnd& end, const PacketBuffers& buffers,
                       OpTable& ops, ShardCounters& counters)
    : config_(config),
      end_(end),
      buffers_(buffers),
      ops_(ops),
      counters_(counters),
      sender_(sender_config(config), controller(config), end.numbers()),
      in_flight_(config.window_packets),
      // Transit stops at its own bound, own and spilled chunks at the window.
      ready_(std::max(config.transit_packets, config.window_packets)) {}

void LinkSender::raise_limits(std::uint64_t credit_chunks, std::uint64_t posted_op_seq) noexcept {
  const std::uint64_t posted_before = sender_.posted_op_seq();
  // Its first word is all the room that the other rank has. What came early may have taken its part
  // of that for as long as a client likes.
  if (sender_.credit_chunks() == 0 && credit_chunks > config_.eager_packets) {
    left_to_transit_ = std::max<std::uint64_t>((credit_chunks - config_.eager_packets) / 2, 1);
  }
  if (sender_.raise_limits(credit_chunks, posted_op_seq)) release_grants(posted_before);
}

void LinkSender::release_grants(std::uint64_t posted_before) noexcept {
  // No data goes there: what went ahead went to another rank.
  if (end_.address().role != LinkRole::kRing) return;
  const std::uint64_t last = std::min(sender_.posted_op_seq(), ops_.posted());
  // Those done have given their places back, and may be millions: ops of no elements.
  for (std::uint64_t op_seq = std::max(posted_before, ops_.done()) + 1; op_seq <= last; ++op_seq) {
    if (Op* op = ops_.find(op_seq)) give_back_eager(*op);
  }
}

LinkSender::Blocked LinkSender::blocked() const noexcept {
  // Window, credit and grants are opened by packets, which wake who sleeps, or by the probe
  // timeout.
  if (!sender_.window_lets(wire_bytes(config_.payload_bytes))) return Blocked::kYes;
  if (in_flight_.lost() > 0) return Blocked::kNo;
  if (distinct_sent_ + promised_ >= sender_.credit_chunks()) return Blocked::kYes;
  if (in_flight_.free() <= promised_) return Blocked::kYes;
  return ready_.empty() ? Blocked::kIfNothingStarts : Blocked::kNo;
}

SendOutcome LinkSender::on_ack(const wire::AckHeader& ack, TimeNs now) noexcept {
  const std::uint64_t posted_before = sender_.posted_op_seq();
  const transport::Outcome outcome = sender_.on_ack(now, ack);
  if (outcome.malformed) return {.malformed = true};
  if (outcome.limits_changed) release_grants(posted_before);
  return apply(outcome);
}

SendOutcome LinkSender::on_deadline(TimeNs now) noexcept { return apply(sender_.on_deadline(now)); }

SendOutcome LinkSender::apply(const transport::Outcome& outcome) noexcept {
  std::array<rte_mbuf*, 64> acked;
  unsigned count = 0;
  for (const transport::Cookie cookie : outcome.acked) {
    SentRecord* record = in_flight_.find(cookie);
    if (record == nullptr) continue;
    freed_ += record->chunk.id.holds_credit ? 1 : 0;
    acked[count++] = in_flight_.release(*record);
    if (count < acked.size()) continue;
    rte_pktmbuf_free_bulk(acked.data(), count);
    count = 0;
  }
  if (count != 0) rte_pktmbuf_free_bulk(acked.data(), count);
  for (const transport::Cookie cookie : outcome.lost) {
    SentRecord* record = in_flight_.find(cookie);
    // It may have been repeated since by a probe and be lost under its old number only: sending it
    // once more than needed is harmless.
    if (record == nullptr || record->state != SentRecord::State::kInFlight) continue;
    in_flight_.mark_lost(*record);
  }
  probes_wanted_ = std::max(probes_wanted_, outcome.probes);
  return {.acknowledged = !outcome.acked.empty(), .newest = outcome.newest};
}

void LinkSender::on_path_changed(bool resend, TimeNs now) noexcept {
  (void)apply(sender_.on_path_changed(now, resend));
  probe_at_once();
}

void LinkSender::make_headers(const ReadyChunk& chunk, Headers& headers) const noexcept {
  headers.op_seq = chunk.id.op_seq;
  headers.bytes = chunk.bytes;
  headers.frames_made = end_.frames_made();
  end_.address().frame.write(headers.frame.data(), wire::kHeaderBytes + chunk.bytes);
  headers.data.make(end_.header(PacketType::kData, 0), header_of(chunk.id.op_seq, chunk.call));
}

inline const LinkSender::Headers& LinkSender::headers_of(const ReadyChunk& chunk) noexcept {
  // As it was before the chunk kept it, but that a null pointer is not read.
  if (planted(PlantedBug::kDescriptorOfForgottenOp) && ops_.call(chunk.id.op_seq) == nullptr) {
    std::abort();
  }
  Headers& headers = headers_[chunk.id.op_seq % headers_.size()];
  if (headers.op_seq != chunk.id.op_seq || headers.bytes != chunk.bytes ||
      headers.frames_made != end_.frames_made()) [[unlikely]] {
    make_headers(chunk, headers);
  }
  return headers;
}

inline void LinkSender::write_frame(rte_mbuf* mbuf, std::byte* payload, const ReadyChunk& chunk,
                                    const Headers& headers, std::uint64_t packet_number) noexcept {
  const std::size_t frame_bytes = end_.address().frame.bytes();
  std::byte* frame = nullptr;
  if (buffers_.on_device()) [[unlikely]] {
    frame = rte_pktmbuf_mtod(mbuf, std::byte*);
  } else {
    frame = payload - wire::kHeaderBytes - frame_bytes;
    mbuf->data_off = static_cast<std::uint16_t>(frame - static_cast<std::byte*>(mbuf->buf_addr));
    mbuf->data_len = static_cast<std::uint16_t>(frame_bytes + wire::kHeaderBytes + chunk.bytes);
    mbuf->pkt_len = mbuf->data_len;
    mbuf->ol_flags = 0;
  }
  require_dear([&] { return frame >= mbuf->buf_addr; },
               "there is room for headers before a payload");
  // A constant length makes the copy a few moves instead of a call.
  constexpr std::size_t kPlainBytes = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  std::memcpy(frame, headers.frame.data(), kPlainBytes);
  if (frame_bytes != kPlainBytes) [[unlikely]]
    std::memcpy(frame, headers.frame.data(), frame_bytes);
  headers.data.write(frame + frame_bytes, packet_number, chunk.id.chunk, chunk.id.hop, chunk.crc);
}

/// Of a payload on a device: what a driver may still hold has a header of its own, and the payload
/// does not change. Of another one, of which a driver still holds the frame that went out before:
/// a copy, since that one's bytes must not change.
rte_mbuf* LinkSender::make_frame(ReadyChunk& chunk) noexcept {
  if (buffers_.on_device()) return buffers_.chain_header(chunk);
  if (!buffers_.move_to_own(chunk.mbuf, chunk.payload, chunk.bytes)) return nullptr;
  ++counters_.copies;
  return chunk.mbuf;
}

inline void LinkSender::note_sent(const ReadyChunk& chunk, TimeNs now) noexcept {
  GRADWIRE_PROBE6(chunk_sent, config_.key.group_id, chunk.id.op_seq, chunk.id.chunk, chunk.id.hop,
                  config_.rank, config_.lane);
  last_sent_ = now;
  ++counters_.data_packets_sent;
  counters_.data_bytes_sent += chunk.bytes;
}

inline bool LinkSender::transmit(SentRecord& record, const Headers& headers,
                                 std::uint32_t wire_bytes, TimeNs now, OutboxSide& box) noexcept {
  if (end_.seals()) [[unlikely]] {
    if (!end_.has_key()) return false;
    if (end_.encrypts()) return transmit_encrypted(record, headers, wire_bytes, now, box);
  }
  ReadyChunk& chunk = record.chunk;
  rte_mbuf* frame = chunk.mbuf;
  if (buffers_.on_device() ||
      (rte_mbuf_refcnt_read(frame) != 1 && !planted(PlantedBug::kEarlyReuse))) [[unlikely]] {
    frame = make_frame(chunk);
    if (frame == nullptr) return false;
  }
  record.last_packet_number = sender_.on_sent(now, wire_bytes, in_flight_.cookie_of(record));
  in_flight_.mark_sent(record);
  write_frame(frame, chunk.payload, chunk, headers, record.last_packet_number);
  rte_mbuf_refcnt_update(chunk.mbuf, 1);
  end_.put(frame, end_.address().frame, chunk.payload, box);
  note_sent(chunk, now);
  return true;
}

bool LinkSender::transmit_encrypted(SentRecord& record, const Headers& headers,
                                    std::uint32_t wire_bytes, TimeNs now,
                                    OutboxSide& box) noexcept {
  const ReadyChunk& chunk = record.chunk;
  std::byte* sealed = nullptr;
  rte_mbuf* const frame = buffers_.alloc_on_host(sealed);
  if (frame == nullptr) return false;
  frame->port = chunk.mbuf->port;
  const std::uint64_t before = record.last_packet_number;
  record.last_packet_number = sender_.on_sent(now, wire_bytes, in_flight_.cookie_of(record));
  in_flight_.mark_sent(record);
  const bool old = before != 0 && planted(PlantedBug::kSealedUnderOldNumber);
  write_frame(frame, sealed, chunk, headers, old ? before : record.last_packet_number);
  end_.put(frame, end_.address().frame, chunk.payload, box);
  note_sent(chunk, now);
  return true;
}

bool LinkSender::transmit_again(SentRecord& record, TimeNs now, OutboxSide& box) noexcept {
  const ReadyChunk& chunk = record.chunk;
  if (!transmit(record, headers_of(chunk), wire_bytes(chunk.bytes), now, box)) return false;
  ++counters_.retransmissions;
  [[maybe_unused]] const ChunkId& id = record.chunk.id;
  GRADWIRE_PROBE6(retransmission, config_.key.group_id, id.op_seq, id.chunk, id.hop, config_.rank,
                  config_.lane);
  return true;
}

bool LinkSender::send_lost(TimeNs now, OutboxSide& box) noexcept {
  if (in_flight_.lost() == 0) return false;
  bool worked = false;
  for (SentRecord& record : in_flight_.records()) {
    if (record.state != SentRecord::State::kLost) continue;
    if (box.full() || !sender_.can_send(now, wire_bytes(record.chunk.bytes)) ||
        !transmit_again(record, now, box)) {
      break;
    }
    worked = true;
  }
  return worked;
}

void LinkSender::send_probes(TimeNs now, OutboxSide& box) noexcept {
  while (probes_wanted_ > 0 && !box.full() && sender_.has_room()) {
    --probes_wanted_;
    ++counters_.probes;
    // The oldest chunk that is not acknowledged is the most useful probe.
    SentRecord* oldest = in_flight_.oldest();
    if (oldest == nullptr || !transmit_again(*oldest, now, box)) send_ping(now, box);
  }
}

bool LinkSender::send_ready(TimeNs now, OutboxSide& box) noexcept {
  bool worked = false;
  // Chunks wait for the key of the next generation, as for a pacer. It is looked for once: a round
  // sends far fewer packets than a generation has.
  if (!end_.has_key()) [[unlikely]]
    return worked;
  // Nothing that a round sends makes more room of these.
  const std::uint64_t window = sender_.window_bytes();
  const std::uint64_t credit = sender_.credit_chunks();
  std::uint64_t left = std::min<std::uint64_t>(
      {ready_.size(), box.full() ? 0 : box.room - box.count, in_flight_.free(),
       distinct_sent_ < credit ? credit - distinct_sent_ : 0});
  const Headers* headers = nullptr;
  for (; left > 0; --left) {
    const ReadyChunk& chunk = ready_.front();
    const std::uint32_t bytes = wire_bytes(chunk.bytes);
    if (!sender_.can_send(now, bytes, window)) break;
    // Chunks that go one after the other are mostly of one op and length.
    if (headers == nullptr || headers->op_seq != chunk.id.op_seq || headers->bytes != chunk.bytes) {
      headers = &headers_of(chunk);
    }
    SentRecord& record = in_flight_.take(chunk);
    ++distinct_sent_;
    // No header is to be had (payloads on a device alone): as if it had been lost on its way.
    if (!transmit(record, *headers, bytes, now, box)) [[unlikely]]
      in_flight_.mark_lost(record);
    ready_.pop();
    worked = true;
  }
  return worked;
}

bool LinkSender::has_any_of(std::uint64_t op_seq) const noexcept {
  return in_flight_.has_any_of(op_seq) ||
         ready_.any_of([&](const ReadyChunk& chunk) { return chunk.id.op_seq == op_seq; });
}

void LinkSender::notice_blocked(bool more_to_go, TimeNs now) noexcept {
  if (sender_.packets_in_flight() != 0) return;
  if (more_to_go || !ready_.empty()) sender_.set_blocked(now);
}

void LinkSender::send_ping(TimeNs now, OutboxSide& box) noexcept {
  if (!sender_.has_room() || !end_.has_key()) return;
  end_.send(config_.control_pool, box, [&](std::span<std::byte> room) {
    const std::uint64_t number = sender_.on_sent(now, wire_bytes(0), transport::kNoCookie);
    return wire::encode_ping(room, end_.header(PacketType::kPing, number), asks_for_);
  });
  last_sent_ = asked_at_ = now;
  asks_at_once_ = false;
  ++counters_.pings_sent;
}

bool LinkSender::send_ping_if_quiet(TimeNs now, OutboxSide& box) noexcept {
  const bool quiet = now - last_sent_ >= config_.timeouts.ping_interval_ns;
  // Data acknowledges nothing of what a ping asks for.
  const bool asks =
      asks_for_ != 0 && (asks_at_once_ || now - asked_at_ >= config_.timeouts.ping_interval_ns);
  if ((!quiet && !asks) || box.full() || !sender_.has_room()) return false;
  send_ping(now, box);
  return true;
}

void LinkSender::drop_all() noexcept {
  for (const SentRecord& record : in_flight_.records()) {
    if (record.state != SentRecord::State::kFree) freed_ += record.chunk.id.holds_credit ? 1 : 0;
  }
  in_flight_.release_all();
  require(in_flight_.empty() && in_flight_.lost() == 0, "a group that ends waits for nothing");
  for (; !ready_.empty(); ready_.pop()) {
    freed_ += ready_.front().id.holds_credit ? 1 : 0;
    rte_pktmbuf_free(ready_.front().mbuf);
  }
  sender_.forget_all();
  probes_wanted_ = 0;
}

}  // namespace gradwire::collective
