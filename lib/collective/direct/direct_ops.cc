// SPDX-License-Identifier: BSD-3-Clause
// What becomes of ops off the ring: they are opened, go through their phases, and have more to
// send.
#include <algorithm>

#include "base/planted_bug.h"
#include "collective/direct/direct.h"

namespace gradwire::collective {

bool Direct::admit(const OpPlan& plan, const OpSpec& spec) noexcept {
  if (!is_pushed(plan.shape) || plan.lane_chunks == 0) return true;
  post_waits_ = !scratch_.has_room(layout_.bytes_of(plan, spec));
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
    if (!unacked && !awaited(rank, op.spec.op_seq - 1)) {
      links_.begin_wait(rank, *this, now);
    }
    if (!unacked) {
      peer.news_at = links_.polled();
      peer.vain_answers = 0;
    }
    peer.quiet_since = now;
  }
  DirectOp& direct = layout_.open(op, others_);
  folds_.begin(direct, DirectOp::Phase::kLoad);
  const Progress progress = advance(op, now);
  if (progress == Progress::kFailed) return progress;
  const std::size_t first = layout_.first_to_send(direct);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint16_t rank = ranks[(first + i) % ranks.size()];
    if (scratch_.given(direct, rank) == 0 && scratch_.expected(direct, rank) == 0) continue;
    // Who only sends in this op may wait to hear that it was posted.
    const std::uint64_t parts = gathers ? UINT64_MAX : kPartBits;
    const bool many = (gathers || direct.in_two_steps()) &&
                      (scratch_.expected(direct, rank) & parts) >> DirectPeer::kFloor != 0;
    if (scratch_.says_nothing(direct, rank) && (many || early_.has_from(rank))) {
      peers_[rank].receipt_wanted = true;
    }
    queue(rank);
    watch(rank, now + patience(rank));
  }
  return progress;
}

/// Our part lies in scratch memory.
void Direct::start_parts(DirectOp& op, TimeNs now) noexcept {
  const std::vector<std::uint16_t>& ranks = op.gathered ? partners_ : others_;
  for (const std::uint16_t rank : ranks) {
    if (!folds_.at_once()) before_more(rank, now);
  }
  op.loaded = true;
  const std::size_t first = layout_.first_to_send(op);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint16_t rank = ranks[(first + i) % ranks.size()];
    if (peers_[rank].received >= op.op_seq) continue;
    scratch_.unsent(op, rank) = scratch_.ready(op, rank);
    if (folds_.at_once() || scratch_.unsent(op, rank) == 0) continue;  // open() goes on
    peers_[rank].quiet_since = now;
    queue(rank);
    watch(rank, now + patience(rank));
  }
}

/// More is about to be ready for a rank.
void Direct::before_more(std::uint16_t rank, TimeNs now) noexcept {
  if (unacknowledged(rank)) return;
  peers_[rank].tries = 0;
  if (!awaited(rank, ops_.posted())) links_.begin_wait(rank, *this, now);
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

Direct::Progress Direct::advance(const Op& op, TimeNs now) noexcept {
  DirectOp* direct = scratch_.find(op.spec.op_seq);
  if (direct == nullptr || direct->done()) return Progress::kNone;
  if (direct->gathered) extend_reach(*direct, now);
  while (folds_.may_begin(*direct)) {
    const DirectFolds::Given given = folds_.give_entries(op, *direct);
    if (given == DirectFolds::Given::kFailed) return Progress::kFailed;
    if (given == DirectFolds::Given::kSome || direct->in_backend > 0) return Progress::kNone;
    end_phase(*direct, now);
    if (!direct->done()) continue;
    scratch_.release();
    return Progress::kDone;
  }
  return Progress::kNone;
}

Direct::Progress Direct::on_folded(const FoldWork& work, const Op& op, TimeNs now) noexcept {
  DirectOp* direct = scratch_.find(op.spec.op_seq);
  require(direct != nullptr, "a direct op's memory stays as long as the backend has it");
  folds_.on_done(work, *direct);
  return advance(op, now);
}

void Direct::end_phase(DirectOp& op, TimeNs now) noexcept {
  const bool folded = op.phase == DirectOp::Phase::kFold && op.to_fold;
  const bool to_all =
      op.phase == DirectOp::Phase::kLoad ? !op.steps.to_owner : folded && op.steps.from_owner;
  if (to_all && !op.gathered) folds_.make_crcs(op);
  if (op.phase == DirectOp::Phase::kLoad) start_parts(op, now);
  if (folded) op.to_fold = false;
  if (folded && op.steps.from_owner) send_sums(op, now);
  folds_.begin(op, static_cast<DirectOp::Phase>(static_cast<std::uint8_t>(op.phase) + 1));
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
