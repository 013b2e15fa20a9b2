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
      connections_(std::make_unique<ConnectionTable>()),
      statuses_(config.max_groups),
      polling_(config.polling) {
  in_use_.reserve(config.max_groups);
  touched_.reserve(config.max_groups);
  for (const Port* port : config.ports) {
    // Every lane has its part of a port's rate.
    const std::uint64_t rate_bps = port->config().rate_bps / config.lanes;
    LanePort added;
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
    added.stage = std::make_unique<FaultStage>(port->row().rx_exclusive,
                                               std::uint64_t{config.lane} << 16 | ports_.size());
    if (port->config().faults.active()) {
      added.stage->configure(port->config().faults);
      added.faults = added.stage.get();
    }
    ports_.push_back(std::move(added));
  }
  sleeper_.add(config.rings.bell->fd());
  if (config.command_lane) commands_ = std::make_unique<CommandLane>(config.all_lanes, counters_);
}

Lane::~Lane() {
  for (LanePort& port : ports_) port.tx.clear();
}

bool Lane::poll_once(TimeNs now) noexcept {
  bool worked = take_requests(now);
  if (commands_ != nullptr) worked |= poll_commands(now);
  worked |= take_ops(now);
  const bool received = receive(now);
  worked |= received;
  worked |= take_control_frames();
  worked |= poll_shards(now, !received);
  for (LanePort& port : ports_) {
    if (port.tx.empty()) continue;
    if (port.port->is_running()) {
      worked |= port.tx.flush(now, counters_, port.trace);
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
      const MembersWait wait = commands_->members_wait(slot.handle);
      const TimeNs since = wait.op_seq == slot.members.op_seq ? slot.members.since : now;
      slot.members = wait;
      slot.members.since = since;
    }
    statuses_[index].write({slot.handle, slot.shard->status(now), slot.members});
  }
}

std::optional<MembersWait> Lane::members_wait(std::uint64_t group_handle) const noexcept {
  for (const Snapshot<PublishedStatus>& snapshot : statuses_) {
    const PublishedStatus published = snapshot.read();
    if (published.group_handle != group_handle || group_handle == 0) continue;
    if (published.members.op_seq != 0) return published.members;
    break;
  }
  return std::nullopt;
}

std::optional<ring::ShardStatus> Lane::shard_status(std::uint64_t group_handle) const noexcept {
  for (const Snapshot<PublishedStatus>& snapshot : statuses_) {
    const PublishedStatus published = snapshot.read();
    if (published.group_handle == group_handle && group_handle != 0) return published.status;
  }
  return std::nullopt;
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
  LaneReport report;
  bool worked = false;
  while (notices_have_room() &&
         rte_ring_sc_dequeue_elem(config_.shared.reports, &report, sizeof report) == 0) {
    commands_->on_report(report);
    worked = true;
    if (report.type == ring::EventType::kFormed) {
      // Not told by the lane itself: the client that hears of it may post at once, and this lane
      // has to know by then that its commands may be taken.
      Notice notice;
      notice.type = NoticeType::kGroupFormed;
      notice.group_handle = report.group_handle;
      notify(notice, report.lane);
    }
  }
  worked |= commands_->poll();
  if (commands_->has_news() && notices_have_room()) {
    Notice fault;
    fault.type = NoticeType::kClientFault;
    std::uint64_t handle = 0;
    AbortReason reason;
    if (commands_->pop_fault(fault.client_id, fault.reason)) {
      notify(fault);
    } else if (commands_->pop_abort(handle, reason)) {
      GroupSlot* slot = find_group(handle);
      if (slot != nullptr && !slot->closed) slot->shard->abort(reason, now);
    } else {
      commands_->clear_news();
    }
    worked = true;
  }
  Request* request = nullptr;
  while (notices_have_room() && commands_->pop_finished(request)) {
    request_done(*request);
    worked = true;
  }
  return worked;
}

bool Lane::take_ops(TimeNs now) noexcept {
  bool worked = false;
  LaneOps ops;
  while (rte_ring_sc_dequeue_elem(config_.rings.ops, &ops, sizeof ops) == 0) {
    worked = true;
    GroupSlot* slot = find_group(ops.group_handle);
    if (slot == nullptr || slot->closed) continue;  // left or aborted meanwhile
    slot->specs = ops.specs;
    slot->ready_seq = ops.op_seq;
    post_ops(*slot, now);
  }
  return worked;
}

void Lane::post_ops(GroupSlot& slot, TimeNs now) noexcept {
  while (slot.posted_seq != slot.ready_seq) {
    const ring::OpSpec& spec = slot.specs[(slot.posted_seq + 1) % kOpSlots];
    switch (slot.shard->post(spec, now)) {
      case ring::PostResult::kOk:
        ++slot.posted_seq;
        trace_op(TraceType::kPosted, now, slot.handle, spec.op_seq,
                 spec.count * element_bytes(spec.datatype));
        continue;
      case ring::PostResult::kFull:
        return;  // again when an op is done
      case ring::PostResult::kRefused:
        // Aborted or leaving: the command lane answers when the shard says so.
        slot.ready_seq = slot.posted_seq;
        return;
      case ring::PostResult::kTooLarge: {
        // The command lane checked the size against this very shard's limits.
        AbortReason reason;
        reason.code = AbortCode::kProtocol;
        reason.culprit_rank = reason.reporter_rank = slot.shard->config().rank;
        reason.op_seq = spec.op_seq;
        reason.set_detail("an op was accepted that is larger than a shard takes");
        slot.shard->abort(reason, now);
        slot.ready_seq = slot.posted_seq;
        return;
      }
    }
  }
}

// --- shards -------------------------------------------------------------------------------------

/// Where a paced port stopped a group in the middle of its turn, that group is asked first.
std::size_t Lane::first_asked() const noexcept {
  for (const LanePort& port : ports_) {
    if (!port.share.paced()) continue;
    const auto holder = std::find(in_use_.begin(), in_use_.end(), port.share.turn());
    if (holder != in_use_.end()) return static_cast<std::size_t>(holder - in_use_.begin());
  }
  return 0;
}

bool Lane::poll_shards(TimeNs now, bool idle) noexcept {
  bool worked = false;
  expecting_ = false;
  const std::size_t groups = in_use_.size();
  const std::size_t first = first_asked();
  for (std::size_t i = 0; i < groups; ++i) {
    const std::uint16_t index = in_use_[(first + i) % groups];
    if (!slots_[index].closed) worked |= poll_shard(index, now, idle);
  }
  // Backwards: a group that is released leaves the list.
  for (std::size_t i = groups; i-- > 0;) take_events(slots_[in_use_[i]], now);
  return worked;
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
  outbox_.down_count = outbox_.up_count = 0;
  outbox_.down_room = std::min(down_room, ring::Outbox::kCapacity);
  outbox_.up_room = std::min(up_room, ring::Outbox::kCapacity);
  outbox_.down_room =
      std::min(outbox_.down_room, down.share.packets_allowed(index, now, slot.full_frame_bytes));
  if (slot.posted_seq != slot.ready_seq) post_ops(slot, now);
  const bool worked = slot.shard->poll(now, idle, outbox_);
  const std::uint64_t up_bytes = push(up, {outbox_.up.data(), outbox_.up_count});
  const std::uint64_t down_bytes = push(down, {outbox_.down.data(), outbox_.down_count});
  up.share.on_sent(now, up_bytes);
  down.share.on_asked(index, now, outbox_.down_room, outbox_.down_count, down_bytes);
  expecting_ |= slot.done < slot.ready_seq;
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
void Lane::op_done(const GroupSlot& slot, const ring::Event& event, TimeNs now) noexcept {
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

void Lane::take_events(GroupSlot& slot, TimeNs now) noexcept {
  while (notices_have_room()) {
    if (slot.has_report && !report(slot)) return;
    if (slot.closed) {
      if (slot.leave != nullptr) release(slot);
      return;
    }
    ring::Event event;
    if (!slot.shard->pop_event(event)) return;
    slot.report = LaneReport{slot.handle, event.op_seq, event.type, config_.lane, {}};
    slot.has_report = true;
    Notice notice;
    notice.group_handle = slot.handle;
    switch (event.type) {
      case ring::EventType::kFormed:
        break;  // the command lane tells the control thread
      case ring::EventType::kOpDone:
        ++slot.done;
        op_done(slot, event, now);
        break;
      case ring::EventType::kAborted:
        notice.type = NoticeType::kGroupAborted;
        notice.reason = slot.shard->reason();
        slot.report.reason = notice.reason;
        slot.ready_seq = slot.posted_seq = slot.done;
        count(counters_.aborts);
        trace_abort(slot.handle, notice.reason, now);
        notify(notice);
        break;
      case ring::EventType::kClosed: {
        slot.report.reason = slot.shard->reason();
        slot.closed = true;
        const ring::ShardConfig& config = slot.shard->config();
        connections_->erase(config.sender_connection_id);
        connections_->erase(config.receiver_connection_id);
        break;
      }
    }
  }
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
