// SPDX-License-Identifier: BSD-3-Clause
// Ops off the ring: where what ranks give to them lies, and folds.
#include <algorithm>
#include <bit>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/bits.h"
#include "collective/direct.h"
#include "collective/op_memory.h"

namespace gradwire::collective {

std::uint32_t Direct::part_width(DataType datatype) const noexcept {
  return element_bytes(direct::part_type(config_.shape_group(), datatype));
}

std::uint64_t Direct::stride_of(const Partition& partition, std::uint64_t lane_chunks,
                                DataType datatype) const noexcept {
  const std::uint64_t last = ops_.chunk_of(lane_chunks - 1);
  return direct::aligned((lane_chunks - 1) * config_.payload_bytes +
                         partition.elements(last) * part_width(datatype));
}

Direct::Sizes Direct::sizes_of(const Partition& partition, const Route& route,
                               const direct::Steps& steps, DataType datatype) const noexcept {
  Sizes sizes;
  const std::uint32_t width = steps.to_owner ? part_width(datatype) : element_bytes(datatype);
  const std::uint64_t segments = segments_of(partition);
  const auto owned = direct::owned_by(route, config_.rank, segments);
  sizes.segment = direct::aligned(partition.segment_elements() * width);
  sizes.owned = owned.end - owned.first;
  if (steps.to_owner) {
    sizes.own_parts = segments * sizes.segment;
    sizes.parts = config_.nranks * sizes.owned * sizes.segment;
  }
  if (steps.from_owner) sizes.sums = sizes.owned * sizes.segment;
  return sizes;
}

bool Direct::admit(const OpPlan& plan, const OpSpec& spec) noexcept {
  if (!is_off_ring(plan.shape) || plan.lane_chunks == 0) return true;
  const auto steps = direct::steps_of(spec.collective, plan.shape == Shape::kTwoStep);
  std::uint64_t bytes = 0;
  if (plan.shape == Shape::kGathered) {
    bytes = gathered_scratch(spec);
  } else if (steps.to_all) {
    bytes = config_.nranks * stride_of(plan.partition, plan.lane_chunks, spec.datatype);
  } else {
    bytes = sizes_of(plan.partition, plan.route, steps, spec.datatype).total();
  }
  post_waits_ = !scratch_.has_room(bytes);
  return !post_waits_;
}

bool Direct::open(const Op& op, reduce::Backend& backend, TimeNs now) noexcept {
  const bool gathers = op.shape == Shape::kGathered;
  const std::vector<std::uint16_t>& ranks = gathers ? partners_ : others_;
  for (const std::uint16_t rank : ranks) {
    DirectPeer& peer = peers_[rank];
    // Nobody can have had what was not sent.
    peer.received = std::min(peer.received, op.spec.op_seq - 1);
    const bool unacked = unacknowledged(rank);
    if (!unacked) peer.tries = 0;
    if (!unacked && !awaited_before(rank, op.spec.op_seq)) {
      peer.heard_at = polled_;
      peer.unanswered = 0;
    }
    if (!unacked) {
      peer.news_at = polled_;
      peer.vain_answers = 0;
    }
    peer.quiet_since = now;
  }
  const bool to_all = direct::steps_of(op.spec.collective, op.shape == Shape::kTwoStep).to_all;
  const bool opened = gathers  ? open_gathered(op, backend)
                      : to_all ? open_to_all(op, backend)
                               : open_owners(op, backend);
  if (!opened) return false;
  const DirectOp& direct = *scratch_.find(op.spec.op_seq);
  const std::size_t first = first_to_send(direct);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint16_t rank = ranks[(first + i) % ranks.size()];
    if (scratch_.given(direct, rank) == 0 && scratch_.expected(direct, rank) == 0) continue;
    // Who only sends in this op may wait to hear that it was posted.
    const bool many = gathers && scratch_.expected(direct, rank) >> DirectPeer::kFloor != 0;
    if (says_nothing(direct, rank) && (many || peers_[rank].early[0].op_seq != 0)) {
      peers_[rank].receipt_wanted = true;
    }
    queue(rank);
    watch(rank, now + patience(peers_[rank], true));
  }
  return true;
}

/// Which of others_ comes first: the next rank, so that ranks do not meet at one. If only the first
/// ranks own anything, those behind them would all begin with rank 0: they spread over the owners.
std::size_t Direct::first_to_send(const DirectOp& op) const noexcept {
  if (!op.steps.to_owner || !op.steps.from_owner) return 0;
  const std::uint64_t owners = segments_of(op.partition);
  if (owners >= config_.nranks) return 0;
  const auto target = static_cast<std::uint16_t>((config_.rank + 1u) % owners);
  const std::uint32_t ahead = gathered::distance(target, config_.rank, config_.nranks);
  return ahead == 0 ? 0 : ahead - 1;
}

reduce::Entry Direct::load_of(const Op& op, const ChunkSpan& span, std::byte* to) const noexcept {
  const ChunkMemory memory = memory_of(op.spec, span, config_.member_count, config_.processes());
  const bool reduced = reduces(op.spec.collective);
  reduce::Entry load;
  load.kind = reduce::Kind::kLoad;
  if (reduced && direct::is_wide(config_.shape_group(), op.spec.datatype)) {
    load.kind = reduce::Kind::kLoadWide;
  }
  load.datatype = op.spec.datatype;
  load.redop = op.spec.redop;
  load.member_count = memory.input_count;
  load.count = span.elements;
  load.packet = to;
  load.inputs = memory.inputs;
  load.factors = reduced ? op.spec.factors : nullptr;
  load.offset_bytes = memory.first_input * element_bytes(op.spec.datatype);
  return load;
}

bool Direct::store(const Op& op, const ChunkSpan& span, std::byte* from,
                   reduce::Backend& backend) const noexcept {
  if (op.spec.collective == Collective::kBarrier) return true;
  const ChunkMemory memory = memory_of(op.spec, span, config_.member_count, config_.processes());
  reduce::Entry entry;
  entry.kind = reduce::Kind::kStore;
  entry.datatype = op.spec.datatype;
  entry.member_count = memory.output_count;
  entry.count = span.elements;
  entry.packet = from;
  entry.inputs = op.spec.inputs.data();
  entry.outputs = memory.outputs;
  entry.offset_bytes = memory.first_output * element_bytes(op.spec.datatype);
  const profile::Stage stage(profile::StageId::kReduce);
  return backend.run(entry);
}

bool Direct::open_to_all(const Op& op, reduce::Backend& backend) noexcept {
  const std::uint64_t chunks =
      chunks_on_lane(0, op.partition.total_chunks(), config_.lane, config_.lanes);
  const std::uint64_t stride = stride_of(op.partition, chunks, op.spec.datatype);
  DirectOp& direct = scratch_.open(op, config_.nranks * stride);
  direct.stride = stride;
  direct.parts = direct.memory;
  const std::uint64_t all = low_bits(chunks);
  direct.missing_parts = direct.unacked_ranks = config_.nranks - 1u;
  direct.to_fold = true;
  for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
    if (rank == config_.rank) continue;
    scratch_.expected(direct, rank) = scratch_.given(direct, rank) = all;
    scratch_.unsent(direct, rank) = all;
  }
  for (std::uint64_t i = 0; i < chunks; ++i) {
    const ChunkSpan span = op.partition.span_of(ops_.chunk_of(i));
    const reduce::Entry load =
        load_of(op, span, direct.part_of(config_.rank) + i * config_.payload_bytes);
    require(
        i * config_.payload_bytes + span.elements * part_width(op.spec.datatype) <= direct.stride,
        "a rank's part fits its scratch memory");
    const profile::Stage stage(profile::StageId::kReduce);
    if (!backend.run(load)) return false;
    direct.crcs[i] = wire::crc32c({load.packet, span.elements * part_width(op.spec.datatype)});
  }
  return true;
}

std::uint64_t Direct::owned_on_lane(const DirectOp& op, std::uint16_t rank) const noexcept {
  const auto owned = direct::owned_by(op.route, rank, segments_of(op.partition));
  const std::uint64_t first = op.partition.first_chunk(owned.first);
  const std::uint64_t end = op.partition.first_chunk(owned.end);
  require(end - first <= direct::kOwnedMax, "an owner's chunks have a bit each");
  std::uint64_t bits = 0;
  for (std::uint64_t chunk = first; chunk < end; ++chunk) {
    if (is_on_lane(chunk)) bits |= std::uint64_t{1} << (chunk - first);
  }
  return bits;
}

bool Direct::open_owners(const Op& op, reduce::Backend& backend) noexcept {
  const direct::Steps steps = direct::steps_of(op.spec.collective, op.shape == Shape::kTwoStep);
  const Sizes sizes = sizes_of(op.partition, op.route, steps, op.spec.datatype);
  DirectOp& direct = scratch_.open(op, sizes.total());
  direct.segment = sizes.segment;
  direct.stride = sizes.owned * sizes.segment;
  direct.own_parts = direct.memory;
  direct.parts = direct.own_parts + sizes.own_parts;
  direct.sums = direct.parts + sizes.parts;
  direct.owned = owned_on_lane(direct, config_.rank);
  direct.to_fold = steps.to_owner && direct.owned != 0;
  direct.sums_ready = !steps.to_owner;
  for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
    if (rank == config_.rank) continue;
    const std::uint64_t theirs = owned_on_lane(direct, rank);
    std::uint64_t& expected = scratch_.expected(direct, rank);
    std::uint64_t& given = scratch_.given(direct, rank);
    if (steps.to_owner) {
      expected |= direct.owned;
      given |= theirs;
    }
    if (steps.from_owner) {
      expected |= theirs << direct::kOwnedMax;
      given |= direct.owned << direct::kOwnedMax;
    }
    direct.missing_parts += direct.to_fold ? 1 : 0;
    direct.missing_sums += (expected & ~kPartBits) != 0 ? 1 : 0;
    direct.unacked_ranks += given != 0 ? 1 : 0;
    scratch_.unsent(direct, rank) = scratch_.ready(direct, rank);
  }
  direct.done = !direct.to_fold && direct.missing_sums == 0;
  const auto owned = direct::owned_by(op.route, config_.rank, segments_of(op.partition));
  const std::uint64_t first = op.partition.first_chunk(steps.to_owner ? 0 : owned.first);
  const std::uint64_t end =
      steps.to_owner ? op.partition.total_chunks() : op.partition.first_chunk(owned.end);
  for (std::uint64_t chunk = first; chunk < end; ++chunk) {
    if (!is_on_lane(chunk)) continue;
    const ChunkSpan span = op.partition.span_of(chunk);
    std::byte* const to = steps.to_owner ? own_part(direct, chunk) : sum(direct, chunk);
    if (op.spec.collective == Collective::kBarrier) {
      *to = std::byte{0};
    } else {
      const profile::Stage stage(profile::StageId::kReduce);
      if (!backend.run(load_of(op, span, to))) return false;
    }
    if (steps.to_owner) continue;
    if (!store(op, span, to, backend)) return false;
    direct.crcs[chunk - first] = wire::crc32c({to, span.elements * sum_width(direct)});
  }
  return true;
}

Direct::Progress Direct::advance(const Op& op, reduce::Backend& backend, TimeNs now) noexcept {
  DirectOp* direct = scratch_.find(op.spec.op_seq);
  if (direct == nullptr || direct->done) return Progress::kNone;
  if (direct->gathered) {
    extend_reach(*direct, now);
    if (direct->reach < config_.nranks) return Progress::kNone;
    if (!finish_gathered(op, *direct, backend)) return Progress::kFailed;
    hear_all_entered(op.spec.op_seq);
    direct->done = true;
    scratch_.release();
    return Progress::kDone;
  }
  if (direct->may_fold()) {
    if (!(direct->steps.to_all ? fold(op, *direct, backend) : fold_owned(op, *direct, backend))) {
      return Progress::kFailed;
    }
    direct->to_fold = false;
    if (direct->steps.from_owner) send_sums(*direct, now);
  }
  if (direct->to_fold || direct->missing_sums > 0) return Progress::kNone;
  direct->done = true;
  scratch_.release();
  return Progress::kDone;
}

void Direct::send_sums(DirectOp& op, TimeNs now) noexcept {
  op.sums_ready = true;
  for (const std::uint16_t rank : others_) send_more(op, rank, op.owned << direct::kOwnedMax, now);
}

void Direct::send_more(DirectOp& op, std::uint16_t rank, std::uint64_t bits, TimeNs now) noexcept {
  DirectPeer& peer = peers_[rank];
  if (peer.received >= op.op_seq) return;
  const bool unacked = unacknowledged(rank);
  scratch_.unsent(op, rank) |= bits;
  if (!unacked) peer.tries = 0;
  peer.vain_answers = 0;
  peer.news_at = polled_;
  peer.quiet_since = now;
  queue(rank);
  watch(rank, now + patience(peer, true));
}

/// What all folds have in common.
reduce::Entry Direct::fold_entry(const Op& op) const noexcept {
  reduce::Entry entry;
  entry.kind = reduce::Kind::kFoldInOrder;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.finalize = true;
  entry.wide = part_width(op.spec.datatype) != element_bytes(op.spec.datatype);
  entry.member_count = config_.member_count;
  entry.source_count = config_.nranks;
  entry.divisor = config_.processes().count();
  entry.inputs = sources_.data();
  entry.outputs = op.spec.outputs.data();
  return entry;
}

bool Direct::fold(const Op& op, DirectOp& direct, reduce::Backend& backend) noexcept {
  const std::uint32_t width = element_bytes(op.spec.datatype);
  const std::uint32_t wide = part_width(op.spec.datatype);
  const std::uint64_t segment = ring_segment(op);
  reduce::Entry entry = fold_entry(op);
  const std::uint64_t chunks =
      chunks_on_lane(0, op.partition.total_chunks(), config_.lane, config_.lanes);
  for (std::uint64_t i = 0; i < chunks; ++i) {
    const ChunkSpan span = op.partition.span_of(ops_.chunk_of(i));
    const std::uint64_t end = span.first_element + span.elements;
    for (std::uint64_t at = span.first_element; at < end; at += entry.count) {
      std::uint64_t first = at / segment;
      entry.count = static_cast<std::uint32_t>(std::min(end, (first + 1) * segment) - at);
      if (planted(PlantedBug::kFoldInArrivalOrder)) first = direct.first_source;
      if (planted(PlantedBug::kGatheredInOwnOrder) && direct.gathered) first = config_.rank;
      const std::uint64_t offset = i * config_.payload_bytes + (at - span.first_element) * wide;
      for (std::uint32_t h = 0; h < config_.nranks; ++h) {
        const auto rank = static_cast<std::uint16_t>((first + h) % config_.nranks);
        sources_[h] = direct.part_of(rank) + offset;
      }
      entry.output_shift_bytes = static_cast<std::int64_t>(at * width);
      const profile::Stage stage(profile::StageId::kReduce);
      if (!backend.run(entry)) return false;
    }
  }
  return true;
}

bool Direct::fold_owned(const Op& op, DirectOp& direct, reduce::Backend& backend) noexcept {
  const std::uint32_t width = element_bytes(op.spec.datatype);
  const std::uint32_t wide = part_width(op.spec.datatype);
  // Of an all-reduce the ring's segments say where a fold starts, however it is cut here.
  const bool by_segment =
      op.spec.collective == Collective::kAllReduce && !planted(PlantedBug::kTwoStepInOwnersOrder);
  const std::uint64_t segment = by_segment ? ring_segment(op) : UINT64_MAX;
  const std::uint64_t base = first_owned(direct, config_.rank);
  reduce::Entry entry = fold_entry(op);
  for (std::uint64_t bits = direct.owned; bits != 0; bits &= bits - 1) {
    const auto index = static_cast<std::uint64_t>(std::countr_zero(bits));
    const std::uint64_t chunk = base + index;
    const ChunkSpan span = op.partition.span_of(chunk);
    const ChunkMemory memory = memory_of(op.spec, span, config_.member_count, config_.processes());
    entry.outputs = memory.outputs;
    entry.output_count = memory.output_count;
    const std::uint64_t end = span.first_element + span.elements;
    const std::uint64_t place = part_place(direct, chunk);
    for (std::uint64_t at = span.first_element; at < end; at += entry.count) {
      std::uint64_t first = by_segment ? at / segment : config_.rank + 1u;
      const std::uint64_t until = by_segment ? std::min(end, (first + 1) * segment) : end;
      entry.count = static_cast<std::uint32_t>(until - at);
      if (planted(PlantedBug::kFoldInArrivalOrder)) first = direct.first_source;
      const std::uint64_t ahead = at - span.first_element;
      for (std::uint32_t h = 0; h < config_.nranks; ++h) {
        const auto rank = static_cast<std::uint16_t>((first + h) % config_.nranks);
        const std::byte* part =
            rank == config_.rank ? own_part(direct, chunk) : direct.part_of(rank) + place;
        sources_[h] = part + ahead * wide;
      }
      entry.packet = direct.steps.from_owner ? sum(direct, chunk) + ahead * width : nullptr;
      entry.output_shift_bytes = static_cast<std::int64_t>((memory.first_output + ahead) * width);
      const profile::Stage stage(profile::StageId::kReduce);
      if (!backend.run(entry)) return false;
    }
    if (direct.steps.from_owner) {
      direct.crcs[index] = wire::crc32c({sum(direct, chunk), span.elements * width});
    }
  }
  return true;
}

std::uint64_t Direct::ring_segment(const Op& op) const noexcept {
  return Partition(op.spec.count, op.spec.datatype, config_.nranks, config_.payload_bytes)
      .segment_elements();
}

std::uint64_t Direct::first_owned(const DirectOp& op, std::uint16_t rank) const noexcept {
  return op.partition.first_chunk(
      direct::owned_by(op.route, rank, segments_of(op.partition)).first);
}

/// Where a chunk lies among the segments of its owner.
std::uint64_t Direct::part_place(const DirectOp& op, std::uint64_t chunk) const noexcept {
  const std::uint64_t per_segment = op.partition.chunks_per_segment();
  const std::uint64_t segment = chunk / per_segment;
  const std::uint16_t owner = op.route.home(static_cast<std::uint16_t>(segment));
  const std::uint64_t first = direct::owned_by(op.route, owner, segments_of(op.partition)).first;
  return (segment - first) * op.segment + (chunk % per_segment) * config_.payload_bytes;
}

std::byte* Direct::own_part(const DirectOp& op, std::uint64_t chunk) const noexcept {
  const std::uint64_t per_segment = op.partition.chunks_per_segment();
  return op.own_parts + (chunk / per_segment) * op.segment +
         (chunk % per_segment) * config_.payload_bytes;
}

std::byte* Direct::sum(const DirectOp& op, std::uint64_t chunk) const noexcept {
  return op.sums + part_place(op, chunk);
}

}  // namespace gradwire::collective
