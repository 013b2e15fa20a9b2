// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shard.h"

#include <algorithm>

#include "base/collective_call.h"
#include "base/probe.h"
#include "base/profile.h"
#include "base/require.h"
#include "collective/links/ring_links.h"
#include "collective/tiles/tile_memory.h"

namespace gradwire::collective {
namespace {

/// Direct ops have places of their own, if the backend does not work at once.
FoldQueue fold_queue_of(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend) {
  const bool has_direct = config.direct.op_bytes != 0 && config.nranks > 1;
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

/// Whether it has no format, or one that the op and the group can have.
bool can_travel(const ShardConfig& config, const OpSpec& spec) noexcept {
  if (spec.wire == WireFormat::kSame) return true;
  if (!fits(spec.wire, spec.collective, spec.redop, spec.datatype)) return false;
  if (spec.count == 0) return true;
  if (!config.tiles.used) return false;
  const TileRefusal refusal = cut_of(config, spec).refusal();
  return refusal == TileRefusal::kNone || refusal == TileRefusal::kTooManyChunks;
}

/// Whether a rank without members has to do with an op of which it was told.
bool sums_here(const ShardConfig& config, const OpPlan& plan, const OpSpec& spec) noexcept {
  if (plan.shape == Shape::kTwoStep) return true;
  if (plan.shape != Shape::kTiles || spec.collective != Collective::kAllReduce) return false;
  const TileCut cut = cut_of(config, spec);
  // One of too many chunks is refused as such.
  return !cut.supported() || cut.tiles(config.rank, config.lane) != 0;
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
      events_(config.max_active_ops),
      stall_(config.rank, config.nranks, config.timeouts.stuck_ns),
      neighbors_(config_, group_, buffers_, ops_, counters_),
      greetings_(config_, group_, links(), ops_),
      rails_(config_, neighbors_, greetings_, counters_),
      ends_(config_, links(), counters_),
      abort_answers_(config_, ends_),
      op_ends_(config_, links(), ops_, folds_, events_, counters_, !config_.folds_only()),
      off_ring_(config_, group_, neighbors_, ends_, buffers_, ops_, folds_, op_ends_, stall_, *this,
                counters_, config_.folds_only()),
      membership_(config_, group_, neighbors_, greetings_, ops_, folds_, off_ring_, events_) {
  if (!config_.has_ring()) {
    require(!links().empty(), "a rank that is in no ring has a link to another");
    return;
  }
  ShardServices& services = *this;
  ring_.emplace(config_, group_, neighbors_, buffers_, ops_, folds_, op_ends_, stall_, membership_,
                services, counters_);
}

Shard::~Shard() { drop_everything(); }

void Shard::start(TimeNs now) noexcept {
  last_poll_ = now;
  neighbors_.quiet_from(now);
  membership_.start(now);
}

PostResult Shard::post(const OpSpec& called, TimeNs now) noexcept {
  if (called.redop == RedOp::kPremulSum && called.factors == nullptr && ring_) {
    return PostResult::kRefused;
  }
  return open(called, now);
}

PostResult Shard::post_told(const OpSpec& told, TimeNs now) noexcept { return open(told, now); }

PostResult Shard::open(const OpSpec& called, TimeNs now) noexcept {
  OpSpec spec = as_moved(called);
  // Between the processes of one rank nothing travels.
  if (config_.nranks == 1) spec.wire = WireFormat::kSame;
  if (!group_.formed() || spec.op_seq != ops_.posted() + 1 || !fits(spec.redop, spec.datatype)) {
    return PostResult::kRefused;
  }
  const std::uint32_t processes = config_.processes().count();
  if (config_.transfers.alone || !is_supported(spec.collective) ||
      (has_root(spec.collective) && spec.root >= processes)) {
    return PostResult::kUnsupported;
  }
  const auto whole = whole_count({.collective = spec.collective, .count = spec.count}, processes);
  if (!whole || *whole > kMostElements) return PostResult::kTooLarge;
  if (!can_travel(config_, spec)) return PostResult::kUnsupported;
  const OpPlan plan =
      plan_op(config_.shape_group(), config_.lane, config_.lanes, config_.payload_bytes,
              {spec.collective, spec.datatype, spec.root, spec.count, spec.redop, spec.wire});
  if (config_.folds_only() && !sums_here(config_, plan, spec)) return PostResult::kUnsupported;
  if (plan.partition.total_chunks() > UINT32_MAX || plan.lane_chunks > config_.max_chunks) {
    return PostResult::kTooLarge;
  }
  if (plan.shape == Shape::kTiles && !cut_of(config_, spec).supported()) {
    return PostResult::kTooLarge;
  }
  // Each active op will need a place for its done event, beside those not taken yet.
  if (ops_.posted() - ops_.done() + events_.size() >= config_.max_active_ops) {
    return PostResult::kFull;
  }
  if (!off_ring_.admit(plan, spec)) return PostResult::kFull;
  Op* op = ops_.open(spec, plan);
  if (op == nullptr) return PostResult::kFull;

  op->record = OpRecord{
      now, 0, plan.bytes, counters_.retransmissions, spec.collective, spec.wire, plan.shape};
  if (ops_.posted() == ops_.done() + 1) stall_.moved(now);
  GRADWIRE_PROBE5(op_posted, config_.key.group_id, spec.op_seq, config_.rank, config_.lane,
                  op->record.bytes);
  if (ring_) ring_->on_posted(*op, now);
  if (live()) off_ring_.on_posted(*op, plan, now);
  if (live()) op_ends_.finish_if_done(*op);
  if (live()) abort_if(membership_.missed_by_who_left(), now);
  return PostResult::kOk;
}

PostResult Shard::post(const TransferSpec& spec, TimeNs now) noexcept {
  if (!group_.formed()) return PostResult::kRefused;
  const PostResult result = off_ring_.post(spec, now);
  if (result == PostResult::kOk && live()) abort_if(membership_.missed_by_who_left(), now);
  return result;
}

void Shard::lead_to(std::uint16_t rank, const wire::IpAddress& ip,
                    const wire::FrameTemplate& frame) noexcept {
  neighbors_.lead_to(rank, ip, frame);
  if (!ends_.has(rank)) return;
  if (!neighbors_.has(rank)) ends_.of(rank).lead_to(ip, frame);
  if (live()) off_ring_.probe_at_once(rank);
}

void Shard::abort(const AbortReason& reason, TimeNs now) noexcept {
  if (!membership_.abort(reason, now)) return;
  if (neighbors_.someone_left()) {
    for (std::uint16_t rank = 0; rank < ends_.ranks(); ++rank) {
      if (ends_.has(rank) && !neighbors_.has(rank)) abort_answers_.tell(rank);
    }
  }
  drop_everything();
}

void Shard::abort_if(const Membership::Cause& cause, TimeNs now) noexcept {
  if (cause) abort(*cause, now);
}

void Shard::leave(TimeNs now) noexcept {
  abort_if(membership_.leave(now), now);
  if (group_.state() == ShardState::kLeaving) off_ring_.leave();
}

void Shard::drop_everything() noexcept {
  // What the backend has is freed when it gives it back: take_folded() sees the state.
  folds_.drop_waiting();
  neighbors_.drop_all();
  if (ring_) ring_->drop_all();
  off_ring_.drop_all();
  stall_.questions().clear();
  ops_.forget_spilled();
}

void Shard::take_folded(TimeNs now) noexcept {
  for (Folded done; folds_.pop(done);) {
    if (done.work->role == FoldWork::Role::kDirect) {
      off_ring_.on_folded(done, now);
    } else {
      require(ring_.has_value(), "what is folded is of a part that the rank has");
      ring_->on_folded(done, now);
    }
    folds_.release(*done.work);
  }
  if (live()) off_ring_.refill();
}

void Shard::flush(TimeNs now) noexcept {
  fold(folds_, *this, now);
  if (ring_) ring_->receive_checked(now);
}

bool Shard::poll(TimeNs now, bool idle, Outbox& out) noexcept {
  const profile::Stage stage(profile::StageId::kRing);
  if (group_.state() == ShardState::kIdle || group_.state() == ShardState::kClosed) {
    return false;
  }
  flush(now);
  const TimeNs round = account_round(now);
  // What goes by a new path goes in the next round, when the lane knows of it.
  if (rails_.watches_paths() && live() && rails_.run(round, now, out)) [[unlikely]]
    return true;
  bool worked = membership_.run(now, out);
  if (rails_.watches_paths()) [[unlikely]]
    worked |= rails_.ask(out);
  if (group_.forming()) abort_if(membership_.overdue(now), now);
  if (group_.state() == ShardState::kClosed) drop_everything();
  if (group_.aborted()) {
    worked |= abort_answers_.send(membership_.reason(), membership_.aborts_sent(), out);
  }
  if (!live()) return worked;
  if (links().empty()) {
    require(ring_.has_value(), "one rank alone folds for itself");
    worked |= off_ring_.run_last(now, out);
    return worked | ring_->fold_local(now);
  }

  if (stall_.asks()) worked |= send_questions(out);
  worked |= neighbors_.run_timers(now, stall_);
  worked |= off_ring_.run(now, out);
  worked |= run_ring(now, out);
  worked |= neighbors_.send_acks(
      [this] { return ring_ ? ring_->words() : PostedWords{.here = ops_.posted()}; }, idle, now,
      out);
  return worked | off_ring_.run_last(now, out);
}

bool Shard::run_ring(TimeNs now, Outbox& out) noexcept {
  if (ring_) return ring_->run(now, out);
  if (!live()) return false;
  const bool worked = neighbors_.send_waiting(now, out);
  fold(folds_, *this, now);
  return worked | neighbors_.send_rest(false, now, out);
}

}  // namespace gradwire::collective
