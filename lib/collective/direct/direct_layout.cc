// SPDX-License-Identifier: BSD-3-Clause
// direct_gathered.cc has what is gathered.
#include "collective/direct/direct_layout.h"

#include <algorithm>
#include <bit>

#include "collective/bits.h"

namespace gradwire::collective {

std::uint64_t DirectLayout::bytes_of(const OpPlan& plan, const OpSpec& spec) const noexcept {
  if (plan.shape == Shape::kGathered) return gathered_scratch(spec);
  const auto steps = direct::steps_of(spec.collective, plan.shape == Shape::kTwoStep);
  if (steps.to_all) {
    return config_.nranks * stride_of(plan.partition, plan.lane_chunks, spec.datatype);
  }
  return sizes_of(plan.partition, plan.route, steps, spec.datatype).total();
}

DirectOp& DirectLayout::open(const Op& op, const std::vector<std::uint16_t>& others) noexcept {
  if (op.shape == Shape::kGathered) return open_gathered(op);
  const bool to_all = direct::steps_of(op.spec.collective, op.shape == Shape::kTwoStep).to_all;
  return to_all ? open_to_all(op) : open_owners(op, others);
}

std::uint32_t DirectLayout::part_width(DataType datatype) const noexcept {
  return element_bytes(direct::part_type(config_.shape_group(), datatype));
}

std::uint64_t DirectLayout::stride_of(const Partition& partition, std::uint64_t lane_chunks,
                                      DataType datatype) const noexcept {
  const std::uint64_t last = ops_.chunk_of(lane_chunks - 1);
  return direct::aligned((lane_chunks - 1) * config_.payload_bytes +
                         partition.elements(last) * part_width(datatype));
}

DirectLayout::Sizes DirectLayout::sizes_of(const Partition& partition, const Route& route,
                                           const direct::Steps& steps,
                                           DataType datatype) const noexcept {
  Sizes sizes;
  const std::uint32_t width = steps.to_owner ? part_width(datatype) : element_bytes(datatype);
  const std::uint64_t segments = segments_of(partition);
  const auto owned = direct::owned_by(route, config_.rank, segments);
  sizes.segment = direct::aligned(partition.segment_elements() * width);
  sizes.owned = owned.end - owned.first;
  if (steps.to_owner) {
    sizes.own_parts = config_.folds_only() ? 0 : segments * sizes.segment;
    sizes.parts = config_.nranks * sizes.owned * sizes.segment;
  }
  if (steps.from_owner) sizes.sums = (at_once_ ? sizes.owned : segments) * sizes.segment;
  return sizes;
}

DirectOp& DirectLayout::open_to_all(const Op& op) noexcept {
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
  }
  return direct;
}

std::uint64_t DirectLayout::owned_on_lane(const DirectOp& op, std::uint16_t rank) const noexcept {
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

DirectOp& DirectLayout::open_owners(const Op& op,
                                    const std::vector<std::uint16_t>& others) noexcept {
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
  for (const std::uint16_t rank : others) {
    const std::uint64_t theirs = owned_on_lane(direct, rank);
    std::uint64_t& expected = scratch_.expected(direct, rank);
    std::uint64_t& given = scratch_.given(direct, rank);
    const bool has_members = rank < config_.nranks;
    if (steps.to_owner) {
      if (has_members) expected |= direct.owned;
      if (!config_.folds_only()) given |= theirs;
    }
    if (steps.from_owner) {
      if (!config_.folds_only()) expected |= theirs << direct::kOwnedMax;
      if (has_members) given |= direct.owned << direct::kOwnedMax;
    }
    if (!has_members && given != 0) {
      scratch_.since(direct, rank) = told_order_.tell(rank, direct.op_seq);
    }
    direct.missing_parts += direct.to_fold && has_members ? 1 : 0;
    direct.missing_sums += (expected & ~kPartBits) != 0 ? 1 : 0;
    direct.unacked_ranks += given != 0 ? 1 : 0;
  }
  return direct;
}

/// The next rank, so that ranks do not meet at one. If only some
/// ranks own anything, those behind them would all begin with the same: they spread over the
/// owners.
std::size_t DirectLayout::first_to_send(const DirectOp& op) const noexcept {
  if (!op.in_two_steps()) return 0;
  const std::uint64_t owners = segments_of(op.partition);
  if (owners >= config_.nranks || config_.folds_only()) return 0;
  const auto segment = static_cast<std::uint16_t>((config_.rank + 1u) % owners);
  const std::uint16_t target = op.route.home(segment);
  if (target >= config_.nranks) return target - 1u;
  const std::uint32_t ahead = gathered::distance(target, config_.rank, config_.nranks);
  return ahead == 0 ? 0 : ahead - 1;
}

DirectLayout::Arrival DirectLayout::arrival_of(const DirectOp& op, std::uint16_t rank,
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

DirectLayout::Outgoing DirectLayout::outgoing_of(const DirectOp& op, std::uint16_t rank,
                                                 std::uint32_t index) const noexcept {
  Outgoing out;
  if (op.gathered) {
    const std::uint32_t distance = gathered::distance(config_.rank, rank, config_.nranks);
    out.chunk = index;
    out.size = message_chunk_bytes(op, distance, index);
    out.step = static_cast<std::uint8_t>(std::bit_width(distance));
    out.bytes = op.parts + std::size_t{index} * config_.payload_bytes;
    return out;
  }
  std::uint32_t width = part_width(op.call.datatype());
  if (op.steps.to_all) {
    out.chunk = static_cast<std::uint32_t>(ops_.chunk_of(index));
    out.bytes = op.part_of(config_.rank) + std::size_t{index} * config_.payload_bytes;
    out.crc = &op.crcs[index];
  } else if (index < direct::kOwnedMax) {
    out.chunk = static_cast<std::uint32_t>(first_owned(op, rank) + index);
    out.bytes = own_part(op, out.chunk);
  } else {
    out.chunk =
        static_cast<std::uint32_t>(first_owned(op, config_.rank) + index - direct::kOwnedMax);
    out.bytes = sum(op, out.chunk);
    width = sum_width(op);
    out.crc = &op.crcs[index - direct::kOwnedMax];
  }
  out.size = op.partition.elements(out.chunk) * width;
  return out;
}

DirectLayout::Chunks DirectLayout::own_chunks(const DirectOp& op) const noexcept {
  const auto owned = direct::owned_by(op.route, config_.rank, segments_of(op.partition));
  return {op.partition.first_chunk(owned.first), op.partition.first_chunk(owned.end)};
}

DirectLayout::Chunks DirectLayout::chunks_of_phase(const DirectOp& op) const noexcept {
  const Chunks all{0, op.partition.total_chunks()};
  // It has neither inputs nor outputs.
  if (config_.folds_only() && op.phase != DirectOp::Phase::kFold) return {};
  if (op.gathered) {
    // An all-gather's are processes' blocks.
    const bool blocks = op.call.collective() == Collective::kAllGather;
    switch (op.phase) {
      case DirectOp::Phase::kLoad:
        return blocks ? Chunks{0, config_.member_count} : all;
      case DirectOp::Phase::kFold:
        return op.call.collective() == Collective::kAllReduce ? all : Chunks{};
      case DirectOp::Phase::kStore:
        return blocks ? Chunks{0, config_.processes().count()} : Chunks{};
      default:
        return {};
    }
  }
  switch (op.phase) {
    case DirectOp::Phase::kLoad:
      return op.steps.to_all || op.steps.to_owner ? all : own_chunks(op);
    case DirectOp::Phase::kFold:
      if (!op.to_fold) break;
      return op.steps.to_all ? all : own_chunks(op);
    case DirectOp::Phase::kStore:
      // A fold has stored what it made.
      if (!op.steps.from_owner || op.call.collective() == Collective::kBarrier) break;
      if (!at_once_) return all;
      if (op.steps.to_owner) break;
      return own_chunks(op);
    case DirectOp::Phase::kSums:
    case DirectOp::Phase::kDone:
      break;
  }
  return {};
}

ChunkSpan DirectLayout::span_of(const Op& op, const DirectOp& direct) const noexcept {
  if (!direct.gathered || op.spec.collective != Collective::kAllGather) {
    return op.partition.span_of(direct.next_chunk);
  }
  const auto unit = static_cast<std::uint32_t>(direct.next_chunk);
  const GroupProcesses processes = config_.processes();
  const std::uint32_t first = processes.first_place(config_.rank);
  return block_of(op, direct.phase == DirectOp::Phase::kLoad ? first + unit : unit);
}

std::byte* DirectLayout::memory_of_chunk(const Op& op, const DirectOp& direct) const noexcept {
  if (direct.gathered && op.spec.collective == Collective::kAllGather) {
    return block_at(op, direct, span_of(op, direct).segment);
  }
  if (direct.phase == DirectOp::Phase::kStore) return sum(direct, direct.next_chunk);
  return where_loaded(direct, direct.next_chunk);
}

std::byte* DirectLayout::where_loaded(const DirectOp& op, std::uint64_t chunk) const noexcept {
  if (op.gathered) return op.parts;
  if (op.steps.to_all) {
    const std::uint64_t index = ops_.index_of(chunk);
    require(index * config_.payload_bytes +
                    op.partition.elements(chunk) * part_width(op.call.datatype()) <=
                op.stride,
            "a rank's part fits its scratch memory");
    return op.part_of(config_.rank) + index * config_.payload_bytes;
  }
  return op.steps.to_owner ? own_part(op, chunk) : sum(op, chunk);
}

std::uint64_t DirectLayout::first_owned(const DirectOp& op, std::uint16_t rank) const noexcept {
  return op.partition.first_chunk(
      direct::owned_by(op.route, rank, segments_of(op.partition)).first);
}

/// Where a chunk lies among the segments of its owner.
std::uint64_t DirectLayout::part_place(const DirectOp& op, std::uint64_t chunk) const noexcept {
  const std::uint64_t per_segment = op.partition.chunks_per_segment();
  const std::uint64_t segment = chunk / per_segment;
  const std::uint16_t owner = op.route.home(static_cast<std::uint16_t>(segment));
  const std::uint64_t first = direct::owned_by(op.route, owner, segments_of(op.partition)).first;
  return (segment - first) * op.segment + (chunk % per_segment) * config_.payload_bytes;
}

/// Where a chunk lies among those of all owners.
std::uint64_t DirectLayout::place_of(const DirectOp& op, std::uint64_t chunk) const noexcept {
  const std::uint64_t per_segment = op.partition.chunks_per_segment();
  return (chunk / per_segment) * op.segment + (chunk % per_segment) * config_.payload_bytes;
}

std::byte* DirectLayout::own_part(const DirectOp& op, std::uint64_t chunk) const noexcept {
  return op.own_parts + place_of(op, chunk);
}

std::byte* DirectLayout::sum(const DirectOp& op, std::uint64_t chunk) const noexcept {
  return op.sums + (at_once_ ? part_place(op, chunk) : place_of(op, chunk));
}

}  // namespace gradwire::collective
