// SPDX-License-Identifier: BSD-3-Clause
// Payloads in a GPU's memory. A received frame is a header in host memory and a payload behind it;
// the header is looked at and let go, and the payload alone goes on. Nothing is acknowledged, and
// no chunk claimed, before the GPU has made the payload's CRC: a packet takes the checks of
// shard_receive.cc twice, before and after. A frame that is sent gets a header of its own, each
// time that it is sent; the payload is shared by all of them, and never written after its CRC.
#include "ring/shard_impl.h"

namespace gradwire::ring {

using wire::Drop;

bool Shard::Impl::start_check(rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce,
                              TimeNs now) noexcept {
  if (frame->nb_segs != 2) {  // no port of ours has split it: the GPU does not reach it
    count_drop(Drop::kMalformed);
    return false;
  }
  PendingEntry* pending = take_pending();
  if (pending == nullptr) {
    count_drop(Drop::kNoBuffer);
    return false;
  }
  rte_mbuf* payload = frame->next;
  frame->next = nullptr;
  frame->nb_segs = 1;
  rte_pktmbuf_free(frame);
  const auto index = static_cast<std::size_t>(pending - pending_.data());
  CheckedPacket& check = checks_[index];
  check.mbuf = payload;
  check.payload = const_cast<std::byte*>(packet.payload.data());
  check.bytes = static_cast<std::uint32_t>(packet.payload.size());
  check.crc = packet.payload_crc;
  check.packet_number = packet.common.packet_number;
  check.ecn_ce = ecn_ce;
  check.header = packet.data;
  pending->role = PendingEntry::Role::kCheck;
  pending->chunk.mbuf = payload;

  reduce::Entry& entry = batch_[batch_count_++];
  entry = reduce::Entry{};
  entry.kind = reduce::Kind::kCheck;
  entry.datatype = DataType::kUint8;
  entry.crc = true;
  entry.count = check.bytes;
  entry.packet = check.payload;
  entry.cookie = index;
  if (batch_count_ >= config_.batch_entries || batch_count_ == batch_.size()) submit(now);
  return true;
}

void Shard::Impl::end_check(PendingEntry& pending, bool ok, std::uint32_t crc,
                            TimeNs now) noexcept {
  const CheckedPacket& check = checks_[static_cast<std::size_t>(&pending - pending_.data())];
  if (live() && ok && crc == check.crc && checked_.push(check)) return;
  if (live() && ok) count_drop(crc == check.crc ? Drop::kNoBuffer : Drop::kPayloadCrc);
  rte_pktmbuf_free(check.mbuf);
  if (!live() || ok) return;
  AbortReason reason{.code = AbortCode::kReduceFailed,
                     .culprit_rank = config_.rank,
                     .reporter_rank = config_.rank,
                     .op_seq = check.header.op_seq};
  abort(reason, now);
}

void Shard::Impl::receive_checked(TimeNs now) noexcept {
  while (!checked_.empty()) {  // an abort empties it
    const CheckedPacket check = checked_.front();
    checked_.pop();
    checked_packet_.common.packet_number = check.packet_number;
    checked_packet_.data = check.header;
    checked_packet_.payload = {check.payload, check.bytes};
    checked_packet_.payload_crc = check.crc;
    if (!receive_data(check.mbuf, checked_packet_, check.ecn_ce, true, now)) {
      rte_pktmbuf_free(check.mbuf);
    }
  }
  submit(now);
}

rte_mbuf* Shard::Impl::alloc_payload(std::byte*& payload) noexcept {
  rte_mbuf* mbuf = rte_pktmbuf_alloc(config_.payload_pool);
  if (mbuf == nullptr) return nullptr;
  mbuf->data_off = 0;  // the buffer's start is aligned, and no header comes before it
  payload = rte_pktmbuf_mtod(mbuf, std::byte*);
  return mbuf;
}

rte_mbuf* Shard::Impl::chain_header(const ReadyChunk& chunk) noexcept {
  rte_mbuf* header = rte_pktmbuf_alloc(config_.packet_pool);
  if (header == nullptr) return nullptr;
  chunk.mbuf->data_len = static_cast<std::uint16_t>(chunk.bytes);
  chunk.mbuf->pkt_len = chunk.bytes;
  header->data_len = static_cast<std::uint16_t>(config_.to_downstream.bytes() + wire::kHeaderBytes);
  header->pkt_len = header->data_len + chunk.bytes;
  header->next = chunk.mbuf;
  header->nb_segs = 2;
  return header;
}

}  // namespace gradwire::ring
