// SPDX-License-Identifier: BSD-3-Clause
#include "lane/lane.h"

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <algorithm>

namespace gradwire::lane {

namespace {

// How late an input may be noticed that was still being computed.
constexpr TimeNs kInputLookNs = 20'000;

/// So many frames that they are no more than a round's bytes if all are full.
std::uint16_t rx_burst(std::uint32_t frame_bytes, std::uint32_t round_bytes,
                       std::uint16_t most) noexcept {
  constexpr std::uint32_t kLeast = 4;
  return static_cast<std::uint16_t>(
      std::clamp<std::uint32_t>(round_bytes / std::max(frame_bytes, 1u), kLeast, most));
}

}  // namespace

Lane::Lane(const LaneConfig& config)
    : config_(config),
      slots_(config.max_groups),
      groups_(config.hash_secret, config.max_groups),
      connections_(std::make_unique<ConnectionTable>()),
      statuses_(config.max_groups),
      polling_(config.polling) {
  in_use_.reserve(config.max_groups);
  awake_.reserve(config.max_groups);
  touched_.reserve(config.max_groups);
  for (const port::Port* port : config.ports) {
    // Every lane has its part of a port's rate.
    const std::uint64_t rate_bps = port->config().rate_bps / config.lanes;
    LanePort added;
    added.arp = port::SenderLimit(config.hash_secret);
    added.share = PortShare(rate_bps, config.max_groups);
    added.trace = TxTrace(config.tx_trace_bursts);
    added.port = port;
    added.port_id = port->id();
    added.mac = port->mac();
    added.ip = port->config().ip;
    added.vlan_id = port->config().vlan_id;
    added.rx_exclusive = port->row().rx_exclusive;
    added.rx_interrupts = port->report().rx_interrupts;
    added.rx_burst = rx_burst(port->limits().frame_bytes, kRoundBytes, kMaxBurst);
    added.tx = TxQueue(port->id(), config.lane, port->row().tx_burst);
    added.stage = std::make_unique<port::FaultStage>(
        port->row().rx_exclusive, std::uint64_t{config.lane} << 16 | ports_.size());
    if (port->config().faults.active()) {
      added.stage->configure(port->config().faults);
      added.faults = added.stage.get();
    }
    ports_.push_back(std::move(added));
  }
  sleeper_.add(config.rings.bell->fd());
  if (config.command_lane)
    commands_ = std::make_unique<command::CommandLane>(config.all_lanes, counters_.command);
}

Lane::~Lane() {
  for (LanePort& port : ports_) port.tx.clear();
}

bool Lane::poll_once(TimeNs now) noexcept {
  bool worked = take_requests(now);
  if (commands_ != nullptr) worked |= poll_commands(now);
  worked |= take_ops(now);
  flowed_ = worked;
  const bool received = receive(now);
  worked |= received;
  worked |= take_control_frames();
  worked |= poll_shards(now, !received);
  for (LanePort& port : ports_) {
    if (port.tx.empty()) continue;
    if (port.port->is_running()) {
      worked |= port.tx.flush(now, port.takes_bursts, counters_, port.trace);
    } else {
      count(counters_.tx_dropped, port.tx.clear());
    }
  }
  if (now >= next_publication_) publish(now);
  count(counters_.rounds);
  if (worked) count(counters_.busy_rounds);
  return worked;
}

void Lane::publish(TimeNs now) noexcept {
  next_publication_ = now + kPublicationNs;
  for (const std::uint16_t index : in_use_) {
    GroupSlot& slot = slots_[index];
    if (commands_ != nullptr) {
      const command::MembersWait wait = commands_->members_wait(slot.handle);
      const TimeNs since = wait.op_seq == slot.members.op_seq ? slot.members.since : now;
      slot.members = wait;
      slot.members.since = since;
    }
    statuses_[index].write({slot.handle, slot.shard->status(now), slot.members});
  }
}

std::vector<command::PublishedStatus> Lane::published() const {
  std::vector<command::PublishedStatus> out;
  for (const Snapshot<command::PublishedStatus>& snapshot : statuses_) {
    const command::PublishedStatus published = snapshot.read();
    if (published.group_handle != 0) out.push_back(published);
  }
  return out;
}

TimeNs Lane::deadline(TimeNs now) const noexcept {
  TimeNs earliest = kNever;
  for (const LanePort& port : ports_) {
    if (port.faults != nullptr) earliest = std::min(earliest, port.faults->deadline());
  }
  // An event wakes nobody.
  if (commands_ != nullptr && commands_->waits_for_input()) {
    earliest = std::min(earliest, now + kInputLookNs);
  }
  for (const std::uint16_t index : in_use_) {
    const GroupSlot& slot = slots_[index];
    if (slot.closed) continue;
    // A group that its port's rate has stopped has nothing to do before that.
    const TimeNs refused_until = ports_[slot.down_port].share.next();
    const TimeNs own = slot.shard->deadline(now);
    earliest = std::min(earliest,
                        own <= now && refused_until != kNever ? std::max(own, refused_until) : own);
  }
  return earliest;
}

// --- commands and ops ---------------------------------------------------------------------------

bool Lane::poll_commands(TimeNs now) noexcept {
  command::LaneReport report;
  bool worked = false;
  while (notices_have_room() &&
         rte_ring_sc_dequeue_elem(config_.shared.reports, &report, sizeof report) == 0) {
    commands_->on_report(report);
    worked = true;
    if (report.type == collective::EventType::kFormed) {
      // Not told by the lane itself: the client that hears of it may post at once, and this lane
      // has to know by then that its commands may be taken.
      command::Notice notice;
      notice.type = command::NoticeType::kGroupFormed;
      notice.group_handle = report.group_handle;
      notify(notice, report.lane);
    }
  }
  worked |= commands_->poll();
  if (commands_->has_news() && notices_have_room()) {
    command::Notice fault;
    fault.type = command::NoticeType::kClientFault;
    std::uint64_t handle = 0;
    AbortReason reason;
    if (commands_->pop_fault(fault.client_id, fault.reason)) {
      notify(fault);
    } else if (commands_->pop_abort(handle, reason)) {
      GroupSlot* slot = find_group(handle);
      if (slot != nullptr && !slot->closed) {
        wake(*slot);
        slot->shard->abort(reason, now);
      }
    } else {
      commands_->clear_news();
    }
    worked = true;
  }
  command::Request* request = nullptr;
  while (notices_have_room() && commands_->pop_finished(request)) {
    request_done(*request);
    worked = true;
  }
  return worked;
}

bool Lane::take_ops(TimeNs now) noexcept {
  bool worked = false;
  command::LaneOps ops;
  while (rte_ring_sc_dequeue_elem(config_.rings.ops, &ops, sizeof ops) == 0) {
    worked = true;
    GroupSlot* slot = find_group(ops.group_handle);
    if (slot == nullptr || slot->closed) continue;  // left or aborted meanwhile
    wake(*slot);
    slot->specs = ops.specs;
    slot->ready_seq = ops.op_seq;
    post_ops(*slot, now);
  }
  return worked;
}

void Lane::post_ops(GroupSlot& slot, TimeNs now) noexcept {
  while (slot.posted_seq != slot.ready_seq) {
    const collective::OpSpec& spec = slot.specs[(slot.posted_seq + 1) % command::kOpSlots];
    switch (slot.shard->post(spec, now)) {
      case collective::PostResult::kOk:
        ++slot.posted_seq;
        trace_op(TraceType::kPosted, now, slot.handle, spec.op_seq,
                 spec.count * element_bytes(spec.datatype));
        continue;
      case collective::PostResult::kFull:
        return;  // again when an op is done
      case collective::PostResult::kRefused:
        // Aborted or leaving: the command lane answers when the shard says so.
        slot.ready_seq = slot.posted_seq;
        return;
      case collective::PostResult::kTooLarge:
      case collective::PostResult::kUnsupported: {
        // The command lane checked this against this very shard's limits.
        AbortReason reason;
        reason.code = AbortCode::kProtocol;
        reason.culprit_rank = reason.reporter_rank = slot.shard->config().rank;
        reason.op_seq = spec.op_seq;
        reason.set_detail(collective::is_supported(spec.collective)
                              ? "an op was accepted that is larger than a shard takes"
                              : "an op was accepted of a collective that shards do not do yet");
        slot.shard->abort(reason, now);
        slot.ready_seq = slot.posted_seq;
        return;
      }
    }
  }
}

// --- shards -------------------------------------------------------------------------------------

/// The place in awake_ of the group that is asked first of those that send by the port. Where a
/// paced port stopped a group in the middle of its turn it is that group; where another is full,
/// the one after whom it stopped first, so that no group always finds the room that others left.
std::size_t Lane::first_asked(const LanePort& port) const noexcept {
  if (!port.share.paced()) return port.next_first < awake_.size() ? port.next_first : 0;
  const auto holder = std::find(awake_.begin(), awake_.end(), port.share.turn());
  return holder == awake_.end() ? 0 : static_cast<std::size_t>(holder - awake_.begin());
}

bool Lane::poll_shards(TimeNs now, bool idle) noexcept {
  if (now >= next_wake_) wake_due(now);
  bool worked = false;
  expecting_ = resting_expecting_ > 0;
  const std::size_t groups = awake_.size();
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    LanePort& port = ports_[p];
    const std::size_t first = first_asked(port);
    bool stopped = false;
    for (std::size_t i = 0; i < groups; ++i) {
      const std::size_t at = first + i < groups ? first + i : first + i - groups;
      const GroupSlot& slot = slots_[awake_[at]];
      if (slot.closed || slot.down_port != p) continue;
      worked |= poll_shard(awake_[at], now, idle);
      // The group took all that the port left it.
      if (stopped || outbox_.down().count == 0 || outbox_.down().count != outbox_.down().room)
        continue;
      stopped = true;
      port.next_first = at + 1;
    }
  }
  // Backwards: a group that is released or rests leaves the list.
  for (std::size_t i = groups; i-- > 0;) {
    GroupSlot& slot = slots_[awake_[i]];
    const bool all_told = take_events(slot, now);
    if (all_told && slot.shard != nullptr && (slot.closed || slot.quiet_rounds >= kQuietRounds)) {
      rest_if_idle(i, now);
    }
  }
  return worked;
}

// --- rest ------------------------------------------------------------------------------------
//
// A round asks no group to which nothing happens, so that it costs the same however many of them
// there are. What can give a group something to do wakes it: a packet, an op, a request, an abort,
// its shard's deadline. Should one be missing here, the group is late by kRestNs and no more: after
// that it is asked in any case. That is also why silence and stalls are counted in full, of which a
// shard believes 10 ms between two of its rounds. A backend that has work, and a port's rate, keep
// a group awake: its deadline is near.

void Lane::wake(GroupSlot& slot) noexcept {
  slot.quiet_rounds = 0;
  if (slot.awake) return;
  slot.awake = true;
  if (slot.expects) --resting_expecting_;
  awake_.push_back(static_cast<std::uint16_t>(&slot - slots_.data()));
}

void Lane::wake_due(TimeNs now) noexcept {
  next_wake_ = kNever;
  for (const std::uint16_t index : in_use_) {
    GroupSlot& slot = slots_[index];
    if (slot.awake) continue;
    if (slot.wake_at <= now) {
      wake(slot);
    } else {
      next_wake_ = std::min(next_wake_, slot.wake_at);
    }
  }
}

void Lane::rest_if_idle(std::size_t place, TimeNs now) noexcept {
  const std::uint16_t index = awake_[place];
  GroupSlot& slot = slots_[index];
  slot.quiet_rounds = 0;
  if (slot.posted_seq != slot.ready_seq) return;
  const TimeNs deadline = slot.closed ? kNever : slot.shard->deadline(now);
  if (deadline < now + kRestNsMin) return;
  slot.awake = false;
  slot.wake_at = slot.closed ? kNever : std::min(deadline, now + kRestNs);
  slot.expects = slot.done < slot.ready_seq;
  if (slot.expects) ++resting_expecting_;
  next_wake_ = std::min(next_wake_, slot.wake_at);
  // It has nothing to send: others must not wait for the rest of its turn.
  for (LanePort& port : ports_) port.share.forget(index);
  awake_.erase(awake_.begin() + static_cast<std::ptrdiff_t>(place));
}

void Lane::forget_awake(std::uint16_t index) noexcept {
  GroupSlot& slot = slots_[index];
  if (slot.awake) {
    awake_.erase(std::find(awake_.begin(), awake_.end(), index));
  } else if (slot.expects) {
    --resting_expecting_;
  }
}

std::uint64_t Lane::push(LanePort& port, std::span<rte_mbuf* const> frames) noexcept {
  std::uint64_t bytes = 0;
  for (rte_mbuf* frame : frames) {
    bytes += frame->pkt_len;
    port.tx.push(frame);
  }
  return bytes;
}

bool Lane::poll_shard(std::uint16_t index, TimeNs now, bool idle) noexcept {
  GroupSlot& slot = slots_[index];
  LanePort& down = ports_[slot.down_port];
  LanePort& up = ports_[slot.up_port];
  std::size_t down_room = down.tx.room();
  std::size_t up_room = up.tx.room();
  if (&down == &up) {
    up_room /= 2;
    down_room -= up_room;
  }
  outbox_.down().count = outbox_.up().count = 0;
  outbox_.down().room = std::min(down_room, collective::OutboxSide::kCapacity);
  outbox_.up().room = std::min(up_room, collective::OutboxSide::kCapacity);
  outbox_.down().room =
      std::min(outbox_.down().room, down.share.packets_allowed(index, now, slot.full_frame_bytes));
  if (slot.posted_seq != slot.ready_seq) post_ops(slot, now);
  const std::uint64_t data_before = slot.shard->counters().data_packets_sent;
  const bool worked = slot.shard->poll(now, idle, outbox_);
  flowed_ |= slot.shard->counters().data_packets_sent != data_before;
  const std::uint64_t up_bytes = push(up, {outbox_.up().frames.data(), outbox_.up().count});
  const std::uint64_t down_bytes = push(down, {outbox_.down().frames.data(), outbox_.down().count});
  up.share.on_sent(now, up_bytes);
  down.share.on_asked(index, now, outbox_.down().room, outbox_.down().count, down_bytes);
  expecting_ |= slot.done < slot.ready_seq;
  slot.quiet_rounds = worked ? 0 : slot.quiet_rounds + 1;
  return worked;
}

void Lane::trace_op(TraceType type, TimeNs at, std::uint64_t handle, std::uint64_t op_seq,
                    std::uint64_t value) noexcept {
  TraceEvent event;
  event.at = at;
  event.group_handle = handle;
  event.op_seq = op_seq;
  event.value = value;
  event.type = type;
  event.lane = config_.lane;
  trace_.push(event);
}

void Lane::trace_abort(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept {
  TraceEvent event;
  event.at = now;
  event.group_handle = handle;
  event.op_seq = reason.op_seq;
  event.value = static_cast<std::uint64_t>(reason.code);
  event.type = TraceType::kAborted;
  event.lane = config_.lane;
  event.culprit_rank = reason.culprit_rank;
  event.reporter_rank = reason.reporter_rank;
  trace_.push(event);
}

/// The op's share on this lane is finished.
void Lane::op_done(const GroupSlot& slot, const collective::Event& event, TimeNs now) noexcept {
  count(counters_.ops_done);
  if (event.op.first_chunk_at != 0) {
    trace_op(TraceType::kFirstChunk, event.op.first_chunk_at, slot.handle, event.op_seq, 0);
  }
  trace_op(TraceType::kDone, now, slot.handle, event.op_seq, event.op.retransmissions);
  if (config_.lane != 0) return;
  const auto latency = static_cast<std::uint64_t>(std::max<TimeNs>(now - event.op.posted_at, 0));
  count(counters_.op_latency[latency_bucket(latency)]);
  count(counters_.op_latency_ns, latency);
  count(counters_.op_bytes, event.op.bytes);
  const std::uint64_t nranks = slot.shard->config().nranks;
  count(counters_.bus_bytes, event.op.bytes / nranks * 2 * (nranks - 1));
}

/// The shard's own event comes when nothing refers to clients' memory, which a backend that hangs
/// puts off for ever: the control thread, and so the clients, hear of the abort before that.
void Lane::tell_abort(GroupSlot& slot, TimeNs now) noexcept {
  slot.abort_told = true;
  command::Notice notice;
  notice.type = command::NoticeType::kGroupAborted;
  notice.group_handle = slot.handle;
  notice.reason = slot.shard->reason();
  count(counters_.aborts);
  if (notice.reason.code == AbortCode::kStuck) count(counters_.stuck);
  trace_abort(slot.handle, notice.reason, now);
  notify(notice);
}

bool Lane::take_events(GroupSlot& slot, TimeNs now) noexcept {
  while (notices_have_room()) {
    if (!slot.abort_told && slot.shard->reason().is_set()) tell_abort(slot, now);
    if (slot.has_report && !report(slot)) return false;
    if (slot.closed) {
      if (slot.leave != nullptr) release(slot);
      return true;
    }
    collective::Event event;
    if (!slot.shard->pop_event(event)) return true;
    slot.report = command::LaneReport{slot.handle, event.op_seq, event.type, config_.lane, {}};
    slot.has_report = true;
    switch (event.type) {
      case collective::EventType::kFormed:
        break;  // the command lane tells the control thread
      case collective::EventType::kOpDone:
        ++slot.done;
        op_done(slot, event, now);
        break;
      case collective::EventType::kAborted:
        slot.report.reason = slot.shard->reason();
        slot.ready_seq = slot.posted_seq = slot.done;
        break;
      case collective::EventType::kClosed: {
        slot.report.reason = slot.shard->reason();
        slot.closed = true;
        const collective::ShardConfig& config = slot.shard->config();
        connections_->erase(config.sender_connection_id);
        connections_->erase(config.receiver_connection_id);
        groups_.remove(config);
        break;
      }
    }
  }
  return false;
}

/// Sends the slot's report to the command lane. @return whether there was room.
bool Lane::report(GroupSlot& slot) noexcept {
  if (rte_ring_mp_enqueue_elem(config_.shared.reports, &slot.report, sizeof slot.report) != 0) {
    return false;
  }
  slot.has_report = false;
  if (commands_ == nullptr) config_.shared.command_bell->ring();
  return true;
}

}  // namespace gradwire::lane
