// SPDX-License-Identifier: BSD-3-Clause
#include "ring/shard.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/probe.h"
#include "base/window.h"
#include "ring/shard_impl.h"

namespace gradwire::ring {
namespace {

/// Between looks at a backend that has work, where nothing else calls for one.
constexpr TimeNs kBackendPollNs = 20'000;

std::uint32_t packet_bytes(const ShardConfig& config) {
  return config.payload_bytes * config.payload_scale +
         static_cast<std::uint32_t>(wire::kHeaderBytes + config.to_downstream.bytes());
}

std::uint64_t window_bytes(const ShardConfig& config) {
  if (config.window_bytes != 0) return config.window_bytes;
  return std::uint64_t{config.window_packets} * packet_bytes(config);
}

std::unique_ptr<transport::CongestionController> controller(const ShardConfig& config) {
  return transport::make_controller({.kind = config.congestion,
                                     .max_window_bytes = window_bytes(config),
                                     .packet_bytes = packet_bytes(config),
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

Result<void> check(const ShardConfig& c, const reduce::Backend* backend) {
  const auto bad = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (backend == nullptr) return bad("a shard needs a reduce backend");
  if (c.nranks < 1 || c.nranks > kMaxRingRanks)
    return bad(fmt::format("nranks is {}, must be 1 to {}", c.nranks, kMaxRingRanks));
  if (c.rank >= c.nranks)
    return bad(fmt::format("rank is {}, must be below nranks, {}", c.rank, c.nranks));
  if (c.member_count < 1 || c.member_count > kMaxMembers)
    return bad(fmt::format("member count is {}, must be 1 to {}", c.member_count, kMaxMembers));
  if (c.lanes < 1 || c.lanes > kMaxLanes || c.lane >= c.lanes)
    return bad(
        fmt::format("lane {} of {}: must be below a count of 1 to {}", c.lane, c.lanes, kMaxLanes));
  if (c.payload_bytes < 64 || c.payload_bytes % 64 != 0 || c.payload_bytes > 65'472)
    return bad(fmt::format("payload is {} bytes, must be a multiple of 64 from 64 to 65472",
                           c.payload_bytes));
  if (!std::has_single_bit(c.max_active_ops) || c.max_active_ops > OpTable::kDescriptorsKept)
    return bad(fmt::format("max active ops is {}, must be a power of two up to {}",
                           c.max_active_ops, OpTable::kDescriptorsKept));
  if (c.eager_packets >= kTokenFeature || c.exchange_bytes % 1024 != 0 ||
      c.exchange_bytes >> 10 > 0xffff)
    return bad(
        fmt::format("an eager allowance of {} packets and exchanges of {} bytes: 32,767 at "
                    "most, and whole KiB up to 65,535",
                    c.eager_packets, c.exchange_bytes));
  if (c.batch_entries < 1 || c.pending_entries < c.batch_entries)
    return bad(fmt::format("{} pending entries must be at least a batch of {}, which is 1 or more",
                           c.pending_entries, c.batch_entries));
  if (c.window_packets < 2 || c.transit_packets < 1 || c.eager_packets < 1 || c.max_chunks < 1)
    return bad("window needs 2 packets, transit, eager and chunks 1 at least");
  if (c.nranks > 1 && (c.packet_pool == nullptr || c.control_pool == nullptr))
    return bad("a shard with neighbours needs its two mempools");
  if (c.nranks > 1 && (c.to_downstream.bytes() == 0 || c.to_upstream.bytes() == 0))
    return bad("a shard with neighbours needs the frames that lead to them");
  if (c.payload_pool != nullptr && backend->runs_at_once())
    return bad(
        fmt::format("payloads in a GPU's memory are not for the backend {}", backend->name()));
  if (c.nranks > 1 && c.payload_pool != nullptr &&
      rte_pktmbuf_data_room_size(c.payload_pool) < c.payload_bytes)
    return bad(fmt::format("a payload of {} bytes does not fit the payload mempool's {}",
                           c.payload_bytes, rte_pktmbuf_data_room_size(c.payload_pool)));
  if (c.nranks > 1 &&
      rte_pktmbuf_data_room_size(c.packet_pool) <
          RTE_PKTMBUF_HEADROOM + c.to_downstream.bytes() + wire::kHeaderBytes + c.payload_bytes)
    return bad(fmt::format("a payload of {} bytes does not fit the mempool's data room of {}",
                           c.payload_bytes, rte_pktmbuf_data_room_size(c.packet_pool)));
  return {};
}

}  // namespace

std::uint32_t packet_mbufs_needed(const ShardConfig& config) noexcept {
  // Unacknowledged, waiting to go on, in batches, early; and one retransmission's copy for each
  // packet whose mbuf a driver still holds, and a hello both ways.
  return 2 * config.window_packets + config.transit_packets + config.pending_entries +
         config.eager_packets + 4;
}

void settle_windows(ShardConfig& config, std::uint32_t payload_bytes) noexcept {
  if (config.window_packets == 0) config.window_packets = window_packets_for(payload_bytes);
  if (config.transit_packets == 0) config.transit_packets = config.window_packets;
}

std::uint32_t features_of(const ShardConfig& config) noexcept {
  return config.eager_packets | kTokenFeature |
         static_cast<std::uint32_t>(config.exchange_bytes >> 10) << 16;
}

std::string features_difference(std::size_t rank, std::uint32_t features, std::size_t other_rank,
                                std::uint32_t other) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  const auto compare = [&](const char* what, std::uint32_t mine, std::uint32_t theirs) {
    if (mine == theirs) return;
    add(fmt::format("{} is {} at rank {} and {} at rank {}", what, mine, rank, theirs, other_rank));
  };
  compare("transport.eager_packets", features & (kTokenFeature - 1), other & (kTokenFeature - 1));
  compare("transport.exchange_kib", features >> 16, other >> 16);
  if (((features ^ other) & kTokenFeature) != 0) {
    const bool without = (features & kTokenFeature) == 0;
    add(
        fmt::format("the gradwired of rank {} is of an older release than that of rank {}, and "
                    "puts no token into its packets",
                    without ? rank : other_rank, without ? other_rank : rank));
  }
  return text;
}

std::uint32_t pending_entries_wanted(const ShardConfig& config) noexcept {
  return std::max(config.batch_entries,
                  2 * config.window_packets + config.transit_packets + config.eager_packets);
}

std::uint64_t lane_chunks(std::uint64_t count, DataType datatype, std::uint16_t nranks,
                          std::uint32_t payload_bytes, std::uint8_t lanes) noexcept {
  const Partition partition(count, datatype, nranks, payload_bytes);
  return (partition.total_chunks() + lanes - 1) / lanes;
}

const char* name_of(ShardState state) noexcept {
  switch (state) {
    case ShardState::kIdle:
      return "idle";
    case ShardState::kForming:
      return "forming";
    case ShardState::kFormed:
      return "formed";
    case ShardState::kLeaving:
      return "leaving";
    case ShardState::kAborted:
      return "aborted";
    case ShardState::kClosed:
      return "closed";
  }
  return "state?";
}

ShardCounters& ShardCounters::operator+=(const ShardCounters& other) noexcept {
  // Nothing but 64-bit counters is in it.
  static_assert(sizeof(ShardCounters) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kCount = sizeof(ShardCounters) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kCount> sum;
  std::array<std::uint64_t, kCount> more;
  std::memcpy(sum.data(), this, sizeof sum);
  std::memcpy(more.data(), &other, sizeof more);
  for (std::size_t i = 0; i < kCount; ++i) sum[i] += more[i];
  std::memcpy(static_cast<void*>(this), sum.data(), sizeof sum);
  return *this;
}

Shard::Impl::Impl(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend)
    : config_(config),
      backend_(std::move(backend)),
      ops_(config.max_active_ops, config.max_chunks),
      sender_(sender_config(config), controller(config)),
      receiver_(receiver_config(config)),
      pending_(config.pending_entries),
      batch_(config.pending_entries),
      records_(config.window_packets),
      // Transit stops at its own bound, own and spilled chunks at the window.
      ready_(std::max(config.transit_packets, config.window_packets)),
      checks_(config.payload_pool != nullptr ? config.pending_entries : 0),
      checked_(checks_.size()),
      events_(config.max_active_ops + 8),
      progress_checks_(config.nranks) {
  at_once_ = config.batch_entries == 1 && backend_->runs_at_once();
  for (std::uint32_t i = config.pending_entries; i-- > 0;) pending_free_.push_back(i);
  for (std::uint32_t i = config.window_packets; i-- > 0;) records_free_.push_back(i);
  early_.reserve(config.eager_packets + config.transit_packets);
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
  const bool exchange =
      exchanges(config_.nranks, config_.member_count, bytes, config_.exchange_bytes);
  // All chunks start here where there is one rank, and in an exchange.
  const bool all_own = config_.nranks == 1 || exchange;
  const Partition partition(spec.count, spec.datatype, all_own ? 1 : config_.nranks,
                            config_.payload_bytes);
  const std::uint64_t total = partition.total_chunks();
  const std::uint64_t lane_total = chunks_on_lane(0, total, config_.lane, config_.lanes);
  if (total > UINT32_MAX || lane_total > config_.max_chunks) return PostResult::kTooLarge;
  // Each active op will need a place for its done event, beside those not taken yet.
  if (ops_.posted() - ops_.done() + events_.size() >= config_.max_active_ops) {
    return PostResult::kFull;
  }
  Op* op = ops_.open(spec, partition, lane_total);
  if (op == nullptr) return PostResult::kFull;

  op->record = OpRecord{now, 0, bytes, counters_.retransmissions};
  if (ops_.posted() == ops_.done() + 1) progress_at_ = now;
  op->exchange = exchange;
  op->in_place = spec.inputs[0] == spec.outputs[0];
  op->streaming = bytes >= config_.streaming_bytes;
  const auto lane_share = [&](std::uint64_t first, std::uint64_t end) {
    return chunks_on_lane(first, end, config_.lane, config_.lanes);
  };
  const std::uint64_t own_first = partition.first_chunk(all_own ? 0 : config_.rank);
  op->own_end = all_own ? total : partition.end_chunk(config_.rank);
  op->own_next =
      own_first + (config_.lane + config_.lanes - own_first % config_.lanes) % config_.lanes;
  if (all_own) {
    op->arrivals_left = lane_total;
  } else {
    // Every chunk arrives twice, but once only where its segment starts or is fully reduced.
    const std::uint16_t next = downstream_rank();
    op->arrivals_left = 2 * lane_total - lane_share(own_first, op->own_end) -
                        lane_share(partition.first_chunk(next), partition.end_chunk(next));
  }
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
  backend_->make_visible();
  ops_.close(op);
  ++counters_.ops_done;
  OpRecord record = op.record;
  record.retransmissions = counters_.retransmissions - record.retransmissions;
  GRADWIRE_PROBE6(op_done, config_.key.group_id, op_seq, config_.rank, config_.lane, record.bytes,
                  record.retransmissions);
  emit(EventType::kOpDone, op_seq, record);
}

void Shard::Impl::emit(EventType type, std::uint64_t op_seq, const OpRecord& record) noexcept {
  // The queue holds an event for every active op and for every change of state: it cannot be full
  // while the lane takes events each round; posts wait (kFull) for slots that events speak of.
  events_.push(Event{type, op_seq, record});
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
  status.in_backend = pending_count_;
  status.backend_name = backend_->name();
  status.backend_path = backend_->path();
  status.backend = backend_->counters();
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
  if (pending_count_ > 0) earliest = now + kBackendPollNs;
  if (state_ == ShardState::kAborted) {
    earliest = std::min(earliest, next_abort_);
    if (leave_wanted_ && !abort_event_wanted_) earliest = std::min(earliest, leave_deadline_);
  } else if (state_ == ShardState::kLeaving) {
    // Until then it waits for acknowledgements, and for the backend.
    if (all_sent_acknowledged()) earliest = std::min(earliest, next_bye_);
    if (pending_count_ == 0) earliest = std::min({earliest, close_at_, leave_deadline_});
  } else if (state_ == ShardState::kForming) {
    earliest = std::min(earliest, started_at_ + config_.timeouts.formation_ns);
  }
  if (greets_downstream(now)) earliest = std::min(earliest, next_hello_);
  if (config_.nranks == 1) {
    const bool room = pending_count_ < pending_.size() / 2;
    return live() && room && next_own_op() != nullptr ? now : earliest;
  }
  // Replies that found no room are tried again, soon but not at once: the port is full.
  if (hello_ack_wanted_ || bye_ack_up_wanted_ || bye_ack_down_wanted_ || abort_reply_up_ ||
      abort_reply_down_ || !progress_checks_.empty() ||
      (probes_wanted_ > 0 && sender_.has_number())) {
    earliest = std::min(earliest, now + kBackendPollNs);
  }
  if (!live()) return earliest;
  if (!checked_.empty() || early_may_go()) return now;
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
const char* Shard::backend_name() const noexcept { return impl_->backend_->name(); }
const reduce::BackendCounters& Shard::backend_counters() const noexcept {
  return impl_->backend_->counters();
}
ShardStatus Shard::status(TimeNs) const noexcept { return impl_->status(); }

}  // namespace gradwire::ring
