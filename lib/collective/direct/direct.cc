// SPDX-License-Identifier: BSD-3-Clause
// What comes. direct_ops.cc has what becomes of ops, direct_send.cc what is sent, and when.
#include "collective/direct/direct.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

namespace {

std::uint16_t other(const ShardConfig& config, std::uint32_t ahead) {
  return static_cast<std::uint16_t>((config.rank + ahead) % config.nranks);
}

/// All others, the next one first; those that have no members last.
std::vector<std::uint16_t> others_of(const ShardConfig& config) {
  std::vector<std::uint16_t> others;
  for (std::uint32_t ahead = config.folds_only() ? 0 : 1; ahead < config.nranks; ++ahead) {
    others.push_back(other(config, ahead));
  }
  for (std::uint16_t rank = config.nranks; rank < config.all_ranks() && !config.folds_only();
       ++rank) {
    others.push_back(rank);
  }
  return others;
}

bool gathers(const ShardConfig& config) {
  return config.direct.gathered_bytes != 0 && !config.folds_only();
}

std::vector<std::uint16_t> partners_of(const ShardConfig& config) {
  std::vector<std::uint16_t> partners;
  for (std::uint32_t ahead = 1; gathers(config) && ahead < config.nranks; ++ahead) {
    const std::uint32_t behind = config.nranks - ahead;
    if (std::has_single_bit(ahead) || std::has_single_bit(behind)) {
      partners.push_back(other(config, ahead));
    }
  }
  return partners;
}

/// By rank, of what may come early.
std::vector<std::uint32_t> early_bytes_of(const ShardConfig& config,
                                          const std::vector<std::uint16_t>& others) {
  const std::uint64_t of_each =
      std::max(config.direct.op_bytes, config.direct.two_step_bytes) / config.nranks;
  std::vector<std::uint32_t> bytes(config.all_ranks());
  for (const std::uint16_t rank : others) {
    const bool sends_messages =
        gathers(config) && rank < config.nranks &&
        std::has_single_bit(gathered::distance(rank, config.rank, config.nranks));
    bytes[rank] = static_cast<std::uint32_t>(
        sends_messages ? config.payload_bytes
                       : std::min<std::uint64_t>(config.payload_bytes, of_each));
  }
  return bytes;
}

/// Nobody can have had what was not sent. Who says so called something else, in which it gets
/// nothing from this rank, and finds that out by what this rank sends.
std::uint64_t believed(DirectScratch& scratch, std::uint16_t rank, std::uint64_t known,
                       std::uint64_t received) noexcept {
  for (const DirectOp* op = scratch.first_to(rank, known); op != nullptr && op->op_seq <= received;
       op = scratch.first_to(rank, op->op_seq)) {
    if (!scratch.begun(*op, rank)) return op->op_seq - 1;
  }
  return received;
}

}  // namespace

Direct::Direct(const ShardConfig& config, PeerLinks& links, const PacketBuffers& buffers,
               OpTable& ops, FoldQueue& folds, ToldOrder& told_order, ShardCounters& counters)
    : config_(config),
      links_(links),
      buffers_(buffers),
      ops_(ops),
      counters_(counters),
      peers_(config.all_ranks()),
      partners_(partners_of(config)),
      others_(others_of(config)),
      early_(others_, early_bytes_of(config, others_), counters),
      scratch_(config.all_ranks(),
               direct::scratch_bytes(config.direct.op_bytes, config.direct.two_step_bytes,
                                     config.direct.gathered_bytes, !folds.backend().runs_at_once()),
               config.direct.memory.get()),
      layout_(config, ops, scratch_, told_order, folds.backend().runs_at_once()),
      folds_(config, layout_, scratch_, ops, folds),
      queue_(config.all_ranks()),
      watched_(config.all_ranks()) {
  links_.add(*this);
}

bool Direct::hear(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::Receipt& receipt = packet.receipt;
  DirectPeer& peer = peers_[rank];
  const bool alone = packet.common.type != PacketType::kContribution;
  if (packet.common.type != PacketType::kReceipt && packet.common.packet_number > peer.newest) {
    peer.newest = packet.common.packet_number;
    peer.newest_at = now;
  }
  if (packet.common.type == PacketType::kInquiry) {
    peer.receipt_wanted = peer.answers = true;
    links_.was_asked(rank);
    if (receipt.again) links_.end(rank).was_asked_again(config_.timeouts, now);
    queue(rank);
  }
  // If several questions went, the last one may not have come.
  if (alone && links_.end(rank).arrived(receipt.echo)) peer.lost_inquiries = 0;
  bool news = false;
  if (receipt.entered > peer.entered) {
    peer.entered = receipt.entered;
    count_ahead(rank);
    queue(rank);
    news = true;
  }
  if (receipt.received > peer.received) {
    if (const std::uint64_t received = believed(scratch_, rank, peer.received, receipt.received);
        received > peer.received) {
      acknowledge(rank, received, now);
      news = true;
    }
  }
  if (alone && receipt.received == peer.received && (receipt.chunks & ~peer.chunks) != 0) {
    peer.chunks |= receipt.chunks;
    if (const DirectOp* op = scratch_.first_to(rank, peer.received)) {
      scratch_.unsent(*op, rank) &= ~peer.chunks;
    }
    news = true;
  }
  if (news) {
    peer.has_news(links_.polled());
    peer.quiet_since = now;
  }
  if (!alone) return news;
  // What came may have been acknowledged long since by a contribution, which echoes nothing.
  const bool known = receipt.delay_us != UINT16_MAX;
  links_.echoed(rank, receipt.echo, known ? TimeNs{receipt.delay_us} * 1000 : kNever, now);
  const auto since_inquiry =
      static_cast<std::int32_t>(receipt.echo - static_cast<std::uint32_t>(peer.inquiry));
  if (peer.inquiry != 0 && since_inquiry >= 0) {
    peer.inquiry = 0;
    if (!news) ++peer.vain_answers;
    resend_missing(rank, true);
  }
  return news;
}

void Direct::acknowledge(std::uint16_t rank, std::uint64_t received, TimeNs now) noexcept {
  DirectPeer& peer = peers_[rank];
  while (DirectOp* op = scratch_.first_to(rank, peer.received)) {
    if (op->op_seq > received) break;
    require(op->unacked_ranks > 0, "a rank acknowledges an op once");
    --op->unacked_ranks;
    scratch_.unsent(*op, rank) = 0;
    peer.received = op->op_seq;
  }
  peer.received = received;
  peer.chunks = 0;
  count_ahead(rank);
  scratch_.release();
  queue(rank);
  if (!unacknowledged(rank)) return;
  // All of the op before may have been acknowledged, so that nothing was awaited.
  if (!links_.is_listed(rank)) links_.begin_wait(rank, *this, now);
  watch(rank, 0);
}

void Direct::count_ahead(std::uint16_t rank) noexcept {
  DirectPeer& peer = peers_[rank];
  peer.ahead = 0;
  std::uint64_t above = peer.entered;
  if (planted(PlantedBug::kFloorUsedUp)) above = std::min(above, peer.received);
  for (const DirectOp* op = scratch_.first_to(rank, above); op != nullptr;
       op = scratch_.first_to(rank, op->op_seq)) {
    peer.ahead += static_cast<std::uint32_t>(
        std::popcount(scratch_.ready(*op, rank) & ~scratch_.unsent(*op, rank)));
  }
}

void Direct::resend_missing(std::uint16_t rank, bool all) noexcept {
  const DirectPeer& peer = peers_[rank];
  const DirectOp* op = scratch_.first_to(rank, peer.received);
  // A rank without members enters an op by what tells of it alone.
  const bool tells = rank >= config_.nranks;
  if (op == nullptr || (op->op_seq > peer.entered && !tells)) return;
  std::uint64_t missing = scratch_.ready(*op, rank) & ~peer.chunks & ~scratch_.unsent(*op, rank);
  if (!all) missing &= ~missing + 1;
  if (missing == 0) return;
  counters_.retransmissions += static_cast<std::uint64_t>(std::popcount(missing));
  scratch_.unsent(*op, rank) |= missing;
  if (tells) count_ahead(rank);
  queue(rank);
}

Drop Direct::take(std::uint16_t rank, const wire::DataHeader& header,
                  std::span<const std::byte> payload, std::optional<std::uint32_t> crc,
                  const Op* called, TimeNs now) noexcept {
  DirectPeer& peer = peers_[rank];
  const auto again = [&] {
    peer.receipt_wanted = true;
    queue(rank);
    return Drop::kDuplicate;
  };
  DirectOp* op = scratch_.find(header.op_seq);
  if (op == nullptr) return again();
  const DirectLayout::Arrival arrival = layout_.arrival_of(*op, rank, header);
  if ((scratch_.expected(*op, rank) & arrival.bit) == 0 || payload.size() != arrival.bytes) {
    return Drop::kBadChunk;
  }
  std::uint64_t& arrived = scratch_.arrived(*op, rank);
  if ((arrived & arrival.bit) != 0) return again();
  if (crc && wire::crc32c(payload) != *crc) return Drop::kPayloadCrc;
  arrived |= arrival.bit;
  const bool step_is_here = (arrived & arrival.step) == arrival.step;
  if (arrival.part != nullptr) {
    std::memcpy(arrival.part, payload.data(), payload.size());
    if (step_is_here && op->first_source == config_.all_ranks()) op->first_source = rank;
    if (step_is_here && !op->gathered) --op->missing_parts;
  } else {
    require(called != nullptr, "an op stays active until all sums are here");
    if (!folds_.at_once()) {
      std::memcpy(layout_.sum(*op, header.chunk), payload.data(), payload.size());
    } else if (op->call.collective() != Collective::kBarrier) {
      if (!folds_.store(*called, *op, header.chunk, payload.data())) return Drop::kBadChunk;
    }
    if (step_is_here) --op->missing_sums;
  }
  // Who only sends in this op may wait to hear that it was posted.
  if (arrived != scratch_.expected(*op, rank) && peer.told < op->op_seq &&
      scratch_.says_nothing(*op, rank)) {
    peer.receipt_wanted = true;
    queue(rank);
  }
  peer.receipt_due = std::min(peer.receipt_due, now + config_.receiver.max_ack_delay_ns);
  watch(rank, peer.receipt_due);
  return Drop::kNone;
}

void Direct::on_left(std::uint16_t rank, std::uint64_t completed_op_seq, TimeNs now) noexcept {
  peers_[rank].entered = std::max(peers_[rank].entered, completed_op_seq);
  const std::uint64_t received = std::min(completed_op_seq, ops_.posted());
  if (received > peers_[rank].received) acknowledge(rank, received, now);
}

void Direct::drop_all() noexcept {
  scratch_.clear();
  for (; !queue_.empty(); queue_.pop()) peers_[queue_.front()].queued = false;
  for (const std::uint16_t rank : watched_.items()) peers_[rank].watched = false;
  watched_.clear();
}

}  // namespace gradwire::collective
