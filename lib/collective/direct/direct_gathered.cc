// SPDX-License-Identifier: BSD-3-Clause
// Gathered ops: messages of slots, of which each goes on when those before it have come
// (collective/shapes/shape_gathered.h).
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/planted_bug.h"
#include "collective/bits.h"
#include "collective/direct/direct.h"
#include "collective/ops/op_memory.h"

namespace gradwire::collective {

std::uint64_t Direct::gathered_scratch(const OpSpec& spec) const noexcept {
  const std::uint64_t slot =
      gathered::slot_bytes(config_.shape_group(), spec.collective, spec.datatype, spec.count);
  return direct::aligned(std::max<std::uint64_t>(config_.nranks * slot, 1));
}

/// The message between this rank and one that stands `distance` before it, or behind it.
std::uint64_t Direct::message_bytes(const DirectOp& op, std::uint32_t distance) const noexcept {
  const auto step = static_cast<std::uint32_t>(std::countr_zero(distance));
  return gathered::message_bytes(op.stride, step, config_.nranks);
}

std::uint64_t Direct::message_bits(const DirectOp& op, std::uint32_t distance) const noexcept {
  const std::uint64_t bytes = message_bytes(op, distance);
  return low_bits((bytes + config_.payload_bytes - 1) / config_.payload_bytes);
}

std::uint32_t Direct::message_chunk_bytes(const DirectOp& op, std::uint32_t distance,
                                          std::uint64_t chunk) const noexcept {
  const std::uint64_t bytes = message_bytes(op, distance);
  const std::uint64_t first = chunk * config_.payload_bytes;
  require(first < bytes, "a message has the chunks whose bits it has");
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes - first, config_.payload_bytes));
}

void Direct::open_gathered(const Op& op) noexcept {
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
}

/// A process's block of an all-gather, in the output.
ChunkSpan Direct::block_of(const Op& op, std::uint32_t place) const noexcept {
  return {place * op.spec.count, static_cast<std::uint32_t>(op.spec.count),
          static_cast<std::uint16_t>(place)};
}

/// The same in its rank's slot.
std::byte* Direct::block_at(const Op& op, const DirectOp& direct,
                            std::uint32_t place) const noexcept {
  const GroupProcesses processes = config_.processes();
  const std::uint16_t rank = processes.rank_of(processes.process_at(place));
  const std::uint64_t member = place - processes.first_place(rank);
  return direct.part_of(rank) + member * op.spec.count * element_bytes(op.spec.datatype);
}

void Direct::extend_reach(DirectOp& op, TimeNs now) noexcept {
  const auto has_come = [&](std::uint32_t distance) {
    const auto from = gathered::after(config_.rank, distance, config_.nranks);
    const std::uint64_t arrived = scratch_.arrived(op, from);
    if (planted(PlantedBug::kMessageGoesInPart)) return arrived != 0;
    return arrived == scratch_.expected(op, from);
  };
  const auto may_go_on = [&] {
    if (planted(PlantedBug::kMessageSkipsStep) && 2 * op.reach < config_.nranks) {
      return has_come(op.reach) || has_come(2 * op.reach);
    }
    return has_come(op.reach);
  };
  while (op.reach < config_.nranks && may_go_on()) {
    const std::uint32_t reach = 2 * op.reach;
    if (reach >= config_.nranks) {
      op.reach = config_.nranks;
      return hear_all_entered(op.op_seq);
    }
    const auto to = gathered::before(config_.rank, reach, config_.nranks);
    before_more(to, now);
    op.reach = reach;
    send_more(op, to, scratch_.given(op, to), now);
  }
}

/// Who gave its slot has posted the op. Partners say so themselves, but later, with receipts; until
/// then next ops would have to count as ahead of them. It is news of theirs, as if they had said
/// it: answers that said nothing while their clients had not posted were not in vain (simulator,
/// seed 1111).
void Direct::hear_all_entered(std::uint64_t op_seq) noexcept {
  for (const std::uint16_t rank : partners_) {
    DirectPeer& peer = peers_[rank];
    if (peer.entered >= op_seq) continue;
    peer.entered = op_seq;
    peer.has_news(links_.polled());
    count_ahead(rank);
    queue(rank);
  }
}

}  // namespace gradwire::collective
