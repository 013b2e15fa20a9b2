// SPDX-License-Identifier: BSD-3-Clause
#include "lane/lane.h"

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <algorithm>

#include "base/require.h"
#include "lane/client_commands.h"

namespace gradwire::lane {

namespace {

// How often a lane checks whether inputs are ready that were still being computed.
constexpr TimeNs kInputLookNs = 20'000;

/// @return how many frames make up a round's bytes if all are full.
std::uint16_t rx_burst(std::uint32_t frame_bytes, std::uint32_t round_bytes,
                       std::uint16_t most) noexcept {
  constexpr std::uint32_t kLeast = 4;
  return static_cast<std::uint16_t>(
      std::clamp<std::uint32_t>(round_bytes / std::max(frame_bytes, 1u), kLeast, most));
}

TxCompletion completion_of(const port::Port& port,
                           std::span<const port::Port* const> all) noexcept {
  using Kind = TxCompletion::Kind;
  const bool vlan = port.config().vlan_id.has_value();
  if (port.config().ip.family == 6) return {Kind::kIpv6, port.udp_sum(), vlan};
  // A chunk's mbuf goes by another port if its path fails.
  const bool marks = std::ranges::any_of(
      all, [](const port::Port* one) { return one->udp_sum() == wire::UdpSum::kDevice; });
  return {marks ? Kind::kClearMarks : Kind::kNone, wire::UdpSum::kCpu, vlan};
}

}  // namespace

Lane::Lane(const LaneConfig& config)
    : config_(config),
      notices_(config.shared, config.lane),
      log_(config.lane, counters_),
      slots_(config.max_groups),
      rests_(slots_, config.max_groups),
      statuses_(config.max_groups),
      receiver_(config_, ports_, slots_, rests_, counters_),
      polling_(config.polling) {
  require(config.lane < config.lanes && config.lanes <= kMaxLanes, "a lane is one of its daemon's");
  require(config.max_groups < GroupIndex::kNoSlot, "an index tells each group from none");
  for (const port::Port* port : config.ports) {
    // Lanes share a port's rate equally.
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
    added.rx_burst =
        rx_burst(port->limits().frame_bytes, LaneReceiver::kRoundBytes, LaneReceiver::kMaxBurst);
    added.tx =
        TxQueue(port->id(), config.lane, port->row().tx_burst, completion_of(*port, config.ports));
    added.stage = std::make_unique<port::FaultStage>(
        port->row().rx_exclusive, std::uint64_t{config.lane} << 16 | ports_.size());
    if (port->config().faults.active()) {
      added.stage->configure(port->config().faults);
      added.faults = added.stage.get();
    }
    ports_.push_back(std::move(added));
  }
  sleeper_.add(config.rings.bell->fd());
  if (config.command_lane) {
    commands_ = std::make_unique<ClientCommands>(
        config.all_lanes, config.shared.reports, counters_.command, notices_, sleeper_,
        [this](std::uint64_t handle, const AbortReason& reason, TimeNs now) {
          abort_group(handle, reason, now);
        });
  } else {
    commands_ = std::make_unique<NoCommands>();
  }
}

Lane::~Lane() {
  for (LanePort& port : ports_) port.tx.clear();
}

bool Lane::poll_once(TimeNs now) noexcept {
  const std::uint64_t frames = counters_.rx_packets;
  const std::uint64_t commands = commands_->steps();
  steps_ = 0;
  bool worked = take_requests(now);
  worked |= commands_->poll(now);
  worked |= take_ops(now);
  worked |= take_transfers(now);
  flowed_ = worked;
  const bool received = receiver_.receive(now);
  flowed_ |= receiver_.flowed();
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
  if (statuses_.due(now)) publish(now);
  round_steps_.note(steps_ + (counters_.rx_packets - frames) + (commands_->steps() - commands));
  rests_.round_ended(now);
  count(counters_.rounds);
  if (worked) count(counters_.busy_rounds);
  return worked;
}

void Lane::publish(TimeNs now) noexcept {
  if (statuses_.begin(now, slots_.in_use().size())) {
    round_us_.turn(now);
    round_steps_.turn(now);
  }
  for (const std::uint16_t index : statuses_.next_of(slots_.in_use())) {
    ++steps_;
    GroupSlot& slot = slots_[index];
    if (slot.shown) continue;
    slot.shown = !slot.awake && !slot.expects && slot.shard->config().transfers.alone;
    const command::MembersWait wait = commands_->members_wait(slot.handle);
    const TimeNs since = wait.op_seq == slot.members.op_seq ? slot.members.since : now;
    slot.members = wait;
    slot.members.since = since;
    const collective::ShardStatus status = slot.shard->status(now);
    statuses_.write(index, {slot.handle, status, slot.members}, slot.shown);
    commands_->heard_posted(slot.handle, status.downstream_posted_op_seq);
  }
}

TimeNs Lane::deadline(TimeNs now) const noexcept {
  TimeNs earliest = kNever;
  for (const LanePort& port : ports_) {
    if (port.faults != nullptr) earliest = std::min(earliest, port.faults->deadline());
  }
  // An event cannot wake the lane, so it must check again soon.
  if (commands_->waits_for_input()) {
    earliest = std::min(earliest, now + kInputLookNs);
  }
  earliest = std::min(earliest, rests_.deadline());
  for (const std::uint16_t index : rests_.awake()) {
    const GroupSlot& slot = slots_[index];
    if (slot.closed) continue;
    // If the port's rate has stopped a group, it has nothing to do before this time.
    const TimeNs refused_until = ports_[slot.down_port].share.next();
    const TimeNs own = slot.shard->deadline(now);
    earliest = std::min(earliest,
                        own <= now && refused_until != kNever ? std::max(own, refused_until) : own);
  }
  return earliest;
}

bool Lane::take_control_frames() noexcept {
  bool worked = false;
  void* object = nullptr;
  while (rte_ring_sc_dequeue(config_.rings.frames, &object) == 0) {
    auto* frame = static_cast<rte_mbuf*>(object);
    worked = true;
    if (frame->port < ports_.size() && ports_[frame->port].tx.room() != 0) {
      ports_[frame->port].tx.push(frame);
    } else {
      rte_pktmbuf_free(frame);
    }
  }
  return worked;
}

bool Lane::take_ops(TimeNs now) noexcept {
  bool worked = false;
  command::LaneOps ops;
  // Bounded: one message for each group that its members complete ops of, in each round of lane 0.
  while (rte_ring_sc_dequeue_elem(config_.rings.ops, &ops, sizeof ops) == 0) {
    worked = true;
    ++steps_;
    GroupSlot* slot = slots_.find(ops.group_handle);
    if (slot == nullptr || slot->closed) continue;  // it was left or aborted meanwhile
    require(ops.op_seq >= slot->ready_seq, "ops become ready in their order");
    rests_.wake(*slot);
    slot->specs = ops.specs;
    slot->ready_seq = ops.op_seq;
    post_ops(*slot, now);
  }
  return worked;
}

bool Lane::take_transfers(TimeNs now) noexcept {
  bool worked = false;
  command::LaneTransfer transfer;
  for (int left = kTransfersPerRound;
       left > 0 &&
       rte_ring_sc_dequeue_elem(config_.rings.transfers, &transfer, sizeof transfer) == 0;
       --left) {
    worked = true;
    ++steps_;
    GroupSlot* slot = slots_.find(transfer.group_handle);
    if (slot == nullptr || slot->closed) continue;  // it was left or aborted meanwhile
    rests_.wake(*slot);
    switch (slot->shard->post(*transfer.spec, now)) {
      case collective::PostResult::kOk:
      case collective::PostResult::kRefused:  // aborted or leaving: the command lane hears of it
        continue;
      case collective::PostResult::kFull:
      case collective::PostResult::kTooLarge:
      case collective::PostResult::kUnsupported:
        require(false, "the command lane hands out transfers that a shard takes");
    }
  }
  return worked;
}

namespace {

/// @return the bytes of the whole op.
std::uint64_t bytes_of(const collective::OpSpec& spec, const collective::Shard& shard) noexcept {
  const std::uint32_t processes = shard.config().processes().count();
  CollectiveCall call;
  call.collective = spec.collective;
  call.count = spec.count;
  return whole_count(call, processes).value_or(0) * element_bytes(spec.datatype);
}

}  // namespace

void Lane::post_ops(GroupSlot& slot, TimeNs now) noexcept {
  require(slot.ready_seq - slot.posted_seq <= command::kOpSlots,
          "the command lane keeps an op until a shard has it");
  while (slot.posted_seq != slot.ready_seq) {
    const collective::OpSpec& spec = slot.specs[(slot.posted_seq + 1) % command::kOpSlots];
    switch (slot.shard->post(spec, now)) {
      case collective::PostResult::kOk: {
        ++slot.posted_seq;
        ++steps_;
        const std::uint64_t bytes = bytes_of(spec, *slot.shard);
        if (bytes > kStreamBytes) ++slot.streams;
        log_.posted(slot.handle, spec, bytes, now);
        continue;
      }
      case collective::PostResult::kFull:
        return;  // tried again when an op is done
      case collective::PostResult::kRefused:
        // The group is aborted or leaving: the command lane answers once the shard reports it.
        slot.ready_seq = slot.posted_seq;
        return;
      case collective::PostResult::kTooLarge:
      case collective::PostResult::kUnsupported: {
        // Cannot happen: the command lane has checked the op against the limits of this shard.
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

}  // namespace gradwire::lane
