// SPDX-License-Identifier: BSD-3-Clause
// A lane and its shards: which shards a round calls, what they send, when they rest, and what they
// report.
#include <rte_ring_elem.h>

#include <algorithm>
#include <bit>

#include "lane/lane.h"

namespace gradwire::lane {

/// @return the place in awake_ of the group that is called first of those that send by the port. If
/// a paced port stopped a group in the middle of its turn, it is that group. If another port was
/// full, it is the group after the one at which it stopped, so that no group always gets only the
/// room that others left.
std::size_t Lane::first_asked(const LanePort& port) const noexcept {
  if (!port.share.paced()) return port.next_first < awake_.size() ? port.next_first : 0;
  const auto holder = std::find(awake_.begin(), awake_.end(), port.share.turn());
  return holder == awake_.end() ? 0 : static_cast<std::size_t>(holder - awake_.begin());
}

bool Lane::poll_shards(TimeNs now, bool idle) noexcept {
  for (Resting& resting : resting_) {
    if (now >= resting.next_wake) wake_due(resting, now);
  }
  bool worked = false;
  expecting_ = resting_expecting_ > 0;
  folding_ = false;
  const std::size_t groups = awake_.size();
  steps_ += groups;
  ++round_;
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    LanePort& port = ports_[p];
    const std::size_t first = first_asked(port);
    bool stopped = false;
    for (std::size_t i = 0; i < groups; ++i) {
      const std::size_t at = first + i < groups ? first + i : first + i - groups;
      const GroupSlot& slot = slots_[awake_[at]];
      if (slot.closed || slot.down_port != p || slot.polled == round_) continue;
      slots_[awake_[at]].polled = round_;
      worked |= poll_shard(awake_[at], now, idle);
      // The group used all the room that the port had for it.
      if (stopped || outbox_.down().count == 0 || outbox_.down().count != outbox_.down().room)
        continue;
      stopped = true;
      port.next_first = at + 1;
    }
  }
  // Backwards, because a group that is released or rests is removed from the list.
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
// A round does not call groups to which nothing happens, so idle groups cost nothing. Anything that
// can give a group work wakes it: a packet, an op, a request, an abort, its shard's deadline. If
// such a cause were forgotten here, the group would be late by at most kRestNs, because it is
// called then in any case. That also keeps silence and stalls exact, since a shard counts at most
// 10 ms between two of its rounds. A backend that has work and a port's rate keep a group awake,
// because its deadline is near.

void Lane::wake(GroupSlot& slot) noexcept {
  slot.quiet_rounds = 0;
  slot.shown = false;
  if (slot.awake) return;
  slot.awake = true;
  if (!slot.closed) slot.shard->rested_until(last_round_);
  forget_resting(slot);
  awake_.push_back(static_cast<std::uint16_t>(&slot - slots_.data()));
}

void Lane::wake_due(Resting& resting, TimeNs now) noexcept {
  resting.next_wake = resting.deadline = kNever;
  std::size_t woken = 0;
  // Backwards, because the last one takes the place of one that is woken.
  for (std::size_t i = resting.groups.size(); i-- > 0;) {
    GroupSlot& slot = slots_[resting.groups[i]];
    // A group that counts its rounds does not wait, nor one that has something to do.
    const bool may_wait = slot.rests_long && slot.deadline > now;
    if (slot.wake_at <= now && !(may_wait && woken == kWakesPerRound)) {
      wake(slot);
      // If it has nothing to do, it rests again after this round.
      slot.quiet_rounds = kQuietRounds - 1;
      if (may_wait) ++woken;
    } else {
      resting.next_wake = std::min(resting.next_wake, slot.wake_at);
      resting.deadline = std::min(resting.deadline, slot.deadline);
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
  slot.deadline = deadline;
  slot.moves = slot.done < slot.ready_seq;
  slot.expects = slot.moves || (!slot.closed && slot.shard->expects_packets());
  slot.rests_long = !slot.closed && !slot.expects && slot.shard->config().transfers.alone;
  slot.wake_at = slot.closed ? kNever : std::min(deadline, longest_rest(slot, now));
  if (slot.expects) ++resting_expecting_;
  if (slot.moves) ++resting_moving_;
  resting_streams_ += slot.streams;
  Resting& resting = resting_[slot.rests_long];
  resting.next_wake = std::min(resting.next_wake, slot.wake_at);
  resting.deadline = std::min(resting.deadline, deadline);
  slot.resting_place = static_cast<std::uint16_t>(resting.groups.size());
  resting.groups.push_back(index);
  // It has nothing to send, so others must not wait for the rest of its turn.
  for (LanePort& port : ports_) port.share.forget(index);
  awake_.erase(awake_.begin() + static_cast<std::ptrdiff_t>(place));
}

TimeNs Lane::longest_rest(const GroupSlot& slot, TimeNs now) noexcept {
  if (!slot.rests_long) return now + kRestNs;
  return (now + kLongRestNs) / kLongRestEnds * kLongRestEnds;
}

void Lane::forget_awake(std::uint16_t index) noexcept {
  GroupSlot& slot = slots_[index];
  if (slot.awake) {
    awake_.erase(std::find(awake_.begin(), awake_.end(), index));
  } else {
    forget_resting(slot);
  }
}

void Lane::forget_resting(const GroupSlot& slot) noexcept {
  std::vector<std::uint16_t>& groups = resting_[slot.rests_long].groups;
  slots_[groups.back()].resting_place = slot.resting_place;
  groups[slot.resting_place] = groups.back();
  groups.pop_back();
  if (slot.expects) --resting_expecting_;
  if (slot.moves) --resting_moving_;
  resting_streams_ -= slot.streams;
}

std::size_t Lane::room_by_any(const GroupSlot& slot, TimeNs now) const noexcept {
  std::size_t room = collective::OutboxSide::kCapacity;
  for (std::uint32_t left = slot.any_ports; left != 0; left &= left - 1) {
    const TxQueue& tx = ports_[static_cast<std::size_t>(std::countr_zero(left))].tx;
    // A rail without a cable must not hold back what goes by the others. What goes there is lost.
    if (tx.stalls(now) && slot.shard->has_rails()) continue;
    room = std::min(room, tx.room() / 4);
  }
  return room;
}

void Lane::push_by_any(std::span<rte_mbuf* const> frames, TimeNs now) noexcept {
  for (rte_mbuf* const frame : frames) {
    LanePort& port = ports_[frame->port];
    port.share.on_sent(now, port.tx.push({&frame, 1}));
  }
}

bool Lane::poll_shard(std::uint16_t index, TimeNs now, bool idle) noexcept {
  GroupSlot& slot = slots_[index];
  if (slot.shard->has_rails()) [[unlikely]] {
    // Others must not wait there for the rest of its turn.
    if (slot.down_port != slot.shard->down_port()) ports_[slot.down_port].share.forget(index);
    slot.down_port = slot.shard->down_port();
    slot.up_port = slot.shard->up_port();
  }
  LanePort& down = ports_[slot.down_port];
  LanePort& up = ports_[slot.up_port];
  std::size_t down_room = down.tx.room();
  std::size_t up_room = up.tx.room();
  outbox_.any().count = outbox_.any().room = 0;
  if (slot.any_ports != 0) {
    outbox_.any().room = room_by_any(slot, now);
    if ((slot.any_ports >> slot.down_port & 1) != 0)
      down_room -= std::min(down_room, outbox_.any().room);
    if ((slot.any_ports >> slot.up_port & 1) != 0) up_room -= std::min(up_room, outbox_.any().room);
  }
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
  // With two ranks both belong to one link, and an acknowledgement has a higher packet number than
  // the data of the same round. If it were sent first, the other rank would take the data for
  // reordered.
  const std::uint64_t down_bytes =
      down.tx.push({outbox_.down().frames.data(), outbox_.down().count});
  const std::uint64_t up_bytes = up.tx.push({outbox_.up().frames.data(), outbox_.up().count});
  up.share.on_sent(now, up_bytes);
  if (outbox_.any().count > 0) {
    push_by_any({outbox_.any().frames.data(), outbox_.any().count}, now);
  }
  down.share.on_asked(index, now, outbox_.down().room, outbox_.down().count, down_bytes);
  expecting_ |= slot.done < slot.ready_seq || slot.shard->expects_packets();
  folding_ |= slot.shard->folding();
  slot.quiet_rounds = worked ? 0 : slot.quiet_rounds + 1;
  return worked;
}

void Lane::trace_op(TraceType type, TimeNs at, std::uint64_t handle, std::uint64_t op_seq,
                    std::uint64_t value, const collective::OpRecord& op) noexcept {
  TraceEvent event;
  event.at = at;
  event.group_handle = handle;
  event.op_seq = op_seq;
  event.value = value;
  event.type = type;
  event.lane = config_.lane;
  event.collective = op.collective;
  event.wire = op.wire;
  event.shape = op.shape;
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

namespace {

/// @return the bytes that a rank's link carries for an op, as nccl-tests counts them.
std::uint64_t bus_bytes(Collective collective, std::uint64_t bytes, std::uint64_t nranks) noexcept {
  if (nranks == 1) return 0;
  switch (collective) {
    case Collective::kAllReduce:
      return bytes / nranks * 2 * (nranks - 1);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return bytes / nranks * (nranks - 1);
    default:
      break;
  }
  return bytes;
}

}  // namespace

/// This lane's share of the op is finished.
void Lane::op_done(const GroupSlot& slot, const collective::Event& event, TimeNs now) noexcept {
  count(counters_.ops_done);
  if (event.op.first_chunk_at != 0) {
    trace_op(TraceType::kFirstChunk, event.op.first_chunk_at, slot.handle, event.op_seq, 0,
             event.op);
  }
  trace_op(TraceType::kDone, now, slot.handle, event.op_seq, event.op.retransmissions, event.op);
  if (config_.lane != 0) return;
  const auto latency = static_cast<std::uint64_t>(std::max<TimeNs>(now - event.op.posted_at, 0));
  count(counters_.op_latency[latency_bucket(latency)]);
  count(counters_.op_latency_ns, latency);
  count(counters_.op_bytes, event.op.bytes);
  count(counters_.command.ops[index_of(event.op.collective)]);
  count(counters_.bus_bytes,
        bus_bytes(event.op.collective, event.op.bytes, slot.shard->config().nranks));
}

/// Tells the control thread, and thereby the clients, of an abort at once. The shard's own event
/// comes only when nothing refers to clients' memory, which may be never if a backend hangs.
void Lane::tell_abort(GroupSlot& slot, TimeNs now) noexcept {
  slot.abort_told = true;
  command::Notice notice;
  notice.type = command::NoticeType::kGroupAborted;
  notice.group_handle = slot.handle;
  notice.reason = slot.shard->reason();
  count(counters_.aborts);
  if (notice.reason.code == AbortCode::kStuck) count(counters_.stuck);
  trace_abort(slot.handle, notice.reason, now);
  notices_.send(notice);
}

/// Asks the control thread for keys of another generation, by which packets go on.
void Lane::tell_key_wishes(GroupSlot& slot) noexcept {
  command::Notice notice;
  notice.type = command::NoticeType::kKeyWanted;
  notice.group_handle = slot.handle;
  while (notices_.have_room() && slot.shard->pop_key_wish(notice.wish)) notices_.send(notice);
}

bool Lane::take_events(GroupSlot& slot, TimeNs now) noexcept {
  if (!slot.closed) tell_key_wishes(slot);
  while (notices_.have_room()) {
    if (!slot.abort_told && slot.shard->reason().is_set()) tell_abort(slot, now);
    if (slot.has_report && !report(slot)) return false;
    if (slot.closed) {
      if (slot.leaving) release(slot);
      return true;
    }
    collective::Event event;
    if (!slot.shard->pop_event(event)) return true;
    slot.report = command::LaneReport{slot.handle, event.op_seq, event.type, config_.lane, {}, 0};
    slot.has_report = true;
    switch (event.type) {
      case collective::EventType::kFormed:
        break;  // the command lane reports it to the control thread
      case collective::EventType::kOpDone:
        ++slot.done;
        if (event.op.bytes > kStreamBytes && slot.streams > 0) --slot.streams;
        op_done(slot, event, now);
        break;
      case collective::EventType::kTransferDone:
        break;  // the command lane counts what is whole
      case collective::EventType::kTransferSized:
        slot.report.bytes = event.bytes;
        break;
      case collective::EventType::kAborted:
        slot.report.reason = slot.shard->reason();
        slot.ready_seq = slot.posted_seq = slot.done;
        slot.streams = 0;
        break;
      case collective::EventType::kClosed:
        slot.report.reason = slot.shard->reason();
        slot.closed = true;
        groups_.remove(slot.shard->config(), static_cast<std::uint16_t>(&slot - slots_.data()));
        runs_.forget();
        break;
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
  if (config_.lane != 0) config_.shared.command_bell->ring();
  return true;
}

}  // namespace gradwire::lane
