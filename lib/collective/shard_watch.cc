// SPDX-License-Identifier: BSD-3-Clause
// What is seen of a shard: its status, when it has something to do next, and whether the group
// moves.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/abort_detail.h"
#include "collective/shard.h"

namespace gradwire::collective {
namespace {

/// Between looks at a backend that has work, if nothing else calls for one.
constexpr TimeNs kBackendPollNs = 20'000;
/// The most that a round counts for: a lane that was paused did not poll.
constexpr TimeNs kRoundNsMax = 10'000'000;

}  // namespace

ShardStatus Shard::status(TimeNs) const noexcept {
  ShardStatus status;
  status.state = group_.state();
  status.posted_op_seq = ops_.posted();
  status.done_op_seq = ops_.done();
  neighbors_.fill(status);
  greetings_.fill(status);
  status.downstream_ip_since = rails_.path_since();
  status.peers_on_other_path = ends_.on_other_path();
  status.early_held = ring_ ? static_cast<std::uint32_t>(ring_->early_held()) : 0;
  status.in_backend = folds_.size();
  status.backend_name = folds_.backend().name();
  status.backend_path = folds_.backend().path();
  status.backend = folds_.backend().counters();
  if (const Op* oldest = ops_.find(ops_.done() + 1)) {
    status.oldest_op = oldest->record;
    status.oldest_op.retransmissions = counters_.retransmissions - oldest->record.retransmissions;
    status.waits_for_posts = !oldest->admitted;
    status.posted_onwards = ring_ && ring_->is_posted_onwards(oldest->spec.op_seq);
  }
  off_ring_.fill(status);
  neighbors_.fill_least_heard(status);
  status.progress_at = stall_.moved_at();
  status.waits_for_downstream = waits_for_others();
  status.counters = counters_;
  return status;
}

TimeNs Shard::deadline(TimeNs now) const noexcept {
  const ShardState state = group_.state();
  if (state == ShardState::kIdle || state == ShardState::kClosed) return kNever;
  // What only a packet, a post or a client can move is not in here: a lane must not spin for it.
  TimeNs earliest = membership_.deadline(now, kBackendPollNs);
  if (state == ShardState::kAborted && !abort_answers_.idle()) {
    earliest = std::min(earliest, now + kBackendPollNs);
  }
  // A backend that finishes later tells nobody when it does.
  if (folds_.size() > 0) earliest = std::min(earliest, now + kBackendPollNs);
  earliest = std::min(earliest, off_ring_.deadline(now));
  if (links().empty()) return live() && ring_->may_fold_local() ? now : earliest;
  if (stall_.asks() || neighbors_.owes_probes())
    earliest = std::min(earliest, now + kBackendPollNs);
  if (!live()) return earliest;
  if (ring_ && ring_->has_work()) return now;
  earliest = std::min(earliest, neighbors_.deadline());
  return ring_ ? std::min(earliest, ring_->deadline(now)) : earliest;
}

bool Shard::waits_for_others() const noexcept {
  if (ops_.spilled() > 0 || ops_.own_may_be_left()) return true;
  return std::any_of(links().begin(), links().end(),
                     [](const auto& link) { return link->gets_data() && !link->sender().idle(); });
}

bool Shard::has_in_flight(std::uint64_t op_seq) const noexcept {
  return std::any_of(links().begin(), links().end(), [&](const auto& link) {
    return link->gets_data() && link->sender().has_in_flight(op_seq);
  });
}

TimeNs Shard::account_round(TimeNs now) noexcept {
  const TimeNs round = std::clamp<TimeNs>(now - last_poll_, 0, kRoundNsMax);
  last_poll_ = now;
  ends_.polled(now);
  off_ring_.count(round);
  if (!group_.formed()) return round;
  stall_.count(round);
  if (ops_.oldest_unfinished() != 0 && now - stall_.moved_at() >= kStallNs) {
    (waits_for_others() ? counters_.stalled_on_downstream_ns : counters_.stalled_on_upstream_ns) +=
        static_cast<std::uint64_t>(round);
    if (ring_) abort_if(ring_->left_too_early(), now);
    // If this rank has no members, those that have find that out.
    if (live() && ring_ && stall_.look(ops_.oldest_unfinished(), links().empty()))
      become_stuck(now);
  }
  if (live()) abort_if(neighbors_.silent(round), now);
  return round;
}

bool Shard::send_questions(Outbox& out) noexcept {
  bool worked = false;
  auto& questions = stall_.questions();
  for (LinkIndex i = 0; i < links().size(); ++i) {
    Link& link = *links()[i];
    if (!link.gets_data() || !link.on_ring()) continue;
    if (!link.end.answered() || neighbors_.has_left(i)) {
      questions.clear();
      return false;
    }
    while (!questions.empty() &&
           link.end.send(config_.control_pool, link.end.side(out), [&](std::span<std::byte> room) {
             return wire::encode_progress_check(
                 room, link.end.header(wire::PacketType::kProgressCheck), questions.front());
           })) {
      questions.pop();
      worked = true;
    }
  }
  return worked;
}

void Shard::become_stuck(TimeNs now) noexcept {
  AbortReason reason{.code = AbortCode::kStuck,
                     .culprit_rank = config_.rank,
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished(),
                     .duration_ns = static_cast<std::uint64_t>(stall_.stalled_ns())};
  const ShardStatus here = status(now);
  std::uint32_t lost = 0;
  for (const auto& link : links()) lost += link->gets_data() ? link->sender().lost() : 0;
  // Who is missing comes first: the rest may not fit.
  std::array<char, 64> who{};
  if (here.is_contribution_missing) {
    reason.culprit_rank = here.missing_rank;
    fmt::format_to_n(who.data(), who.size() - 1, "rank {} gives nothing to it{}; ",
                     here.missing_rank, neighbors_.has(here.missing_rank) ? ", but pings" : "");
  }
  format_detail(reason,
                "{}lane {}: posted {}, done {}, next posted {}, in flight {}, lost {}, ready {}, "
                "spilled {}, early {}, in backend {}, sent {} of {}",
                who.data(), config_.lane, ops_.posted(), ops_.done(), here.downstream_posted_op_seq,
                here.packets_in_flight, lost, here.transit_queued, ops_.spilled(), here.early_held,
                folds_.size(), here.chunks_sent, here.credit_chunks);
  abort(reason, now);
}

}  // namespace gradwire::collective
