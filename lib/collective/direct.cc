// SPDX-License-Identifier: BSD-3-Clause
// Ops and packets. direct_send.cc has what is sent, and when.
#include "collective/direct.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/bits.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

Direct::Direct(const ShardConfig& config, const PeerEnds& ends, const PacketBuffers& buffers,
               OpTable& ops, ShardCounters& counters)
    : config_(config),
      ends_(ends),
      buffers_(buffers),
      ops_(ops),
      counters_(counters),
      peers_(config.nranks),
      early_bytes_(
          std::min<std::size_t>(config.payload_bytes, config.direct_bytes / config.nranks)),
      scratch_(config.nranks, config.direct_bytes),
      sources_(config.nranks),
      queue_(config.nranks) {
  watched_.reserve(config.nranks);
  early_memory_.resize(early_bytes_ * DirectPeer::kFloor * config.nranks);
  std::byte* place = early_memory_.data();
  for (std::uint16_t rank = 0; rank < config.nranks; ++rank) {
    DirectPeer& peer = peers_[rank];
    peer.rtt = transport::RttEstimator(config.sender.initial_rtt_ns);
    for (EarlyContribution& early : peer.early) {
      early.payload = place;
      place += early_bytes_;
    }
  }
}

std::uint32_t Direct::part_width(DataType datatype) const noexcept {
  return element_bytes(direct::part_type(config_.shape_group(), datatype));
}

std::uint64_t Direct::stride_of(const Partition& partition, std::uint64_t lane_chunks,
                                DataType datatype) const noexcept {
  const std::uint64_t last = ops_.chunk_of(lane_chunks - 1);
  return direct::aligned((lane_chunks - 1) * config_.payload_bytes +
                         partition.elements(last) * part_width(datatype));
}

bool Direct::admit(const OpPlan& plan, DataType datatype) noexcept {
  if (plan.shape != Shape::kDirect || plan.lane_chunks == 0) return true;
  post_waits_ = !scratch_.has_room(stride_of(plan.partition, plan.lane_chunks, datatype));
  return !post_waits_;
}

bool Direct::open(const Op& op, reduce::Backend& backend, TimeNs now) noexcept {
  const std::uint64_t chunks =
      chunks_on_lane(0, op.partition.total_chunks(), config_.lane, config_.lanes);
  for (std::uint32_t ahead = 1; ahead < config_.nranks; ++ahead) {
    const std::uint16_t rank = other(ahead);
    DirectPeer& peer = peers_[rank];
    // Nobody can have had what was not sent.
    peer.received = std::min(peer.received, op.spec.op_seq - 1);
    if (!unacknowledged(rank)) peer.tries = 0;
    if (!unacknowledged(rank) && !awaited(rank)) {
      peer.heard_at = polled_;
      peer.unanswered = 0;
    }
    if (!unacknowledged(rank)) {
      peer.news_at = polled_;
      peer.vain_answers = 0;
    }
    peer.quiet_since = now;
    queue(rank);
    watch(rank, now + patience(peer, true));
  }
  DirectOp& direct =
      scratch_.open(op, stride_of(op.partition, chunks, op.spec.datatype), low_bits(chunks));
  const std::uint32_t width = element_bytes(op.spec.datatype);
  for (std::uint64_t i = 0; i < chunks; ++i) {
    const ChunkSpan span = op.partition.span_of(ops_.chunk_of(i));
    reduce::Entry load;
    load.kind = reduce::Kind::kLoad;
    if (direct::is_wide(config_.shape_group(), op.spec.datatype)) {
      load.kind = reduce::Kind::kLoadWide;
    }
    load.datatype = op.spec.datatype;
    load.redop = op.spec.redop;
    load.member_count = config_.member_count;
    load.count = span.elements;
    load.packet = direct.part_of(config_.rank) + i * config_.payload_bytes;
    load.inputs = op.spec.inputs.data();
    load.factors = op.spec.factors;
    load.offset_bytes = span.first_element * width;
    require(
        i * config_.payload_bytes + span.elements * part_width(op.spec.datatype) <= direct.stride,
        "a rank's part fits its scratch memory");
    const profile::Stage stage(profile::StageId::kReduce);
    if (!backend.run(load)) return false;
    direct.crcs[i] = wire::crc32c({load.packet, span.elements * part_width(op.spec.datatype)});
  }
  scratch_.arrived(direct, config_.rank) = direct.all;
  return true;
}

bool Direct::may_fold(std::uint64_t op_seq) noexcept {
  const DirectOp* op = scratch_.find(op_seq);
  return op != nullptr && op->complete() && !op->folded;
}

bool Direct::fold(const Op& op, reduce::Backend& backend) noexcept {
  DirectOp* direct = scratch_.find(op.spec.op_seq);
  require(direct != nullptr && direct->complete() && !direct->folded,
          "a direct op is folded once, when all is there");
  const std::uint32_t width = element_bytes(op.spec.datatype);
  const std::uint32_t wide = part_width(op.spec.datatype);
  const std::uint64_t segment =
      Partition(op.spec.count, op.spec.datatype, config_.nranks, config_.payload_bytes)
          .segment_elements();
  reduce::Entry entry;
  entry.kind = reduce::Kind::kFoldInOrder;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.finalize = true;
  entry.wide = wide != width;
  entry.member_count = config_.member_count;
  entry.source_count = config_.nranks;
  entry.divisor = config_.processes().count();
  entry.inputs = sources_.data();
  entry.outputs = op.spec.outputs.data();
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(std::popcount(direct->all)); ++i) {
    const ChunkSpan span = op.partition.span_of(ops_.chunk_of(i));
    const std::uint64_t end = span.first_element + span.elements;
    for (std::uint64_t at = span.first_element; at < end; at += entry.count) {
      std::uint64_t first = at / segment;
      entry.count = static_cast<std::uint32_t>(std::min(end, (first + 1) * segment) - at);
      if (planted(PlantedBug::kFoldInArrivalOrder)) first = direct->first_source;
      const std::uint64_t offset = i * config_.payload_bytes + (at - span.first_element) * wide;
      for (std::uint32_t h = 0; h < config_.nranks; ++h) {
        const auto rank = static_cast<std::uint16_t>((first + h) % config_.nranks);
        sources_[h] = direct->part_of(rank) + offset;
      }
      entry.output_shift_bytes = static_cast<std::int64_t>(at * width);
      const profile::Stage stage(profile::StageId::kReduce);
      if (!backend.run(entry)) return false;
    }
  }
  direct->folded = true;
  scratch_.release();
  return true;
}

std::optional<Direct::Ahead> Direct::take_ahead(std::uint64_t op_seq) noexcept {
  for (std::uint16_t rank = 0; early_held_ > 0 && rank < config_.nranks; ++rank) {
    for (EarlyContribution& early : peers_[rank].early) {
      if (early.op_seq != op_seq) continue;
      const Ahead found{rank, early};
      early.op_seq = 0;
      --early_held_;
      return found;
    }
  }
  return {};
}

bool Direct::hear(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::Receipt& receipt = packet.receipt;
  DirectPeer& peer = peers_[rank];
  peer.ever_heard = true;
  peer.heard_at = polled_;
  peer.unanswered = 0;
  ends_.note(rank, packet.common.packet_number);
  const bool alone = packet.common.type != PacketType::kContribution;
  if (packet.common.type != PacketType::kReceipt && packet.common.packet_number > peer.newest) {
    peer.newest = packet.common.packet_number;
    peer.newest_at = now;
  }
  if (packet.common.type == PacketType::kInquiry) {
    peer.receipt_wanted = true;
    queue(rank);
  }
  bool news = false;
  if (receipt.entered > peer.entered) {
    peer.entered = receipt.entered;
    count_ahead(rank);
    queue(rank);
    news = true;
  }
  if (receipt.received > peer.received) {
    acknowledge(rank, receipt.received);
    news = true;
  }
  if (alone && receipt.received == peer.received && (receipt.chunks & ~peer.chunks) != 0) {
    peer.chunks |= receipt.chunks;
    if (const DirectOp* op = scratch_.first_above(peer.received)) {
      scratch_.unsent(*op, rank) &= ~peer.chunks;
    }
    news = true;
  }
  if (news) {
    peer.tries = 0;
    peer.vain_answers = 0;
    peer.news_at = polled_;
    peer.quiet_since = now;
  }
  if (!alone) return news;
  measure(peer, receipt, now);
  const auto since_inquiry =
      static_cast<std::int32_t>(receipt.echo - static_cast<std::uint32_t>(peer.inquiry));
  if (peer.inquiry != 0 && since_inquiry >= 0) {
    peer.inquiry = 0;
    if (!news) ++peer.vain_answers;
    resend_missing(rank, true);
  }
  return news;
}

void Direct::measure(DirectPeer& peer, const wire::Receipt& receipt, TimeNs now) noexcept {
  if (peer.timed == 0 || receipt.echo != static_cast<std::uint32_t>(peer.timed)) return;
  peer.timed = 0;
  // What came may have been acknowledged long since by a contribution, which echoes nothing.
  if (receipt.delay_us == 0xffff) return;
  peer.rtt.sample(std::max<TimeNs>(now - peer.timed_at - TimeNs{receipt.delay_us} * 1000, 1), 0);
}

void Direct::acknowledge(std::uint16_t rank, std::uint64_t received) noexcept {
  DirectPeer& peer = peers_[rank];
  while (DirectOp* op = scratch_.first_above(peer.received)) {
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
}

void Direct::count_ahead(std::uint16_t rank) noexcept {
  DirectPeer& peer = peers_[rank];
  peer.ahead = 0;
  std::uint64_t above = peer.entered;
  if (planted(PlantedBug::kFloorUsedUp)) above = std::min(above, peer.received);
  for (const DirectOp* op = scratch_.first_above(above); op != nullptr;
       op = scratch_.first_above(op->op_seq)) {
    peer.ahead += static_cast<std::uint32_t>(std::popcount(op->all & ~scratch_.unsent(*op, rank)));
  }
}

void Direct::resend_missing(std::uint16_t rank, bool all) noexcept {
  const DirectPeer& peer = peers_[rank];
  const DirectOp* op = scratch_.first_above(peer.received);
  if (op == nullptr || op->op_seq > peer.entered) return;
  std::uint64_t missing = op->all & ~peer.chunks & ~scratch_.unsent(*op, rank);
  if (!all) missing &= ~missing + 1;
  if (missing == 0) return;
  counters_.retransmissions += static_cast<std::uint64_t>(std::popcount(missing));
  scratch_.unsent(*op, rank) |= missing;
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
  if (packet.payload.size() > early_bytes_) return Drop::kBadChunk;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;
  std::memcpy(place->payload, packet.payload.data(), packet.payload.size());
  place->op_seq = header.op_seq;
  place->chunk = header.chunk;
  place->bytes = static_cast<std::uint32_t>(packet.payload.size());
  place->call = call_of(header);
  ++early_held_;
  ++counters_.early_packets;
  return Drop::kNone;
}

Drop Direct::take(std::uint16_t rank, const wire::DataHeader& header,
                  std::span<const std::byte> payload, std::optional<std::uint32_t> crc,
                  TimeNs now) noexcept {
  DirectPeer& peer = peers_[rank];
  const auto again = [&] {
    peer.receipt_wanted = true;
    queue(rank);
    return Drop::kDuplicate;
  };
  DirectOp* op = scratch_.find(header.op_seq);
  if (op == nullptr) return again();
  const std::uint64_t index = ops_.index_of(header.chunk);
  if (header.chunk >= op->partition.total_chunks() || ops_.chunk_of(index) != header.chunk ||
      payload.size() !=
          std::uint64_t{op->partition.elements(header.chunk)} * part_width(op->call.datatype())) {
    return Drop::kBadChunk;
  }
  std::uint64_t& arrived = scratch_.arrived(*op, rank);
  const std::uint64_t bit = std::uint64_t{1} << index;
  if ((arrived & bit) != 0) return again();
  if (crc && wire::crc32c(payload) != *crc) return Drop::kPayloadCrc;
  std::memcpy(op->part_of(rank) + index * config_.payload_bytes, payload.data(), payload.size());
  arrived |= bit;
  if (arrived == op->all) {
    if (op->first_source == config_.nranks) op->first_source = rank;
    --op->missing_ranks;
  }
  peer.receipt_due = std::min(peer.receipt_due, now + config_.receiver.max_ack_delay_ns);
  watch(rank, peer.receipt_due);
  return Drop::kNone;
}

void Direct::on_left(std::uint16_t rank, std::uint64_t completed_op_seq) noexcept {
  peers_[rank].entered = std::max(peers_[rank].entered, completed_op_seq);
  const std::uint64_t received = std::min(completed_op_seq, ops_.posted());
  if (received > peers_[rank].received) acknowledge(rank, received);
}

void Direct::drop_all() noexcept {
  scratch_.clear();
  for (; !queue_.empty(); queue_.pop()) peers_[queue_.front()].queued = false;
  for (const std::uint16_t rank : watched_) peers_[rank].watched = false;
  watched_.clear();
  next_due_ = kNever;
  silent_.reset();
}

}  // namespace gradwire::collective
