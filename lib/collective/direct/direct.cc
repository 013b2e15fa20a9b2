// SPDX-License-Identifier: BSD-3-Clause
// What comes. direct_ops.cc has what becomes of ops, direct_send.cc what is sent, and when.
#include "collective/direct/direct.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "collective/bits.h"
#include "collective/ops/op_memory.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

Direct::Direct(const ShardConfig& config, PeerLinks& links, const PacketBuffers& buffers,
               OpTable& ops, FoldQueue& folds, ShardCounters& counters)
    : config_(config),
      links_(links),
      buffers_(buffers),
      ops_(ops),
      folds_(folds),
      counters_(counters),
      at_once_(folds.backend().runs_at_once()),
      peers_(config.all_ranks()),
      scratch_(config.all_ranks(),
               direct::scratch_bytes(config.direct_bytes, config.two_step_bytes,
                                     config.gathered_bytes, !at_once_),
               config.direct_memory.get()),
      sources_(std::size_t{config.nranks} * (at_once_ ? 1 : kDirectFolds)),
      queue_(config.all_ranks()),
      watched_(config.all_ranks()) {
  for (std::size_t at = 0; at < sources_.size(); at += config.nranks) {
    free_.push_back(static_cast<std::uint16_t>(free_count_++));
  }
  links_.add(*this);
  const std::uint64_t of_each =
      std::max(config.direct_bytes, config.two_step_bytes) / config.nranks;
  const bool gathers = config.gathered_bytes != 0 && !config.folds_only();
  for (std::uint32_t ahead = config.folds_only() ? 0 : 1; ahead < config.nranks; ++ahead) {
    others_.push_back(other(ahead));
  }
  for (std::uint16_t rank = config.nranks; rank < config.all_ranks() && !config.folds_only();
       ++rank) {
    others_.push_back(rank);
  }
  for (std::uint32_t ahead = 1; gathers && ahead < config.nranks; ++ahead) {
    const std::uint32_t behind = config.nranks - ahead;
    if (std::has_single_bit(ahead) || std::has_single_bit(behind))
      partners_.push_back(other(ahead));
  }
  std::size_t total = 0;
  for (const std::uint16_t rank : others_) {
    const bool sends_messages =
        gathers && rank < config.nranks &&
        std::has_single_bit(gathered::distance(rank, config.rank, config.nranks));
    peers_[rank].early_bytes = static_cast<std::uint32_t>(
        sends_messages ? config.payload_bytes
                       : std::min<std::uint64_t>(config.payload_bytes, of_each));
    total += DirectPeer::kFloor * peers_[rank].early_bytes;
  }
  early_memory_ = ZeroedArray<std::byte>(total);
  std::byte* place = early_memory_.data();
  for (const std::uint16_t rank : others_) {
    DirectPeer& peer = peers_[rank];
    for (EarlyContribution& early : peer.early) {
      early.payload = place;
      place += peer.early_bytes;
    }
  }
}

std::optional<Direct::Ahead> Direct::take_ahead(std::uint64_t op_seq) noexcept {
  // It is asked again until it has none. Those of ranks that were gone through stay gone through:
  // what comes of an op that is posted is not kept.
  if (ahead_op_ != op_seq) ahead_from_ = 0;
  ahead_op_ = op_seq;
  for (; early_held_ > 0 && ahead_from_ < config_.all_ranks(); ++ahead_from_) {
    for (EarlyContribution& early : peers_[ahead_from_].early) {
      if (early.op_seq != op_seq) continue;
      const Ahead found{ahead_from_, early};
      early.op_seq = 0;
      --early_held_;
      oldest_held_.reset();
      return found;
    }
  }
  ahead_op_ = 0;
  return {};
}

void Direct::find_oldest_held() noexcept {
  for (const std::uint16_t rank : others_) {
    for (const EarlyContribution& early : peers_[rank].early) {
      if (early.op_seq == 0) continue;
      if (oldest_held_ && oldest_held_->contribution.op_seq <= early.op_seq) continue;
      oldest_held_ = Ahead{rank, early};
    }
  }
}

std::optional<Direct::Ahead> Direct::told() noexcept {
  if (early_held_ == 0) return {};
  if (!oldest_held_) find_oldest_held();
  require(oldest_held_.has_value(), "what is held came from one of the others");
  // What its sender had contributed to before has been folded here, if that is so long ago: else it
  // could not have posted this one.
  const auto& [op_seq, since] =
      std::pair(oldest_held_->contribution.op_seq, oldest_held_->contribution.since);
  const bool next = since == 0 || ops_.posted() >= op_seq - since;
  if (!next && !planted(PlantedBug::kToldOutOfOrder)) return {};
  return oldest_held_;
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
  // Of several questions the last one may not have come.
  if (alone && links_.end(rank).arrived(receipt.echo)) peer.lost_inquiries = 0;
  bool news = false;
  if (receipt.entered > peer.entered) {
    peer.entered = receipt.entered;
    count_ahead(rank);
    queue(rank);
    news = true;
  }
  if (receipt.received > peer.received) {
    if (const std::uint64_t received = believed(rank, receipt.received); received > peer.received) {
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

/// Nobody can have had what was not sent. Who says so called something else, in which it gets
/// nothing from this rank, and finds that out by what this rank sends.
std::uint64_t Direct::believed(std::uint16_t rank, std::uint64_t received) noexcept {
  for (const DirectOp* op = scratch_.first_to(rank, peers_[rank].received);
       op != nullptr && op->op_seq <= received; op = scratch_.first_to(rank, op->op_seq)) {
    if (!scratch_.begun(*op, rank)) return op->op_seq - 1;
  }
  return received;
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
  // Of the op before nothing may have been unacknowledged that it had not said.
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

Drop Direct::keep(const wire::Packet& packet, TimeNs) noexcept {
  const wire::DataHeader& header = packet.data;
  DirectPeer& peer = peers_[packet.common.from_rank];
  EarlyContribution* place = nullptr;
  for (EarlyContribution& early : peer.early) {
    if (early.op_seq == header.op_seq && early.chunk == header.chunk) return Drop::kDuplicate;
    if (early.op_seq == 0) place = &early;
  }
  if (place == nullptr) return Drop::kEagerOverflow;
  if (packet.payload.size() > peer.early_bytes) return Drop::kBadChunk;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;
  std::memcpy(place->payload, packet.payload.data(), packet.payload.size());
  place->op_seq = header.op_seq;
  place->chunk = header.chunk;
  place->step = header.step;
  place->since = header.since;
  place->bytes = static_cast<std::uint32_t>(packet.payload.size());
  place->call = call_of(header);
  ++early_held_;
  oldest_held_.reset();
  ++counters_.early_packets;
  return Drop::kNone;
}

Direct::Arrival Direct::arrival_of(const DirectOp& op, std::uint16_t rank,
                                   const wire::DataHeader& header) const noexcept {
  Arrival arrival;
  const std::uint64_t chunk = header.chunk;
  const std::uint64_t expected = scratch_.expected(op, rank);
  if (header.since != 0 && !config_.folds_only()) return arrival;
  if (op.gathered) {
    const std::uint32_t distance = gathered::distance(rank, config_.rank, config_.nranks);
    const bool is_partner = std::has_single_bit(distance) && chunk < direct::kChunksMax;
    if (!is_partner || header.step != std::bit_width(distance)) return arrival;
    arrival.bit = std::uint64_t{1} << chunk;
    if ((expected & arrival.bit) == 0) return {};
    arrival.step = expected;
    arrival.bytes = message_chunk_bytes(op, distance, chunk);
    arrival.part = op.part_of(rank) + chunk * config_.payload_bytes;
    return arrival;
  }
  const Partition& partition = op.partition;
  if (chunk >= partition.total_chunks() || !is_on_lane(chunk) || header.step != 0) return arrival;
  const std::uint32_t elements = partition.elements(chunk);
  if (op.steps.to_all) {
    arrival.bit = std::uint64_t{1} << ops_.index_of(chunk);
    arrival.step = expected;
    arrival.bytes = std::uint64_t{elements} * part_width(op.call.datatype());
    arrival.part = op.part_of(rank) + ops_.index_of(chunk) * config_.payload_bytes;
    return arrival;
  }
  const auto segment = static_cast<std::uint16_t>(chunk / partition.chunks_per_segment());
  const std::uint16_t owner = op.route.home(segment);
  if (owner != rank && owner != config_.rank) return arrival;
  const bool is_part = owner == config_.rank;
  const std::uint64_t index = chunk - first_owned(op, owner);
  arrival.bit = std::uint64_t{1} << (is_part ? index : index + direct::kOwnedMax);
  arrival.step = expected & (is_part ? kPartBits : ~kPartBits);
  arrival.bytes =
      std::uint64_t{elements} * (is_part ? part_width(op.call.datatype()) : sum_width(op));
  if (is_part) arrival.part = op.part_of(rank) + part_place(op, chunk);
  return arrival;
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
  const Arrival arrival = arrival_of(*op, rank, header);
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
    if (!at_once_) {
      std::memcpy(sum(*op, header.chunk), payload.data(), payload.size());
    } else if (op->call.collective() != Collective::kBarrier) {
      // A store only reads it.
      auto* const bytes = const_cast<std::byte*>(payload.data());
      const auto store = store_entry(*called, op->partition.span_of(header.chunk), bytes);
      if (!give(store, *op, 0)) return Drop::kBadChunk;
    }
    if (step_is_here) --op->missing_sums;
  }
  // Who only sends in this op may wait to hear that it was posted.
  if (arrived != scratch_.expected(*op, rank) && peer.told < op->op_seq &&
      says_nothing(*op, rank)) {
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
