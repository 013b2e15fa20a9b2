// SPDX-License-Identifier: BSD-3-Clause
// Gathered ops: messages of slots, of which each goes on when those before it have come
// (collective/shapes/shape_gathered.h).
#include <algorithm>
#include <bit>
#include <cstring>

#include "collective/bits.h"
#include "collective/direct/direct_layout.h"

namespace gradwire::collective {

std::uint64_t DirectLayout::gathered_scratch(const OpSpec& spec) const noexcept {
  const std::uint64_t slot =
      gathered::slot_bytes(config_.shape_group(), spec.collective, spec.datatype, spec.count);
  return direct::aligned(std::max<std::uint64_t>(config_.nranks * slot, 1));
}

/// The message between this rank and one that stands `distance` before it, or behind it.
std::uint64_t DirectLayout::message_bytes(const DirectOp& op,
                                          std::uint32_t distance) const noexcept {
  const auto step = static_cast<std::uint32_t>(std::countr_zero(distance));
  return gathered::message_bytes(op.stride, step, config_.nranks);
}

std::uint64_t DirectLayout::message_bits(const DirectOp& op,
                                         std::uint32_t distance) const noexcept {
  const std::uint64_t bytes = message_bytes(op, distance);
  return low_bits((bytes + config_.payload_bytes - 1) / config_.payload_bytes);
}

std::uint32_t DirectLayout::message_chunk_bytes(const DirectOp& op, std::uint32_t distance,
                                                std::uint64_t chunk) const noexcept {
  const std::uint64_t bytes = message_bytes(op, distance);
  const std::uint64_t first = chunk * config_.payload_bytes;
  require(first < bytes, "a message has the chunks whose bits it has");
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes - first, config_.payload_bytes));
}

DirectOp& DirectLayout::open_gathered(const Op& op) noexcept {
  DirectOp& direct = scratch_.open(op, gathered_scratch(op.spec));
  direct.parts = direct.memory;
  direct.stride = gathered::slot_bytes(config_.shape_group(), op.spec.collective, op.spec.datatype,
                                       op.spec.count);
  direct.to_fold = true;
  for (std::uint32_t distance = 1; distance < config_.nranks; distance *= 2) {
    const std::uint64_t bits = message_bits(direct, distance);
    const auto to = gathered::before(config_.rank, distance, config_.nranks);
    scratch_.expected(direct, gathered::after(config_.rank, distance, config_.nranks)) = bits;
    scratch_.given(direct, to) = bits;
    ++direct.unacked_ranks;
  }
  std::memset(direct.parts, 0, std::max<std::uint64_t>(direct.stride, 1));
  return direct;
}

/// A process's block of an all-gather, in the output.
ChunkSpan DirectLayout::block_of(const Op& op, std::uint32_t place) noexcept {
  return {place * op.spec.count, static_cast<std::uint32_t>(op.spec.count),
          static_cast<std::uint16_t>(place)};
}

/// As above, in its rank's slot.
std::byte* DirectLayout::block_at(const Op& op, const DirectOp& direct,
                                  std::uint32_t place) const noexcept {
  const GroupProcesses processes = config_.processes();
  const std::uint16_t rank = processes.rank_of(processes.process_at(place));
  const std::uint64_t member = place - processes.first_place(rank);
  return direct.part_of(rank) + member * op.spec.count * element_bytes(op.spec.datatype);
}

}  // namespace gradwire::collective
