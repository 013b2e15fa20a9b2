// SPDX-License-Identifier: BSD-3-Clause
// A lane and its shards: which of them a round calls, what they send, and what they report.
#include <rte_ring_elem.h>

#include <algorithm>
#include <bit>

#include "base/require.h"
#include "lane/lane.h"

namespace gradwire::lane {

/// @return the place among those awake of the group that is called first of those that send by the
/// port. If a paced port stopped a group in the middle of its turn, it is that group. If another
/// port was full, it is the group after the one at which it stopped, so that no group always gets
/// only the room that others left.
std::size_t Lane::first_asked(const LanePort& port) const noexcept {
  const std::span<const std::uint16_t> awake = rests_.awake();
  if (!port.share.paced()) return port.next_first < awake.size() ? port.next_first : 0;
  const auto holder = std::find(awake.begin(), awake.end(), port.share.turn());
  return holder == awake.end() ? 0 : static_cast<std::size_t>(holder - awake.begin());
}

bool Lane::poll_shards(TimeNs now, bool idle) noexcept {
  rests_.wake_due(now);
  bool worked = false;
  expecting_ = rests_.expects();
  folding_ = false;
  const std::span<const std::uint16_t> awake = rests_.awake();
  const std::size_t groups = awake.size();
  steps_ += groups;
  ++round_;
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    LanePort& port = ports_[p];
    const std::size_t first = first_asked(port);
    bool stopped = false;
    for (std::size_t i = 0; i < groups; ++i) {
      const std::size_t at = first + i < groups ? first + i : first + i - groups;
      GroupSlot& slot = slots_[awake[at]];
      if (slot.closed || slot.down_port != p || slot.polled == round_) continue;
      slot.polled = round_;
      worked |= poll_shard(awake[at], now, idle);
      // The group used all the room that the port had for it.
      if (stopped || outbox_.down().count == 0 || outbox_.down().count != outbox_.down().room)
        continue;
      stopped = true;
      port.next_first = at + 1;
    }
  }
  // Backwards, because a group that is released or rests is removed from the list.
  for (std::size_t i = groups; i-- > 0;) {
    const std::uint16_t index = awake[i];
    GroupSlot& slot = slots_[index];
    const bool all_told = take_events(slot, now);
    const bool may_rest = all_told && slot.shard != nullptr && Rests::is_quiet(slot);
    if (!may_rest || !rests_.rest_if_idle(i, now)) continue;
    // It has nothing to send, so others must not wait for the rest of its turn.
    for (LanePort& port : ports_) port.share.forget(index);
  }
  return worked;
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
    require(frame->port < ports_.size(), "a frame names one of the lane's ports");
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
  require(outbox_.down().count <= outbox_.down().room && outbox_.up().count <= outbox_.up().room &&
              outbox_.any().count <= outbox_.any().room,
          "a shard sends no more than there is room for");
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
  expecting_ |= slot.expects_packets();
  folding_ |= slot.shard->folding();
  slot.quiet_rounds = worked ? 0 : slot.quiet_rounds + 1;
  return worked;
}

/// Tells the control thread, and thereby the clients, of an abort at once. The shard's own event
/// comes only when nothing refers to clients' memory, which may be never if a backend hangs.
void Lane::tell_abort(GroupSlot& slot, TimeNs now) noexcept {
  slot.abort_told = true;
  command::Notice notice;
  notice.type = command::NoticeType::kGroupAborted;
  notice.group_handle = slot.handle;
  notice.reason = slot.shard->reason();
  log_.aborted(slot.handle, notice.reason, now);
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
        require(slot.done < slot.posted_seq, "an op that is done was posted");
        ++slot.done;
        if (event.op.bytes > kStreamBytes && slot.streams > 0) --slot.streams;
        log_.done(slot.handle, event, slot.shard->config().nranks, now);
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
        receiver_.remove_group(slot);
        break;
    }
  }
  return false;
}

/// Sends the slot's report to the command lane. @return whether there was room.
bool Lane::report(GroupSlot& slot) noexcept {
  require(slot.has_report && slot.report.group_handle == slot.handle,
          "a group reports its own events");
  if (rte_ring_mp_enqueue_elem(config_.shared.reports, &slot.report, sizeof slot.report) != 0) {
    return false;
  }
  slot.has_report = false;
  if (config_.lane != 0) config_.shared.command_bell->ring();
  return true;
}

}  // namespace gradwire::lane
