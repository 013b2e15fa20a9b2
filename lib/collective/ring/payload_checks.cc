// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ring/payload_checks.h"

namespace gradwire::collective {

using wire::Drop;

Drop PayloadChecks::start(const IncomingPacket& received, FoldQueue& folds,
                          bool& may_be_done) noexcept {
  rte_mbuf* const frame = received.mbuf;
  // None of our ports has split it, so the GPU cannot reach it.
  if (frame->nb_segs != 2) return Drop::kMalformed;
  if (folds.full()) return Drop::kNoBuffer;
  FoldWork& work = folds.take();
  rte_mbuf* payload = frame->next;
  frame->next = nullptr;
  frame->nb_segs = 1;
  rte_pktmbuf_free(frame);
  IncomingPacket& check = checks_[folds.place_of(work)];
  check = received;
  check.mbuf = payload;
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

IncomingPacket PayloadChecks::take() noexcept {
  require(!right_.empty(), "a checked packet is taken if there is one");
  const IncomingPacket packet = right_.front();
  right_.pop();
  return packet;
}

void PayloadChecks::free_all() noexcept {
  for (; !right_.empty(); right_.pop()) rte_pktmbuf_free(right_.front().mbuf);
}

}  // namespace gradwire::collective
