// SPDX-License-Identifier: BSD-3-Clause
// Ops off the ring: where what ranks give to them lies, and what goes where. direct_fold.cc has
// what the backend does for them.
#include <algorithm>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/bits.h"
#include "collective/direct/direct.h"
#include "collective/ops/op_memory.h"

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
    sizes.own_parts = config_.folds_only() ? 0 : segments * sizes.segment;
    sizes.parts = config_.nranks * sizes.owned * sizes.segment;
  }
  if (steps.from_owner) sizes.sums = (at_once_ ? sizes.owned : segments) * sizes.segment;
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

Direct::Progress Direct::open(const Op& op, TimeNs now) noexcept {
  const bool gathers = op.shape == Shape::kGathered;
  const std::vector<std::uint16_t>& ranks = gathers ? partners_ : others_;
  for (const std::uint16_t rank : ranks) {
    DirectPeer& peer = peers_[rank];
    // Nobody can have had what was not sent.
    peer.received = std::min(peer.received, op.spec.op_seq - 1);
    const bool unacked = unacknowledged(rank);
    if (!unacked) peer.tries = 0;
    if (!unacked && !awaited_before(rank, op.spec.op_seq)) {
      links_.begin_wait(rank, *this, now);
    }
    if (!unacked) {
      peer.news_at = links_.polled();
      peer.vain_answers = 0;
    }
    peer.quiet_since = now;
  }
  const bool to_all = direct::steps_of(op.spec.collective, op.shape == Shape::kTwoStep).to_all;
  if (gathers) {
    open_gathered(op);
  } else if (to_all) {
    open_to_all(op);
  } else {
    open_owners(op);
  }
  DirectOp& direct = *scratch_.find(op.spec.op_seq);
  begin(direct, DirectOp::Phase::kLoad);
  const Progress progress = advance(op, now);
  if (progress == Progress::kFailed) return progress;
  const std::size_t first = first_to_send(direct);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint16_t rank = ranks[(first + i) % ranks.size()];
    if (scratch_.given(direct, rank) == 0 && scratch_.expected(direct, rank) == 0) continue;
    // Who only sends in this op may wait to hear that it was posted.
    const std::uint64_t parts = gathers ? UINT64_MAX : kPartBits;
    const bool many = (gathers || in_two_steps(direct)) &&
                      (scratch_.expected(direct, rank) & parts) >> DirectPeer::kFloor != 0;
    if (says_nothing(direct, rank) && (many || peers_[rank].early[0].op_seq != 0)) {
      peers_[rank].receipt_wanted = true;
    }
    queue(rank);
    watch(rank, now + patience(rank));
  }
  return progress;
}

/// Which of others_ comes first: the next rank, so that ranks do not meet at one. If only some
/// ranks own anything, those behind them would all begin with the same: they spread over the
/// owners.
std::size_t Direct::first_to_send(const DirectOp& op) const noexcept {
  if (!in_two_steps(op)) return 0;
  const std::uint64_t owners = segments_of(op.partition);
  if (owners >= config_.nranks || config_.folds_only()) return 0;
  const auto segment = static_cast<std::uint16_t>((config_.rank + 1u) % owners);
  const std::uint16_t target = op.route.home(segment);
  if (target >= config_.nranks) return target - 1u;
  const std::uint32_t ahead = gathered::distance(target, config_.rank, config_.nranks);
  return ahead == 0 ? 0 : ahead - 1;
}

void Direct::open_to_all(const Op& op) noexcept {
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

void Direct::open_owners(const Op& op) noexcept {
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
  for (const std::uint16_t rank : others_) {
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
      const std::uint64_t ago = direct.op_seq - peers_[rank].given;
      scratch_.since(direct, rank) = static_cast<std::uint8_t>(ago > UINT8_MAX ? 0 : ago);
      peers_[rank].given = direct.op_seq;
    }
    direct.missing_parts += direct.to_fold && has_members ? 1 : 0;
    direct.missing_sums += (expected & ~kPartBits) != 0 ? 1 : 0;
    direct.unacked_ranks += given != 0 ? 1 : 0;
  }
}

/// Our part lies in scratch memory.
void Direct::start_parts(DirectOp& op, TimeNs now) noexcept {
  const std::vector<std::uint16_t>& ranks = op.gathered ? partners_ : others_;
  for (const std::uint16_t rank : ranks) {
    if (!at_once_) before_more(rank, now);
  }
  op.loaded = true;
  const std::size_t first = first_to_send(op);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint16_t rank = ranks[(first + i) % ranks.size()];
    if (peers_[rank].received >= op.op_seq) continue;
    scratch_.unsent(op, rank) = scratch_.ready(op, rank);
    if (at_once_ || scratch_.unsent(op, rank) == 0) continue;  // open() goes on
    peers_[rank].quiet_since = now;
    queue(rank);
    watch(rank, now + patience(rank));
  }
}

/// More is about to be ready for a rank.
void Direct::before_more(std::uint16_t rank, TimeNs now) noexcept {
  if (unacknowledged(rank)) return;
  peers_[rank].tries = 0;
  if (!awaited(rank)) links_.begin_wait(rank, *this, now);
}

void Direct::send_sums(DirectOp& op, TimeNs now) noexcept {
  for (const std::uint16_t rank : others_) {
    if (rank < config_.nranks) before_more(rank, now);
  }
  op.sums_ready = true;
  for (const std::uint16_t rank : others_) {
    if (rank < config_.nranks) send_more(op, rank, op.owned << direct::kOwnedMax, now);
  }
}

void Direct::send_more(DirectOp& op, std::uint16_t rank, std::uint64_t bits, TimeNs now) noexcept {
  DirectPeer& peer = peers_[rank];
  if (peer.received >= op.op_seq) return;
  scratch_.unsent(op, rank) |= bits;
  peer.vain_answers = 0;
  peer.news_at = links_.polled();
  peer.quiet_since = now;
  queue(rank);
  watch(rank, now + patience(rank));
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

/// Where a chunk lies among those of all owners.
std::uint64_t Direct::place_of(const DirectOp& op, std::uint64_t chunk) const noexcept {
  const std::uint64_t per_segment = op.partition.chunks_per_segment();
  return (chunk / per_segment) * op.segment + (chunk % per_segment) * config_.payload_bytes;
}

std::byte* Direct::own_part(const DirectOp& op, std::uint64_t chunk) const noexcept {
  return op.own_parts + place_of(op, chunk);
}

std::byte* Direct::sum(const DirectOp& op, std::uint64_t chunk) const noexcept {
  return op.sums + (at_once_ ? part_place(op, chunk) : place_of(op, chunk));
}

}  // namespace gradwire::collective
