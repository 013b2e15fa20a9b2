// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ring/ring.h"

#include <algorithm>

#include "base/abort_detail.h"

namespace gradwire::collective {

Ring::Ring(const ShardConfig& config, const Group& group, Neighbors& neighbors,
           const PacketBuffers& buffers, OpTable& ops, FoldQueue& folds, OpEnds& op_ends,
           StallWatch& stall, Membership& membership, ShardServices& services,
           ShardCounters& counters)
    : config_(config),
      group_(group),
      neighbors_(neighbors),
      buffers_(buffers),
      ops_(ops),
      folds_(folds),
      op_ends_(op_ends),
      stall_(stall),
      services_(services),
      counters_(counters),
      words_(config, group, neighbors.links(), ops, op_ends, stall, membership, services),
      early_(config.eager_packets, config.transit_packets),
      held_(config.nranks > 2 ? buffers.chunks_held() : 0),
      checks_(config.payload_pool != nullptr ? folds.places() : 0) {}

void Ring::on_posted(Op& op, TimeNs now) noexcept {
  prepare_entry(op);
  for (const auto& link : links()) {
    if (link->brings_data() && link->on_ring()) link->receiver().transport().request_ack();
  }
  const std::uint64_t op_seq = ops_.posted();
  words_.on_posted(op.rules, now);
  if (live()) apply_early(op_seq, now);
}

TimeNs Ring::deadline(TimeNs now) const noexcept {
  TimeNs earliest = kNever;
  for (const auto& link : links()) {
    if (!link->gets_data() || !link->end.answered() || !link->on_ring()) continue;
    if (something_may_go(link->sender())) {
      earliest = std::min(earliest, link->sender().pacing_time(now));
    }
  }
  return earliest;
}

Membership::Cause Ring::left_too_early() const noexcept {
  // A rank says bye when all that it sent was acknowledged. So all of it is here by then, claimed
  // or among the early packets, and the rank has all that it needs of this one.
  const bool all_folded = folds_.size() == 0 && checks_.empty() && held_.empty();
  for (LinkIndex i = 0; i < links().size(); ++i) {
    if (!neighbors_.has_left(i)) continue;
    const std::uint64_t last = std::min(neighbors_.left_after_op_seq(i), ops_.posted());
    for (std::uint64_t op_seq = ops_.done() + 1; op_seq <= last; ++op_seq) {
      const Op* op = ops_.find(op_seq);
      if (op == nullptr || is_off_ring(op->shape)) continue;
      const bool to_send = op->rules.sends && op->rules.to == i &&
                           (op->own_next < op->own_end || op->spilled_left > 0 ||
                            links()[i]->sender().has_any_of(op_seq));
      const bool to_get =
          op->rules.from == i && op->arrivals_left > 0 && all_folded && !early_.has_any_of(op_seq);
      if (!to_send && !to_get) continue;
      AbortReason reason{.code = AbortCode::kPeerLeft,
                         .culprit_rank = links()[i]->end.rank(),
                         .reporter_rank = config_.rank,
                         .op_seq = op_seq};
      format_detail(reason,
                    "it said that it was done with op {}, but it has not {} all of its data",
                    op_seq, to_send ? "received" : "sent");
      return reason;
    }
  }
  return {};
}

void Ring::drop_all() noexcept {
  early_.free_all();
  for (; !held_.empty(); held_.pop()) rte_pktmbuf_free(held_.front().mbuf);
  checks_.free_all();
}

}  // namespace gradwire::collective
