// SPDX-License-Identifier: BSD-3-Clause
// Who stalls, and a group that is stuck.
//
// A rank knows only what its downstream rank posted. So a rank with whose oldest op nothing moves
// asks round the ring: each rank that has posted that op hands the question on, with the shortest
// time for which nothing moved so far; one that has not keeps it, since its client is waited for.
// A question that comes back says that all have posted, and that packets get through. Several must
// come back, a while apart: after an outage the first may be faster than a retransmission.
#include <fmt/format.h>

#include <algorithm>

#include "ring/shard_impl.h"

namespace gradwire::ring {
namespace {

/// Questions in the time for which a rank must be stalled; the first after half of it.
constexpr TimeNs kChecks = 30;
constexpr std::uint32_t kChecksReturned = 5;

}  // namespace

void Shard::Impl::account_stall(TimeNs now, TimeNs round) noexcept {
  const TimeNs stuck_ns = config_.timeouts.stuck_ns;
  if (progress_at_ != progress_seen_) {
    progress_seen_ = progress_at_;
    stalled_ns_ = 0;
    checks_returned_ = 0;
    next_check_ns_ = stuck_ns / 2;
    next_return_ns_ = 0;
  } else {
    stalled_ns_ += round;
  }
  if (ops_.posted() == ops_.done() || now - progress_at_ < kStallNs) return;
  (waits_for_downstream() ? counters_.stalled_on_downstream_ns
                          : counters_.stalled_on_upstream_ns) += static_cast<std::uint64_t>(round);
  if (config_.nranks == 1) {
    if (stalled_ns_ >= stuck_ns) become_stuck(now);
  } else if (stalled_ns_ >= next_check_ns_) {
    next_check_ns_ = stalled_ns_ + stuck_ns / kChecks;
    ask({oldest_unfinished(), static_cast<std::uint64_t>(stalled_ns_), config_.rank});
  }
}

void Shard::Impl::ask(const wire::ProgressCheckBody& check) noexcept {
  // One that finds no room is lost, like a packet: who asks, asks again.
  static_cast<void>(progress_checks_.push(check));
}

void Shard::Impl::receive_progress_check(const wire::ProgressCheckBody& check,
                                         TimeNs now) noexcept {
  // A rank that is done with the op has posted it too: it counts by how long it has been still.
  const std::uint64_t stalled_ns =
      std::min(check.stalled_ns, static_cast<std::uint64_t>(stalled_ns_));
  if (check.origin_rank != config_.rank) {
    if (ops_.posted() >= check.op_seq) {
      ask({check.op_seq, stalled_ns, check.origin_rank});
    }
    return;
  }
  if (state_ != ShardState::kFormed || check.op_seq != oldest_unfinished()) return;
  // Those that waited behind a port that took nothing come back all at once: they count as one.
  if (stalled_ns_ < next_return_ns_) return;
  next_return_ns_ = stalled_ns_ + config_.timeouts.stuck_ns / kChecks / 2;
  ++checks_returned_;
  if (checks_returned_ >= kChecksReturned &&
      stalled_ns >= static_cast<std::uint64_t>(config_.timeouts.stuck_ns)) {
    become_stuck(now);
  }
}

bool Shard::Impl::send_progress_checks(Outbox& out) noexcept {
  if (!downstream_.heard || downstream_.left) {
    progress_checks_.clear();
    return false;
  }
  bool worked = false;
  while (!progress_checks_.empty()) {
    const bool sent = send_control(config_.control_pool, true, out, [&](std::span<std::byte> room) {
      return wire::encode_progress_check(
          room, common_header(wire::PacketType::kProgressCheck, true, control_number()),
          progress_checks_.front());
    });
    if (!sent) break;
    progress_checks_.pop();
    worked = true;
  }
  return worked;
}

void Shard::Impl::become_stuck(TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kStuck,
                     .culprit_rank = config_.rank,
                     .reporter_rank = config_.rank,
                     .op_seq = oldest_unfinished(),
                     .duration_ns = static_cast<std::uint64_t>(stalled_ns_)};
  const auto written = fmt::format_to_n(
      reason.detail, AbortReason::kDetailBytes - 1,
      "lane {}: posted {}, done {}, downstream posted {}, in flight {}, lost {}, ready {}, spilled "
      "{}, early {}, in backend {}, sent {} of {}",
      config_.lane, ops_.posted(), ops_.done(), sender_.posted_op_seq(),
      sender_.packets_in_flight(), lost_count_, ready_.size(), ops_.spilled(), early_.size(),
      folds_.size(), distinct_sent_, sender_.credit_chunks());
  *written.out = '\0';
  become_aborted(reason, now);
}

}  // namespace gradwire::ring
