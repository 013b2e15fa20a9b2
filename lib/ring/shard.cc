// SPDX-License-Identifier: BSD-3-Clause
#include "ring/shard.h"

#include <bit>

#include "base/probe.h"
#include "ring/shard_impl.h"

namespace gradwire::ring {
namespace {

/// Between looks at a backend that has work, where nothing else calls for one.
constexpr TimeNs kBackendPollNs = 20'000;

std::unique_ptr<transport::CongestionController> controller(const ShardConfig& config) {
  return transport::make_controller({.kind = config.congestion,
                                     .max_window_bytes = window_bytes(config),
                                     .packet_bytes = full_packet_wire_bytes(config),
                                     .swift_target_ns = config.swift_target_ns});
}

transport::SenderConfig sender_config(const ShardConfig& config) {
  transport::SenderConfig sender = config.sender;
  // Room for numbers of packets that were repeated and not yet resolved, beside the window.
  const std::uint32_t numbers = std::bit_ceil(config.window_packets * 4);
  sender.max_packets_in_flight = std::max(sender.max_packets_in_flight, numbers);
  return sender;
}

/// The upstream rank is taken to have this rank's window. If its own is larger, a packet whose
/// acknowledgement was lost is sent once more at worst.
transport::ReceiverConfig receiver_config(const ShardConfig& config) {
  transport::ReceiverConfig receiver = config.receiver;
  receiver.reported_numbers = sender_config(config).max_packets_in_flight;
  return receiver;
}

}  // namespace

Shard::Impl::Impl(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend)
    : config_(config),
      folds_(std::move(backend), config.pending_entries, config.batch_entries),
      ops_(config.max_active_ops, config.max_chunks, config.lane, config.lanes),
      sender_(sender_config(config), controller(config)),
      receiver_(receiver_config(config)),
      records_(config.window_packets),
      // Transit stops at its own bound, own and spilled chunks at the window.
      ready_(std::max(config.transit_packets, config.window_packets)),
      buffers_(config_, config.to_downstream.bytes()),
      early_(config.eager_packets, config.transit_packets),
      checks_(config.payload_pool != nullptr ? config.pending_entries : 0),
      events_(config.max_active_ops + 8),
      progress_checks_(config.nranks) {
  for (std::uint32_t i = config.window_packets; i-- > 0;) records_free_.push_back(i);
}

Shard::Impl::~Impl() { drop_everything(); }

void Shard::Impl::start(TimeNs now) noexcept {
  started_at_ = last_poll_ = last_down_sent_ = now;
  next_hello_ = now;
  state_ = ShardState::kForming;
  if (config_.nranks == 1) {
    state_ = ShardState::kFormed;
    emit(EventType::kFormed);
  }
}

PostResult Shard::Impl::post(const OpSpec& spec, TimeNs now) noexcept {
  if (state_ != ShardState::kFormed || spec.op_seq != ops_.posted() + 1 ||
      !is_valid(spec.datatype) || !is_valid(spec.redop)) {
    return PostResult::kRefused;
  }
  const std::uint64_t bytes = spec.count * element_bytes(spec.datatype);
  const OpPlan plan =
      plan_op({config_.rank, config_.nranks, config_.member_count, config_.exchange_bytes},
              config_.lane, config_.lanes, config_.payload_bytes, spec.count, spec.datatype);
  if (plan.partition.total_chunks() > UINT32_MAX || plan.lane_chunks > config_.max_chunks) {
    return PostResult::kTooLarge;
  }
  // Each active op will need a place for its done event, beside those not taken yet.
  if (ops_.posted() - ops_.done() + events_.size() >= config_.max_active_ops) {
    return PostResult::kFull;
  }
  Op* op = ops_.open(spec, plan);
  if (op == nullptr) return PostResult::kFull;

  op->record = OpRecord{now, 0, bytes, counters_.retransmissions};
  if (ops_.posted() == ops_.done() + 1) progress_at_ = now;
  op->streaming = bytes >= config_.streaming_bytes;
  GRADWIRE_PROBE5(op_posted, config_.key.group_id, spec.op_seq, config_.rank, config_.lane,
                  op->record.bytes);
  receiver_.request_ack();
  apply_early(spec.op_seq, now);
  if (live()) finish_if_done(*op);
  if (live()) check_left(upstream_, upstream_rank(), now);
  if (live()) check_left(downstream_, downstream_rank(), now);
  return PostResult::kOk;
}

void Shard::Impl::finish_if_done(Op& op) noexcept {
  if (op.state != Op::State::kActive || !op.finished()) return;
  const std::uint64_t op_seq = op.spec.op_seq;
  // A finished sum has every rank's part in it, so the downstream rank has posted the op.
  eager_outstanding_ -= op.eager_sent;
  op.eager_sent = 0;
  folds_.backend().make_visible();
  ops_.close(op);
  ++counters_.ops_done;
  OpRecord record = op.record;
  record.retransmissions = counters_.retransmissions - record.retransmissions;
  GRADWIRE_PROBE6(op_done, config_.key.group_id, op_seq, config_.rank, config_.lane, record.bytes,
                  record.retransmissions);
  emit(EventType::kOpDone, op_seq, record);
}

void Shard::Impl::emit(EventType type, std::uint64_t op_seq, const OpRecord& record) noexcept {
  // Posts wait (kFull) for slots that events speak of.
  require(events_.push(Event{type, op_seq, record}),
          "there is room for an event of every active op and of every change of state");
}

bool Shard::Impl::pop_event(Event& out) noexcept {
  if (events_.empty()) return false;
  out = events_.front();
  events_.pop();
  return true;
}

ShardStatus Shard::Impl::status() const noexcept {
  ShardStatus status;
  status.state = state_;
  status.posted_op_seq = ops_.posted();
  status.done_op_seq = ops_.done();
  status.downstream_posted_op_seq = sender_.posted_op_seq();
  status.upstream_silence_ns = upstream_.silence_ns;
  status.downstream_silence_ns = downstream_.silence_ns;
  status.bytes_in_flight = sender_.bytes_in_flight();
  status.transit_queued = static_cast<std::uint32_t>(ready_.size());
  status.early_held = static_cast<std::uint32_t>(early_.size());
  status.smoothed_rtt_ns = sender_.rtt().smoothed_ns();
  status.pto_count = sender_.pto_count();
  status.upstream_heard = upstream_.heard;
  status.downstream_heard = downstream_.heard;
  status.in_backend = folds_.size();
  status.backend_name = folds_.backend().name();
  status.backend_path = folds_.backend().path();
  status.backend = folds_.backend().counters();
  status.latest_rtt_ns = sender_.rtt().latest_ns();
  status.min_rtt_ns = sender_.rtt().min_ns();
  status.rttvar_ns = sender_.rtt().variance_ns();
  status.window_bytes = sender_.window_bytes();
  status.packets_in_flight = sender_.packets_in_flight();
  status.ecn_ce_reported = sender_.ecn_ce_count();
  status.packets_lost = sender_.packets_lost();
  status.credit_chunks = sender_.credit_chunks();
  status.chunks_sent = distinct_sent_;
  if (const Op* oldest = ops_.find(ops_.done() + 1)) {
    status.oldest_op = oldest->record;
    status.oldest_op.retransmissions = counters_.retransmissions - oldest->record.retransmissions;
  }
  status.progress_at = progress_at_;
  status.waits_for_downstream = waits_for_downstream();
  status.counters = counters_;
  return status;
}

TimeNs Shard::Impl::deadline(TimeNs now) const noexcept {
  if (state_ == ShardState::kIdle || state_ == ShardState::kClosed) return kNever;
  // What only a packet, a post or a client can move is not in here: a lane must not spin for it.
  TimeNs earliest = kNever;
  // A backend that finishes later tells nobody when it does.
  if (folds_.size() > 0) earliest = now + kBackendPollNs;
  if (state_ == ShardState::kAborted) {
    earliest = std::min(earliest, next_abort_);
    if (leave_wanted_ && !abort_event_wanted_) earliest = std::min(earliest, leave_deadline_);
  } else if (state_ == ShardState::kLeaving) {
    // Until then it waits for acknowledgements, and for the backend.
    if (all_sent_acknowledged()) earliest = std::min(earliest, next_bye_);
    if (folds_.size() == 0) earliest = std::min({earliest, close_at_, leave_deadline_});
  } else if (state_ == ShardState::kForming) {
    earliest = std::min(earliest, started_at_ + config_.timeouts.formation_ns);
  }
  if (greets_downstream(now)) earliest = std::min(earliest, next_hello_);
  if (config_.nranks == 1) {
    const bool room = folds_.size() < folds_.places() / 2;
    return live() && room && ops_.peek_own() != nullptr ? now : earliest;
  }
  // Replies that found no room are tried again, soon but not at once: the port is full.
  if (hello_ack_wanted_ || bye_ack_up_wanted_ || bye_ack_down_wanted_ || abort_reply_up_ ||
      abort_reply_down_ || !progress_checks_.empty() ||
      (probes_wanted_ > 0 && sender_.has_number())) {
    earliest = std::min(earliest, now + kBackendPollNs);
  }
  if (!live()) return earliest;
  if (!checks_.empty() || (!folds_.full() && early_.op_that_may_go(ops_) != 0)) return now;
  if (something_may_go()) {
    earliest = std::min(earliest, sender_.pacing_time(now, wire_bytes(config_.payload_bytes)));
  }
  earliest = std::min(earliest, sender_.deadline());
  if (upstream_.heard) earliest = std::min(earliest, receiver_.deadline());
  if (downstream_.heard && !downstream_.left) {
    earliest = std::min(earliest, last_down_sent_ + config_.timeouts.ping_interval_ns);
  }
  return earliest;
}

// The public face: it only hands on.

Result<std::unique_ptr<Shard>> Shard::create(const ShardConfig& config,
                                             std::unique_ptr<reduce::Backend> backend) {
  if (auto checked = check(config, backend.get()); !checked) {
    return tl::unexpected<Error>(checked.error());
  }
  auto impl = std::make_unique<Impl>(config, std::move(backend));
  return std::unique_ptr<Shard>(new Shard(std::move(impl)));
}

Shard::Shard(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Shard::~Shard() = default;
void Shard::start(TimeNs now) noexcept { impl_->start(now); }
PostResult Shard::post(const OpSpec& spec, TimeNs now) noexcept { return impl_->post(spec, now); }
bool Shard::wants_hello(const wire::HelloBody& hello, std::uint8_t lane) const noexcept {
  return impl_->wants_hello(hello, lane);
}
bool Shard::is_neighbours(const wire::Packet& packet,
                          const wire::IpAddress& source) const noexcept {
  return impl_->check_sender(packet, source) == wire::Drop::kNone;
}

void Shard::on_packet(rte_mbuf* frame, const wire::Packet& packet, const wire::IpAddress& source,
                      bool ecn_ce, TimeNs now) noexcept {
  impl_->on_packet(frame, packet, source, ecn_ce, now);
}
void Shard::flush(TimeNs now) noexcept { impl_->flush(now); }
bool Shard::poll(TimeNs now, bool idle, Outbox& out) noexcept {
  return impl_->poll(now, idle, out);
}
TimeNs Shard::deadline(TimeNs now) const noexcept { return impl_->deadline(now); }
void Shard::abort(const AbortReason& reason, TimeNs now) noexcept { impl_->abort(reason, now); }
void Shard::leave(TimeNs now) noexcept { impl_->leave(now); }
bool Shard::pop_event(Event& out) noexcept { return impl_->pop_event(out); }
const AbortReason& Shard::reason() const noexcept { return impl_->reason_; }
const ShardConfig& Shard::config() const noexcept { return impl_->config_; }
const ShardCounters& Shard::counters() const noexcept { return impl_->counters_; }
const char* Shard::backend_name() const noexcept { return impl_->folds_.backend().name(); }
const reduce::BackendCounters& Shard::backend_counters() const noexcept {
  return impl_->folds_.backend().counters();
}
ShardStatus Shard::status(TimeNs) const noexcept { return impl_->status(); }

}  // namespace gradwire::ring
