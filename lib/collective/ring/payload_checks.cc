// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ring/payload_checks.h"

namespace gradwire::collective {

using wire::Drop;

Drop PayloadChecks::start(rte_mbuf* frame, const wire::Packet& packet, LinkIndex link, bool ecn_ce,
                          FoldQueue& folds, bool& may_be_done) noexcept {
  // None of our ports has split it, so the GPU cannot reach it.
  if (frame->nb_segs != 2) return Drop::kMalformed;
  if (folds.full()) return Drop::kNoBuffer;
  FoldWork& work = folds.take();
  rte_mbuf* payload = frame->next;
  frame->next = nullptr;
  frame->nb_segs = 1;
  rte_pktmbuf_free(frame);
  CheckedPacket& check = checks_[folds.place_of(work)];
  check.mbuf = payload;
  check.payload = const_cast<std::byte*>(packet.payload.data());
  check.bytes = static_cast<std::uint32_t>(packet.payload.size());
  check.crc = packet.payload_crc;
  check.packet_number = packet.common.packet_number;
  check.link = link;
  check.ecn_ce = ecn_ce;
  check.header = packet.data;
  work.role = FoldWork::Role::kCheck;
  work.chunk.mbuf = payload;

  reduce::Entry& entry = folds.entry();
  entry = reduce::Entry{};
  entry.kind = reduce::Kind::kCheck;
  entry.datatype = DataType::kUint8;
  entry.crc = true;
  entry.count = check.bytes;
  entry.packet = check.payload;
  may_be_done = folds.add(work);
  return Drop::kNone;
}

CheckedPacket PayloadChecks::take() noexcept {
  require(!right_.empty(), "a checked packet is taken if there is one");
  const CheckedPacket packet = right_.front();
  right_.pop();
  return packet;
}

void PayloadChecks::free_all() noexcept {
  for (; !right_.empty(); right_.pop()) rte_pktmbuf_free(right_.front().mbuf);
}

}  // namespace gradwire::collective
