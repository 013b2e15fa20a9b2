// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shard.h"

#include <algorithm>

#include "base/collective_call.h"
#include "base/probe.h"
#include "base/profile.h"
#include "collective/links/ring_links.h"

namespace gradwire::collective {
namespace {

/// Direct ops have places of their own, if the backend does not work at once.
FoldQueue fold_queue_of(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend) {
  const bool has_direct = config.direct_bytes != 0 && config.nranks > 1;
  const std::uint32_t more = has_direct && !backend->runs_at_once() ? kDirectFolds : 0;
  return FoldQueue(std::move(backend), config.pending_entries + more, config.batch_entries);
}

/// An op that moves elements, whatever they are, moves bytes.
OpSpec as_moved(const OpSpec& called) noexcept {
  OpSpec spec = called;
  if (!has_root(spec.collective)) spec.root = kNoRoot;
  if (spec.collective == Collective::kBarrier) {
    spec.count = 0;
    spec.datatype = DataType::kUint8;
  }
  if (reduces(spec.collective)) return spec;
  spec.redop = RedOp::kSum;
  if (spec.datatype == DataType::kBytes) {
    spec.datatype = DataType::kUint8;
    spec.count *= spec.element_bytes;
  }
  return spec;
}

}  // namespace

Result<std::unique_ptr<Shard>> Shard::create(const ShardConfig& config,
                                             std::unique_ptr<reduce::Backend> backend) {
  if (auto checked = check(config, backend.get()); !checked) {
    return tl::unexpected<Error>(checked.error());
  }
  return std::unique_ptr<Shard>(new Shard(config, std::move(backend)));
}

Shard::Shard(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend)
    : config_(config),
      buffers_(config_, data_frame_bytes(config)),
      folds_(fold_queue_of(config, std::move(backend))),
      ops_(config.max_active_ops, config.max_chunks, config.lane, config.lanes),
      neighbors_(config_, group_, buffers_, ops_, counters_),
      rails_(config_, neighbors_, counters_),
      ends_(needs_all_ranks(config_) ? std::make_unique<PeerEnds>(config_, links(), counters_)
                                     : nullptr),
      abort_answers_(ends_ != nullptr ? std::make_unique<AbortAnswers>(config_, *ends_) : nullptr),
      direct_(config_.direct_bytes != 0 && ends_ != nullptr
                  ? std::make_unique<Direct>(config_, *ends_, buffers_, ops_, folds_, counters_)
                  : nullptr),
      transfers_(
          config_.pairs_max != 0 && !config_.folds_only()
              ? std::make_unique<Transfers>(config_, ends_.get(), buffers_, counters_.transfers)
              : nullptr),
      early_(config.eager_packets, config.transit_packets),
      told_by_(config.folds_only() ? OpTable::kDescriptorsKept : 0),
      held_(config.nranks > 2 ? buffers_.chunks_held() : 0),
      posted_by_all_(config.rank, config.nranks),
      calls_(ops_),
      compares_calls_(config.nranks > 1 && !config.folds_only()),
      checks_(config.payload_pool != nullptr ? folds_.places() : 0),
      events_(config.max_active_ops),
      membership_(config_, group_, neighbors_, ops_, folds_, direct_.get(), transfers_.get(),
                  events_),
      stall_(config.rank, config.nranks, config.timeouts.stuck_ns) {}

Shard::~Shard() { drop_everything(); }

void Shard::start(TimeNs now) noexcept {
  last_poll_ = now;
  neighbors_.quiet_from(now);
  membership_.start(now);
}

PostResult Shard::post(const OpSpec& called, TimeNs now) noexcept {
  const OpSpec spec = as_moved(called);
  if (!group_.formed() || spec.op_seq != ops_.posted() + 1 || !fits(spec.redop, spec.datatype) ||
      (spec.redop == RedOp::kPremulSum && spec.factors == nullptr && !config_.folds_only())) {
    return PostResult::kRefused;
  }
  const std::uint32_t processes = config_.processes().count();
  if (!is_supported(spec.collective) || (has_root(spec.collective) && spec.root >= processes)) {
    return PostResult::kUnsupported;
  }
  const auto whole = whole_count({.collective = spec.collective, .count = spec.count}, processes);
  if (!whole || *whole > kMostElements) return PostResult::kTooLarge;
  const OpPlan plan =
      plan_op(config_.shape_group(), config_.lane, config_.lanes, config_.payload_bytes,
              {spec.collective, spec.datatype, spec.root, spec.count, spec.redop});
  if (config_.folds_only() && plan.shape != Shape::kTwoStep) return PostResult::kUnsupported;
  if (plan.partition.total_chunks() > UINT32_MAX || plan.lane_chunks > config_.max_chunks) {
    return PostResult::kTooLarge;
  }
  // Each active op will need a place for its done event, beside those not taken yet.
  if (ops_.posted() - ops_.done() + events_.size() >= config_.max_active_ops) {
    return PostResult::kFull;
  }
  if (direct_ != nullptr && !direct_->admit(plan, spec)) return PostResult::kFull;
  Op* op = ops_.open(spec, plan);
  if (op == nullptr) return PostResult::kFull;

  op->record = OpRecord{now, 0, plan.bytes, counters_.retransmissions, spec.collective};
  if (ops_.posted() == ops_.done() + 1) stall_.moved(now);
  op->streaming = plan.bytes >= config_.streaming_bytes;
  GRADWIRE_PROBE5(op_posted, config_.key.group_id, spec.op_seq, config_.rank, config_.lane,
                  op->record.bytes);
  for (const auto& link : links()) {
    if (link->brings_data() && link->on_ring()) link->receiver().transport().request_ack();
  }
  if (plan.rules.waits_for_all) last_waiting_ = spec.op_seq;
  if (plan.rules.one_way) last_one_way_ = spec.op_seq;
  if (plan.rules.compares || plan.rules.waits_for_all) last_compared_ = spec.op_seq;
  if (compares_calls_) {
    calls_.on_posted(spec.op_seq);
    compare_calls(now);
    if (!live()) return PostResult::kOk;
  }
  on_words(now);
  apply_early(spec.op_seq, now);
  if (direct_ != nullptr && live()) {
    if (is_off_ring(plan.shape) && plan.lane_chunks > 0) start_direct(*op, now);
    if (live()) apply_ahead(spec.op_seq, now);
  }
  if (live()) finish_if_done(*op);
  if (live()) abort_if(membership_.missed_by_who_left(), now);
  return PostResult::kOk;
}

void Shard::admit(TimeNs now) noexcept {
  const PostedWords words = posted_by_all_.words(ops_.posted(), agreed());
  for (const auto& link : links()) {
    if (!link->brings_data() || !link->on_ring()) continue;
    const PostedWords& told = link->receiver().words_told();
    if (std::min(words.onwards, last_waiting_) > told.onwards ||
        std::min(words.everyone, last_waiting_) > told.everyone) {
      link->receiver().transport().request_ack();
    }
  }
  const std::uint64_t last = std::min(words.everyone, last_waiting_);
  std::uint64_t op_seq = std::max(admitted_up_to_, ops_.done()) + 1;
  admitted_up_to_ = std::max(admitted_up_to_, last);
  membership_.note_posted_by_all(admitted_up_to_);
  for (; op_seq <= last; ++op_seq) {
    Op* op = ops_.find(op_seq);
    if (op == nullptr || op->admitted) continue;
    op->admitted = true;
    stall_.moved(now);
    finish_if_done(*op);
  }
}

bool Shard::waits_for_word() const noexcept {
  if (admitted_up_to_ < last_waiting_) return true;
  if (compares_calls_ && std::max(agreed_up_to_, ops_.done()) < last_compared_) return true;
  if (last_one_way_ <= ops_.done()) return false;
  const Op* oldest = ops_.find(ops_.done() + 1);
  return oldest != nullptr && oldest->worked_off() && !oldest->finished();
}

void Shard::finish_if_done(Op& op) noexcept {
  if (op.state != Op::State::kActive || !op.finished()) return;
  const std::uint64_t op_seq = op.spec.op_seq;
  // The next rank has posted it: there is a part of each rank in it, or it is one_way and has
  // waited for that.
  if (op.eager_sent > 0) sender_of(op).give_back_eager(op);
  folds_.backend().make_visible();
  ops_.close(op);
  ++counters_.ops_done;
  OpRecord record = op.record;
  record.retransmissions = counters_.retransmissions - record.retransmissions;
  GRADWIRE_PROBE6(op_done, config_.key.group_id, op_seq, config_.rank, config_.lane, record.bytes,
                  record.retransmissions);
  // Nobody here called it.
  if (!config_.folds_only()) events_.put({EventType::kOpDone, op_seq, record});
}

void Shard::lead_to(std::uint16_t rank, const wire::IpAddress& ip,
                    const wire::FrameTemplate& frame) noexcept {
  neighbors_.lead_to(rank, ip, frame);
  if (ends_ == nullptr || !ends_->has(rank)) return;
  if (!neighbors_.has(rank)) ends_->of(rank).lead_to(ip, frame);
  if (direct_ != nullptr && live()) direct_->probe_at_once(rank);
}

void Shard::abort(const AbortReason& reason, TimeNs now) noexcept {
  if (!membership_.abort(reason, now)) return;
  if (abort_answers_ != nullptr && neighbors_.someone_left()) {
    for (std::uint16_t rank = 0; rank < config_.all_ranks(); ++rank) {
      if (ends_->has(rank) && !neighbors_.has(rank)) abort_answers_->tell(rank);
    }
  }
  drop_everything();
}

void Shard::abort_if(const Membership::Cause& cause, TimeNs now) noexcept {
  if (cause) abort(*cause, now);
}

void Shard::leave(TimeNs now) noexcept {
  abort_if(membership_.leave(now), now);
  if (direct_ != nullptr && group_.state() == ShardState::kLeaving) direct_->leave();
}

void Shard::drop_everything() noexcept {
  // What the backend has is freed when it gives it back: complete() sees the state.
  folds_.drop_waiting();
  neighbors_.drop_all();
  early_.free_all();
  if (direct_ != nullptr) direct_->drop_all();
  if (transfers_ != nullptr) transfers_->drop_all();
  for (; !held_.empty(); held_.pop()) rte_pktmbuf_free(held_.front().mbuf);
  checks_.free_all();
  stall_.questions().clear();
  ops_.forget_spilled();
}

bool Shard::poll(TimeNs now, bool idle, Outbox& out) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  if (group_.state() == ShardState::kIdle || group_.state() == ShardState::kClosed) {
    return false;
  }
  fold(now);
  if (!checks_.empty()) receive_checked(now);
  const TimeNs round = account_round(now);
  // What goes by a new path goes in the next round, when the lane knows of it.
  if (rails_.watches_paths() && live() && rails_.run(round, now, out)) [[unlikely]]
    return true;
  bool worked = membership_.run(now, out);
  if (rails_.watches_paths()) [[unlikely]]
    worked |= rails_.ask(out);
  if (group_.forming()) abort_if(membership_.overdue(now), now);
  if (group_.state() == ShardState::kClosed) drop_everything();
  if (group_.aborted() && abort_answers_ != nullptr) {
    worked |= abort_answers_->send(membership_.reason(), membership_.aborts_sent(), out);
  }
  if (!live()) return worked;
  if (links().empty()) {
    if (transfers_ != nullptr) worked |= run_transfers(now, out);
    return worked | fold_local(now);
  }

  if (stall_.asks()) worked |= send_questions(out);
  worked |= neighbors_.run_timers(now, stall_);
  // Where a port is full, direct ops and transfers take turns: who is not answered seems silent.
  // A round in which there is no room is nobody's turn.
  if (transfers_ != nullptr && direct_went_ && transfers_->waits_for_room()) {
    worked |= run_transfers(now, out);
  }
  if (transfers_ == nullptr || !transfers_->waits_for_room()) direct_went_ = false;
  if (config_.folds_only()) post_told(now);
  if (direct_ != nullptr && live()) {
    worked |= run_direct(now, out);
    // A look at who is late is nobody's turn either.
    direct_went_ |= direct_->sent_last() > 0;
  }
  // A rank of which nothing comes for long seems silent, though the ring fills its port.
  if (transfers_ != nullptr && live() && transfers_->starves()) worked |= run_transfers(now, out);
  if (!early_.empty() && live()) retry_early(now);
  if (live() && held_may_go()) release_held(now);
  if (live() && may_send_data()) worked |= send_data(now, out);
  worked |= neighbors_.send_acks([this] { return posted_by_all_.words(ops_.posted(), agreed()); },
                                 idle, now, out);
  // The ring's room comes first.
  if (transfers_ != nullptr && live()) worked |= run_transfers(now, out);
  return worked;
}

}  // namespace gradwire::collective
